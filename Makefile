# Two commands do everything on a machine that has Python, a C++ compiler and make:
#
#   make bench    environment, install, the default grid, its report
#   make test     environment, install, lint, types, tests
#
# `make study` fills docs/study.md and the README's results from the runs in results/.
#
# On a CUDA machine TensorFlow gets an environment of its own: the CUDA 12 and CUDA 13 packages of
# the two frameworks overwrite each other's files in one.

PYTHON ?= python3
GRID ?= grids/default.yaml

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PINS := $(wildcard requirements*.txt)

ifneq ($(shell nvidia-smi -L 2>/dev/null),)
TF_VENV := .venv-tensorflow
TF_READY := $(TF_VENV)/.installed
TF_FLAG := --python tensorflow=$(TF_VENV)/bin/python
endif

.PHONY: bench test study lint format sanitize clean

bench: $(VENV)/.installed $(TF_READY)
	$(BIN)/lstm-bench grid $(GRID) $(TF_FLAG)

test: $(VENV)/.tested-with $(TF_READY) lint
	$(BIN)/python -m pytest
	$(MAKE) sanitize

study: $(VENV)/.installed
	$(BIN)/python -m study

lint: $(VENV)/.tested-with
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

sanitize: $(VENV)/.tested-with
	PYTHON=$(BIN)/python tests/sanitize.sh

format: $(VENV)/.tested-with
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: pyproject.toml setup.py $(wildcard deepbench_ext/*) $(PINS)
	@echo "installing the tool and its frameworks into $(VENV): some minutes, some gigabytes"
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt $(if $(TF_VENV),,-r requirements-tensorflow.txt)
	$(PIP) --editable .
	touch $@

# The extension is built once more: now the headers for its cuDNN part are there.
$(VENV)/.tested-with: $(VENV)/.installed
	$(PIP) -r requirements-dev.txt
	$(PIP) --no-deps -r requirements-headers.txt
	$(BIN)/python setup.py --quiet build_ext --inplace --force
	touch $@

ifdef TF_VENV
$(TF_READY): requirements-tensorflow.txt
	$(PYTHON) -m venv $(TF_VENV)
	$(TF_VENV)/bin/python -m pip install --quiet -r $< 'tensorflow[and-cuda]'
	touch $@
endif

clean:
	rm -rf $(VENV) .venv-tensorflow build *.egg-info
