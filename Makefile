# Needs only make, Python >= 3.11 and a package index. Every target does its own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PORT   ?= 8000

# Without compiled files every server and every process of a test run compiles hoglab and all tests again.
unexport PYTHONDONTWRITEBYTECODE

# What runs on PostgreSQL once more; tests/storage, tests/faults/test_two_servers.py and tests/e2e/test_postgres.py always do.
ON_POSTGRES := tests/contract/shared tests/contract/experiments tests/contract/functions tests/people tests/accounts \
	tests/flags tests/experiments tests/actions tests/http/test_idempotency.py \
	$(addprefix tests/e2e/test_,erasure.py readme.py second_organization.py) \
	$(addprefix tests/clients/test_,posthog_python.py generated_client.py)
# What runs on a server that is split into five processes: a core, two edges and two delivers behind a router.
ON_SPLIT := $(addprefix tests/clients/test_,posthog_python.py posthog_node.py posthog_js.py site_functions.py \
	experiment_loop.py) tests/contract/functions tests/contract/experiments/test_flag_linkage.py \
	tests/e2e/test_incoming_webhook.py

# Tests that list modules, fields, exemptions and ceilings of all rooms: a change of one room often breaks them.
LISTS := tests/house tests/contract/openapi tests/contract/shared \
	$(addprefix tests/analysis/test_,live.py way.py) $(addprefix tests/storage/test_,durability.py migrations.py) \
	$(addprefix tests/faults/test_,ingestion_steps.py damaged_files.py) tests/e2e/test_walks.py tests/cli/test_reference.py

.DEFAULT_GOAL := help
.PHONY: help setup run test suite lists test-engines test-browsers test-faults test-processes test-postgres test-split ui test-openapi lint bench bench-smoke soak validate-statistics docs format lock clean

help: ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

$(VENV)/.run-ready: requirements/run.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hoglab needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/run.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.run-ready requirements/dev.lock requirements/references.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/references.lock
	@touch $@

# The suites that drive real JavaScript are skipped where there is no npm.
tests/node/node_modules/.package-lock.json: tests/node/package-lock.json
	@if command -v npm >/dev/null; then npm ci --prefix tests/node --ignore-scripts --loglevel=error && touch $@; fi

setup: $(VENV)/.dev-ready tests/node/node_modules/.package-lock.json ## Install everything that development needs

run: $(VENV)/.run-ready ## Start the demo: a server, an experiment, simulated users, results; then keep serving
	$(BIN)/hoglab demo --port $(PORT)

# Many tests wait for servers and browsers longer than they compute.
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((cores + cores / 2)))

# A file is one worker's, for its tests share what they start; files with slow tests begin first.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: lint suite ## Check style, types and layers, then run the tests of language, numbers, API and embedded storage

suite: setup
	$(PYTEST) --target test --max-processor-s $(if $(filter all,$(HOGLAB_TEST_EXAMPLES)),30,5)

lists: lint ## Check style, types and layers, and run the tests that list something of every room (a minute or two)
	$(BIN)/python -m pytest -n $(WORKERS) $(LISTS)

test-engines: setup ## Run the tests of storage and results on ClickHouse's engine and on PostgreSQL (skipped where these are missing), and of results that go on from stored ones
	$(PYTEST) --target engines

test-browsers: setup ## Run the tests of the web UI in Chromium, and of PostHog's SDKs in their own languages
	$(PYTEST) --target browsers

test-faults: setup ## Kill servers, fill disks, damage and restore files, run hostile programs, and follow servers from end to end
	$(PYTEST) --target faults

# The suites that start a broker are skipped where there is no Maven to fetch it.
tests/jars/.ready: tests/jars/pom.xml
	@if command -v mvn >/dev/null; then mvn --quiet --batch-mode --file tests/jars/pom.xml dependency:copy-dependencies \
	-DincludeScope=runtime -DoutputDirectory=. && touch $@; fi

test-processes: setup tests/jars/.ready ## Run tests of servers of several processes, on a broker of Kafka, and of what docs/operate.md says to operators
	$(PYTEST) -n $$(($(WORKERS) + 1)) --target processes

test-postgres: setup ## Run tests of the API, of accounts, flags, experiments, functions and people on PostgreSQL
	HOGLAB_TEST_DATABASE=postgresql $(PYTEST) $(ON_POSTGRES)

test-split: setup ## Run tests of SDKs, functions and webhooks on a server of five processes on PostgreSQL
	HOGLAB_TEST_DATABASE=postgresql HOGLAB_TEST_SHAPE=split $(PYTEST) $(ON_SPLIT)

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

# Seconds for which each attack of a hostile neighbour goes on.
ATTACK_S ?= 60

soak: setup ## Kill the server and the processes of functions 200 times each, cut the power 200 times, let 10,000 retries be due at once, try as many results on ClickHouse as on DuckDB, attack a server for a minute in each of 15 ways (an hour and a half)
	HOGLAB_TEST_SEED=random HOGLAB_TEST_KILLS=200 HOGLAB_TEST_BODY_KILLS=200 HOGLAB_TEST_RETRIES=10000 HOGLAB_TEST_HOSTILE=99 HOGLAB_TEST_STORM=300 HOGLAB_TEST_POWER_CUTS=200 HOGLAB_TEST_DAMAGES=100 HOGLAB_TEST_BACKUPS=20 HOGLAB_TEST_PROCESS_KILLS=5 HOGLAB_TEST_CLUSTER_FAULTS_S=600 HOGLAB_TEST_SNAPSHOT_S=60 HOGLAB_TEST_ABUSE_S=180 $(BIN)/python -m pytest tests/faults tests/backup
	HOGLAB_TEST_CLICKHOUSE_EXAMPLES=60 $(BIN)/python -m pytest tests/analysis -k clickhouse
	$(BIN)/python -m benchmarks.hostile_neighbours --seconds $(ATTACK_S)

validate-statistics: setup ## Simulate what docs/statistics.md promises (about 15 minutes) and write its tables anew
	$(BIN)/python -m tests.statistics.simulation --write docs/statistics.md

ui/node_modules/.package-lock.json: ui/package-lock.json
	npm ci --prefix ui --ignore-scripts --loglevel=error && touch $@

ui: ui/node_modules/.package-lock.json ## Check the web UI and build it into src/hoglab/ui/static; needs npm
	npm run --silent --prefix ui types
	npm run --silent --prefix ui check
	npm run --silent --prefix ui build

docs: setup ## Generate docs/hog.md, docs/templates, docs/reference and docs/api/openapi.json from what they describe
	$(BIN)/python -m hoglab.functions.documents.language docs/chapters/hog.md tests/hog/oracles docs/hog.md
	$(BIN)/python -m hoglab.functions.documents.template_pages docs/templates
	$(BIN)/python -m hoglab.cli.reference docs/reference
	$(BIN)/hoglab openapi --output docs/api/openapi.json

test-openapi: setup ## Try the API with 20,000 requests that Schemathesis makes up from its document
	HOGLAB_OPENAPI_CASES=20000 $(BIN)/python -m pytest -n auto tests/contract/openapi/test_schemathesis.py

lock: ## Pin the dependencies anew from pyproject.toml
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" --extra demo --group build pyproject.toml -o requirements/run.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -c requirements/run.lock --extra demo --extra postgres --extra clickhouse --extra kafka --group build --group dev pyproject.toml -o requirements/dev.lock

clean: ## Remove what the other targets made
	rm -rf $(VENV) tests/node/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
