# Needs only make, Python >= 3.11 and a package index. Every target does its own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PORT   ?= 8000

.DEFAULT_GOAL := help
.PHONY: help setup run test lint bench bench-smoke docs format lock clean

help: ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.run-ready: requirements/run.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hoglab needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/run.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.run-ready requirements/dev.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.lock
	@touch $@

setup: $(VENV)/.dev-ready ## Install everything that development needs into .venv

run: $(VENV)/.run-ready ## Start the demo: a server, an experiment, simulated users, results; then keep serving
	$(BIN)/hoglab demo --port $(PORT)

test: lint ## Run everything that CI runs: lint, types, layers, tests
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: setup ## Style, types and the layering of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Run every benchmark; each prints ratios against a reference of the same run
	$(BIN)/python -m benchmarks

bench-smoke: setup ## Run every benchmark shortly, to see that it runs
	$(BIN)/python -m benchmarks --smoke

lock: ## Pin the dependencies anew from pyproject.toml
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" --extra demo --group build pyproject.toml -o requirements/run.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -c requirements/run.lock --extra demo --group build --group dev pyproject.toml -o requirements/dev.lock

clean: ## Remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
