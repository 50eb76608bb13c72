# make demo   set up, then the whole loop on a virtual drone, and one report
# make test   set up and run the quick tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# Tests start many programs, and without bytecode each of them compiles all of Isthmus again. Empty is not set.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: env demo test test-all coverage check lint types imports bench clean

env: $(STAMP)

$(STAMP): pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || \
	  { echo "Isthmus needs Python 3.11 or newer; try make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(STAMP)

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
