# make demo   set up, then the whole loop on a virtual drone, and one report
# make test   set up and run the quick tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Tests start many programs, and without bytecode each of them compiles all of Isthmus again. Empty is not set.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: env demo test test-all coverage check lint types imports bench clean

env: $(STAMP)

$(STAMP): pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || \
	  { echo "Isthmus needs Python 3.11 or newer; try make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 2; }
	@echo "1/3  an environment of its own in $(VENV) (a few seconds)"
	@$(PYTHON) -m venv $(VENV)
	@echo "2/3  $$(grep -c == requirements.txt) packages into it: 2 GB on disk, 2 to 5 minutes the first time and longer over a slow network"
	@$(PIP) -r requirements.txt
	@echo "3/3  Isthmus itself (half a minute)"
	@$(PIP) --no-deps --editable .
	@touch $(STAMP)
	@echo "ready: source $(BIN)/activate puts the command isthmus on your path"

demo: env
	$(BIN)/isthmus loop

test: env
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

test-all: env
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

coverage: env
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow" --cov=isthmus --cov-report=term --cov-report=html:build/coverage

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: env
	$(BIN)/basedpyright

imports: env
	$(BIN)/lint-imports

check: lint types imports test

bench: env
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build dist src/*.egg-info
