# Two commands do everything on a machine that has Python, a C++ compiler and make:
#
#   make bench    environment, install, the default grid, its report
#   make test     environment, install, lint, types, tests
#
# On a CUDA machine TensorFlow gets an environment of its own: the CUDA 12 and CUDA 13 packages of
# the two frameworks overwrite each other's files in one.

PYTHON ?= python3
GRID ?= grids/default.yaml

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PINS := requirements.txt requirements-tensorflow.txt requirements-dev.txt

ifneq ($(shell nvidia-smi -L 2>/dev/null),)
TF_VENV := .venv-tensorflow
TF_READY := $(TF_VENV)/.installed
TF_FLAG := --python tensorflow=$(TF_VENV)/bin/python
endif

.PHONY: bench test lint format clean

bench: $(VENV)/.installed $(TF_READY)
	$(BIN)/lstm-bench grid $(GRID) $(TF_FLAG)
	$(BIN)/lstm-bench report

test: $(VENV)/.tested-with $(TF_READY) lint
	$(BIN)/python -m pytest

lint: $(VENV)/.tested-with
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.tested-with
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: pyproject.toml $(PINS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt $(if $(TF_VENV),,-r requirements-tensorflow.txt)
	$(PIP) --editable .
	touch $@

$(VENV)/.tested-with: $(VENV)/.installed
	$(PIP) -r requirements-dev.txt
	touch $@

$(TF_VENV)/.installed: requirements-tensorflow.txt
	$(PYTHON) -m venv $(TF_VENV)
	$(TF_VENV)/bin/python -m pip install --quiet -r requirements-tensorflow.txt 'tensorflow[and-cuda]==2.21.0'
	touch $@

clean:
	rm -rf $(VENV) .venv-tensorflow build *.egg-info
