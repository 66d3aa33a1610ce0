# From a bare Python (3.11, 3.12 or 3.13) to results; nothing else has to be installed before.
#
#   make demo         train on the exchange rates, score, draw: outputs/demo
#   make test         run the tests
#   make test-all     run them on each Python from 3.11 to 3.13 that is found
#   make dev          the environment with all development tools
#   make docs         the documentation with the reference of all modules: build/site/index.html
#   make release      sdist and wheel, checked and tried in bare environments: build/release
#   make constraints  renew the tested versions in constraints/ from today's releases
#   make clean        remove the environments
#
# PYTHON=python3.13 chooses another Python; PYTHONS="/a/python /b/python" those of test-all and constraints.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
VERSION := import sys; print("%d.%d.%d" % sys.version_info[:3])
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# The versions which the tests have passed with, by version of Python.
CONSTRAINTS = constraints/python$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
# What pip calls these packages differs by platform: pyproject.toml bounds torch, and torch the others.
UNBOUND := ^(torch|triton|nvidia-.*|cuda-.*|tsforecast)( |=|$$)
PYTHONS ?= python3.11 python3.12 python3.13 $(wildcard $(HOME)/.pyenv/versions/3.1[123].*/bin/python)

.PHONY: demo test test-all dev docs release constraints clean chosen-python
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	@if [ -e outputs/demo/run.json ]; then \
		set -x; $(BIN)/python train.py --resume outputs/demo; \
	else \
		set -x; $(BIN)/python train.py auto --dataset exchange --output outputs/demo; \
	fi
	$(BIN)/python evaluate.py outputs/demo

# Two processes with a thread each are faster on two cores than torch's own threads.
test: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

dev: $(VENV)/installed-dev

docs: $(VENV)/installed-dev
	$(BIN)/mkdocs build --strict

# OWNER=account names the account which the repository is published under.
release: $(VENV)/created
	$(BIN)/python .ci/release.py --owner "$(OWNER)" $(PYTHONS)

# Every Python once, also where two names lead to it. All run, and a failure of any is one of the whole.
test-all constraints:
	@done=" "; failed=""; \
	for python in $(PYTHONS); do \
		$$python -c '$(FITS)' 2>/dev/null || continue; \
		version=$$($$python -c '$(VERSION)'); \
		case "$$done" in *" $$version "*) continue;; esac; \
		done="$$done$$version "; \
		$(MAKE) --no-print-directory $@-one VENV=build/python$$version PYTHON=$$python || failed="$$failed $$version"; \
	done; \
	echo "$@: Python$$done"; \
	if [ "$$done" = " " ]; then echo "error: none of $(PYTHONS) is Python 3.11, 3.12 or 3.13" >&2; exit 1; fi; \
	if [ -n "$$failed" ]; then echo "error: failed on Python$$failed" >&2; exit 1; fi

test-all-one: test

constraints-one: $(VENV)/created
	$(PIP) --upgrade --upgrade-strategy eager --editable '.[dev]'
	@mkdir -p constraints; file=$(CONSTRAINTS); \
	echo "# Versions which the tests pass with; \`make constraints\` renews them." > $$file.new; \
	$(BIN)/python -m pip freeze --exclude-editable | grep -Ev '$(UNBOUND)' >> $$file.new; \
	mv $$file.new $$file; echo "wrote $$file"

clean:
	rm -rf $(VENV) build

# Asked for by name, a Python takes the place of another one that the environment was made with.
$(VENV)/created: $(if $(PYTHON),chosen-python)
	@if $(BIN)/python -c '$(FITS)' 2>/dev/null; then \
		if [ -z "$(PYTHON)" ] || [ "$$($(BIN)/python -c '$(VERSION)')" = "$$($(PYTHON) -c '$(VERSION)')" ]; then \
			[ -e $@ ] || touch $@; exit 0; \
		fi; \
	fi; \
	for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3 python); do \
		if $$python -c '$(FITS)' 2>/dev/null; then \
			echo "$(VENV): $$($$python --version)"; \
			$$python -m venv --clear $(VENV) && touch $@ && exit 0; \
		fi; \
	done; \
	echo "error: no Python 3.11, 3.12 or 3.13 with venv was found; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; \
	exit 1

# An installation repeats itself when the dependencies change.
$(VENV)/installed: $(VENV)/created pyproject.toml $(wildcard constraints/*.txt)
	$(PIP) --constraint $(CONSTRAINTS) --editable '.[baselines]'
	@touch $@

$(VENV)/installed-test: $(VENV)/created pyproject.toml $(wildcard constraints/*.txt)
	$(PIP) --constraint $(CONSTRAINTS) --editable '.[test]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-dev: $(VENV)/created pyproject.toml $(wildcard constraints/*.txt)
	$(PIP) --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@ $(VENV)/installed $(VENV)/installed-test
