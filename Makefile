# Commands for developers and CI. `make setup` needs only Python >= 3.11 and Java >= 17.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
UV ?= uv
SEEDS ?= 10000
FIRST_SEED ?= 0
SCRIPT ?=
RECORDS ?= 1000000
FAULT_TESTS ?= tests
SOAK_SECONDS ?= 3600
CASES ?= 30000
EXAMPLES ?= 10
SEED ?= 1
PYTEST_ARGS ?=
STAMP := $(VENV)/.complete
CLIENTS ?= $(VENV)-clients
DEMO_ARGS ?=
PEER_ARGS ?=

# The first interpreter that is new enough and can create environments; PYTHON=... overrides it.
FIND_PYTHON := for p in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  && echo $$p && break; done

.PHONY: help setup clients jars classes demo test unit matrix attack bench bench-peer golden differential java-records sim faults soak lint fmt lock sbom audit-dependencies docs site clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) jars classes ## install the locked dependencies, this package and the jars into .venv
	@[ -z "$(filter setup,$(MAKECMDGOALS))" ] || echo "setup: complete. Next: make demo"

# --no-deps: a lock file is complete. Without it, pip resolves extras such as google-auth[pyopenssl] again, and
# refuses a newer version that the lock file does not have.
$(STAMP): requirements/dev.lock pyproject.toml
	@python="$$($(FIND_PYTHON) || true)"; \
	if [ -z "$$python" ]; then \
	  echo "setup: no Python >= 3.11 with venv and ensurepip found; install one" \
	    "(Debian: python3 and python3-venv) or name it: make setup PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	[ -x $(BIN)/python ] || { echo "setup: creating $(VENV) with $$python" >&2; "$$python" -m venv $(VENV); }
	@echo "setup: installing $$(grep -c '^[a-z].*==' $<) packages into $(VENV), some 3 minutes without another line" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.lock
	@echo "setup: installing icefloe itself" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clients: $(CLIENTS)/.complete ## install third-party client programs for tests, into .venv-clients

$(CLIENTS)/.complete: requirements/clients.lock | $(STAMP)
	@[ -x $(CLIENTS)/bin/python ] || $(BIN)/python -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/clients.lock
	@touch $@

jars: $(STAMP)
	@$(BIN)/python -m connect.jvm.jars resolve > /dev/null

# Optional: it makes workers start faster.
classes: jars
	@$(BIN)/python -m worker.spark.archiving --missing > /dev/null \
	  || echo "setup: the class data archive of Spark could not be created; workers start slower" >&2

demo: setup ## write a million payments into Iceberg tables and verify the tables
	@$(BIN)/icefloe demo --records $(RECORDS) $(DEMO_ARGS)

lint: $(STAMP) site ## check style, types, imports, spelling and links of the documentation
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/codespell $$(git ls-files)

fmt: $(STAMP) ## format the code, with automatic fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

unit: $(STAMP) ## run the unit tests, which start no child process
	@$(BIN)/python -m tests.lanes unit $(PYTEST_ARGS)

test: setup clients lint ## run all tests except long matrices, kill tests and benchmarks
	@$(BIN)/python -m tests.lanes suite -m "not bench and not faults and not soak and not matrix" $(PYTEST_ARGS)

matrix: setup clients ## test all the servers, formats, functions and examples of which `make test` takes some
	@$(BIN)/python -m tests.lanes suite -m "matrix and not bench and not faults and not soak" $(PYTEST_ARGS)

attack: setup ## run attacks of tenants and strangers against a running node
	@$(BIN)/pytest tests/attack $(PYTEST_ARGS)

golden: setup ## compare with the recordings of the Java sink and Kafka Connect
	@$(BIN)/python -m tests.golden.run

differential: $(STAMP) ## compare the column path with the record path: all cases, EXAMPLES=10 times the generated ones
	@DIFFERENTIAL_EXAMPLES=$(EXAMPLES) $(BIN)/pytest tests/differential $(PYTEST_ARGS)

java-records: setup ## compare random records with the Java libraries; CASES=30000 SEED=1
	@JAVA_RECORDS_CASES=$(CASES) JAVA_RECORDS_SEED=$(SEED) $(BIN)/pytest tests/contract/test_java_records.py $(PYTEST_ARGS)

# `make test` takes fewer of these seeds
sim: export PARQUET_SEEDS ?= 400
sim: export HERDER_SEEDS ?= 40
sim: $(STAMP) ## run the deterministic simulation; SEEDS=1000000, or FIRST_SEED=7 SEEDS=1, or SCRIPT=...
	@SEEDS=$(SEEDS) FIRST_SEED=$(FIRST_SEED) SCRIPT=$(SCRIPT) $(BIN)/pytest \
	  tests/simulation tests/unit/connect/node/herder/test_herder_model.py $(PYTEST_ARGS)

faults: setup ## kill and freeze real processes, at every failpoint and at random; FAULT_SEEDS=10 takes a night
	@$(BIN)/pytest $(FAULT_TESTS) -m faults $(PYTEST_ARGS)

soak: setup ## kill nodes and their processes for SOAK_SECONDS=3600, with maintenance, S3, PostgreSQL and TLS
	@SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/pytest tests/faults/test_soak.py -m soak -s $(PYTEST_ARGS)

bench: setup ## measure the figures of docs/evidence/performance.md, as a table and JSON
	@$(BIN)/pytest tests/bench -m bench -s $(PYTEST_ARGS)

bench-peer: setup ## compare the performance with the Java sink (an hour); PEER_ARGS selects cases
	@$(BIN)/python -m tests.bench.peer $(PEER_ARGS)

docs: $(STAMP) ## generate the reference pages
	@$(BIN)/python -m connect.generated_docs.configuration_page docs/reference/configuration.md
	@$(BIN)/python -m connect.generated_docs.converter_pages docs/reference/converters
	@$(BIN)/python -m connect.generated_docs.connector_schema > docs/reference/connector.schema.json
	@$(BIN)/python -m connect.generated_docs.transform_pages docs/reference/transforms
	@$(BIN)/python -m connect.generated_docs.metrics_page > docs/reference/metrics.md
	@$(BIN)/python -m connect.generated_docs.recovery_page > connect/node/rest/ui/recovery.html

lock: ## update the lock files of dependencies and jars
	@$(UV) pip compile pyproject.toml --quiet --generate-hashes --no-header \
	  --python-version 3.11 --extra all -o requirements/runtime.lock
	@$(UV) pip compile pyproject.toml --quiet --generate-hashes --no-header \
	  --python-version 3.11 --extra all --extra dev --extra build -o requirements/dev.lock
	@$(UV) pip compile requirements/clients.in --quiet --generate-hashes --no-header \
	  --python-version 3.11 -o requirements/clients.lock
	@$(UV) pip compile requirements/cli.in --quiet --generate-hashes --no-header \
	  --python-version 3.11 -c requirements/runtime.lock -o requirements/cli.lock
	@$(UV) pip compile requirements/notebook.in --quiet --generate-hashes --no-header \
	  --python-version 3.11 -c requirements/runtime.lock -o requirements/notebook.lock
	@$(UV) pip compile requirements/audit.in --quiet --generate-hashes --no-header \
	  --python-version 3.11 -o requirements/audit.lock
	@$(MAKE) setup
	@$(BIN)/python -m connect.jvm.jars lock

sbom: $(STAMP) ## write the packages and jars of a node as CycloneDX to build/sbom.cdx.json
	@$(BIN)/python .ci/dependencies.py sbom

audit-dependencies: sbom ## check the packages for known vulnerabilities
	@$(BIN)/python .ci/dependencies.py audit

site: $(STAMP) ## build the documentation as a site in build/site; a dead link is an error
	@mkdir -p build
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict > build/site.log 2>&1 || { cat build/site.log; exit 1; }

clean: ## remove environments, class archives and build output; the jar cache is kept
	@rm -rf "$${ICEFLOE_CACHE_DIR:-$${XDG_CACHE_HOME:-$$HOME/.cache}/icefloe}/classes"
	@rm -rf $(VENV) $(CLIENTS) .venv-audit build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
