# Two commands do everything on a machine that has Python, a C++ compiler and make:
#
#   make bench    environment, install, the default grid, its report
#   make test     environment, install, lint, types, tests
#
# `make study` fills docs/study.md, the README's results and counts in other pages from results/.
#
# On a CUDA machine TensorFlow gets an environment of its own: the CUDA 12 and CUDA 13 packages of
# the two frameworks overwrite each other's files in one.

PYTHON ?= python3
GRID ?= grids/default.yaml
CORES ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
KERNELS := lstm_kernels/src/lstm_kernels
SOURCES := $(wildcard pyproject.toml setup.py deepbench_ext/* lstm_kernels/*.* $(KERNELS)/*.?pp $(KERNELS)/cpu/*.* \
    $(KERNELS)/cpu/isa/*.* $(KERNELS)/gpu/host/*.*)

ifneq ($(shell nvidia-smi -L 2>/dev/null),)
TF_VENV := .venv-tensorflow
TF_READY := $(TF_VENV)/.installed
TF_FLAG := --python tensorflow=$(TF_VENV)/bin/python
endif

FRAMEWORKS := requirements.txt $(if $(TF_VENV),,requirements-tensorflow.txt)
PINS := $(FRAMEWORKS) requirements-openvino.txt
TOOLS := $(if $(filter-out bench study,$(MAKECMDGOALS)),$(VENV)/.tools)

# Frameworks are imported in dozens of processes: from bytecode in a second, from source in many.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: bench test ready sanitized test-cluster suite study site lint format sanitize wheel clean

bench: $(VENV)/.installed $(TF_READY)
	$(BIN)/lstm-bench grid $(GRID) $(TF_FLAG) --skip-missing

test: ready $(TF_READY)
	$(MAKE) --jobs=3 suite lint sanitize

# All that `make test` compiles or installs; compilers work while packages are fetched and unpacked.
ready: $(BIN)/python
	$(MAKE) --jobs=3 $(VENV)/.tested-with sanitized

suite: $(VENV)/.tested-with $(TF_READY)
	$(BIN)/python -m pytest --numprocesses=$(CORES) --dist=loadgroup --durations=10
	$(BIN)/python -m pytest --numprocesses=$(CORES) --dist=loadgroup lstm_kernels/tests

# Starts Ray clusters on this machine; Ray, 260 MB, is installed for it.
test-cluster: $(VENV)/.tested-with
	$(PIP) -r requirements-ray.txt
	$(BIN)/python -m pytest --cluster tests/features/cluster --durations=5

study: $(VENV)/.installed
	$(BIN)/python -m study

# build/site: docs/, the README, the API and the newest run.
site: $(VENV)/.tested-with
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(VENV)/.tested-with
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

sanitize: $(VENV)/.tested-with
	PYTHON=$(BIN)/python tests/sanitize.sh

sanitized: $(VENV)/.tools
	PYTHON=$(BIN)/python tests/sanitize.sh build

# Both packages for machines without a compiler, the benchmark's for this Python: a minute or two for each machine that
# WHEELS names. The workflow `wheels` builds those of all Pythons.
WHEELS ?= $(shell uname -m)
wheel: $(VENV)/.tools
	$(PIP) ziglang==0.17.0 auditwheel==6.8.2 wheel==0.48.0
	for machine in $(WHEELS); do tools/wheel.sh $(BIN)/python $$machine || exit 1; done

format: $(VENV)/.tested-with
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The two largest wheels are unpacked side by side, and what they depend on comes after them.
$(VENV)/.largest: $(FRAMEWORKS) | $(BIN)/python
	@echo "installing the tool and its frameworks into $(VENV): some minutes, some gigabytes"
	grep -hE '^(torch|tensorflow)==' $(FRAMEWORKS) | xargs --max-procs=2 --max-args=1 $(PIP) --no-deps --no-warn-conflicts
	touch $@

# Some of the rest comes with the tools too, where there are any: one pip after the other.
$(VENV)/.packages: $(PINS) $(VENV)/.largest | $(TOOLS)
	$(PIP) $(FRAMEWORKS:%=-r %)
	$(PIP) -r requirements-openvino.txt || echo "no OpenVINO for this machine: going on without"
	touch $@

# Compiled now, in parallel, so that the first run does not count it as time to import.
$(VENV)/.installed: $(VENV)/.packages $(SOURCES)
	$(PIP) --editable ./lstm_kernels --editable .
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib || true
	touch $@

# For `make test` the extensions are built while the frameworks are unpacked.
$(VENV)/.tested-with: $(VENV)/.packages $(VENV)/.built
	touch $@

$(VENV)/.tools: requirements-dev.txt requirements-docs.txt | $(BIN)/python
	$(PIP) --no-warn-conflicts -r requirements-dev.txt -r requirements-docs.txt
	touch $@

$(VENV)/.built: $(VENV)/.tools $(SOURCES)
	$(PIP) --no-build-isolation --no-deps --editable ./lstm_kernels --editable .
	touch $@

ifdef TF_VENV
$(TF_READY): requirements-tensorflow.txt
	$(PYTHON) -m venv $(TF_VENV)
	$(TF_VENV)/bin/python -m pip install --quiet -r $< 'tensorflow[and-cuda]'
	touch $@
endif

clean:
	rm -rf $(VENV) .venv-tensorflow build dist *.egg-info lstm_kernels/build lstm_kernels/src/*.egg-info
