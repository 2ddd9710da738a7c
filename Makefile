# `make` prints this help. Everything runs in .venv, which the first target that needs it makes.
.DEFAULT_GOAL := help
SHELL := bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
RUN := PATH="$(CURDIR)/$(BIN):$$PATH"
MEMBERS := protos libs/core libs/rpc services/storage services/metadata services/manager clients/python clients/broker clients/admin deploy/standalone
SOURCES := libs services clients deploy tests protos/generate.py
TYPED := $(addsuffix /src,$(filter-out protos,$(MEMBERS))) protos/generate.py
DATA ?= data
BROKERS ?= 3
INPUT ?=
JOBS ?= 2

help: ## Print this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Set up
setup: .venv/installed ## Make .venv with every member (editable) and every tool
.venv/installed: requirements-dev.txt constraints.txt $(addsuffix /pyproject.toml,$(MEMBERS))
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Aquifer needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -c constraints.txt -r requirements-dev.txt
	@touch $@
lock: setup ## Refresh constraints.txt from what is installed
	{ echo '# Every third-party version the project is built and tested with. Refresh with `make lock`.'; \
	  $(BIN)/python -m pip freeze --exclude-editable; } > constraints.txt
	@touch .venv/installed
clean: ## Remove what builds and tests leave behind
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

java: ## Build the plugin for Apache Kafka (needs a JDK 17 and Maven)
	@if command -v mvn > /dev/null && command -v javac > /dev/null; then mvn -q -B -f clients/kafka-plugin/pom.xml package -DskipTests; \
	else echo 'The plugin for Apache Kafka is left out: it needs a JDK 17 and Maven (mvn)'; fi

##@ Check
fmt: setup ## Format the code
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix-only -q $(SOURCES)
lint: setup ## ruff and buf
	$(BIN)/ruff format --check -q $(SOURCES)
	$(BIN)/ruff check -q $(SOURCES)
	$(BIN)/buf lint
types: setup ## mypy, strict
	$(BIN)/mypy $(TYPED)
	MYPYPATH=tests $(BIN)/mypy --explicit-package-bases tests/bench
imports: setup ## The three contracts of who may import whom
	$(BIN)/lint-imports --config .importlinter
protos: setup ## Generate the typed Python of the contracts
	$(RUN) $(BIN)/python protos/generate.py
protos-check: setup ## Fail when the generated Python is out of date
	@$(RUN) $(BIN)/python protos/generate.py --check > /dev/null 2> build-protos.log || { cat build-protos.log; rm -f build-protos.log; exit 1; }
	@rm -f build-protos.log
docs: setup ## Write the generated pages of docs/
	$(BIN)/python docs/generate.py
docs-check: setup ## Fail when a generated page is out of date or a requirement has no test
	$(BIN)/python docs/generate.py --check
check: lint types imports protos-check docs-check ## All checks

##@ Test
test: setup ## Every test, against real PostgreSQL, a real S3 server and real Kafka clients
	$(RUN) $(BIN)/pytest -n $(JOBS) --dist loadgroup --reruns 1 -rfER $(ARGS)
test-unit: setup ## Tests without servers
	$(RUN) $(BIN)/pytest tests/unit tests/property $(ARGS)
test-e2e: setup ## The suite as processes, with Kafka clients
	$(RUN) $(BIN)/pytest tests/e2e $(ARGS)
test-chaos: setup ## Kills, outages and damage
	$(RUN) $(BIN)/pytest tests/chaos $(ARGS)
bench: setup ## Measure; writes build/bench.json and prints it as a table
	$(RUN) PYTHONPATH=tests $(BIN)/python -m bench $(ARGS)

##@ Run
demo: setup ## The main job: tier a real Kafka log out and read it back (INPUT=FILE for your own lines)
	$(RUN) $(BIN)/python -m aquifer_standalone demo $(if $(INPUT),--input $(INPUT))
demo-kafka: setup ## The same with a real Apache Kafka broker and the plugin (needs Java 17 and Maven)
	$(RUN) $(BIN)/python -m aquifer_standalone demo-kafka
up: setup ## Start everything on loopback, keep it running (DATA=folder, BROKERS=3)
	$(RUN) $(BIN)/aquifer-standalone up --data $(DATA) --brokers $(BROKERS)
down: setup ## Stop what `make up` started
	$(RUN) $(BIN)/aquifer-standalone down --data $(DATA)
status: setup ## Say what `make up` runs and where clients connect
	$(RUN) $(BIN)/aquifer-standalone status --data $(DATA)

.PHONY: help setup lock clean java fmt lint types imports protos protos-check docs docs-check check test test-unit test-e2e test-chaos bench demo demo-kafka up down status
