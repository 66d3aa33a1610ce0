# From a bare Python (3.11, 3.12 or 3.13) to results; nothing else has to be installed before.
#
#   make demo     train on the exchange rates, score, draw: outputs/demo
#   make test     run the tests
#   make dev      the environment with all development tools
#   make docs     the documentation with the reference of all modules: build/site/index.html
#   make clean    remove the environment

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PIP := $(BIN)/python -m pip install --disable-pip-version-check

.PHONY: demo test dev docs clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	@if [ -e outputs/demo/run.json ]; then \
		set -x; $(BIN)/python train.py --resume outputs/demo; \
	else \
		set -x; $(BIN)/python train.py issm --dataset exchange --output outputs/demo; \
	fi
	$(BIN)/python evaluate.py outputs/demo

# Two processes with a thread each are faster on two cores than torch's own threads.
test: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

dev: $(VENV)/installed-dev

docs: $(VENV)/installed-dev
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build

$(VENV)/created:
	@if $(BIN)/python -c '$(FITS)' 2>/dev/null; then touch $@; exit 0; fi; \
	for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3 python); do \
		if $$python -c '$(FITS)' 2>/dev/null; then \
			echo "$(VENV): $$($$python --version)"; \
			$$python -m venv --clear $(VENV) && touch $@ && exit 0; \
		fi; \
	done; \
	echo "error: no Python 3.11, 3.12 or 3.13 with venv was found; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; \
	exit 1

# An installation repeats itself when the dependencies change.
$(VENV)/installed: $(VENV)/created pyproject.toml
	$(PIP) --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/created pyproject.toml
	$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-dev: $(VENV)/created pyproject.toml
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/installed $(VENV)/installed-test
