# Every target sets up what it needs; `make help` lists them.
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.ready

.PHONY: help setup demo test cover style types faults oracle bench docs

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv with every pinned dependency

$(STAMP): pyproject.toml constraints.txt
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install --quiet -c constraints.txt -e '.[dev,cache,postgres]'
	touch $(STAMP)

style: setup ## ruff: lint and format check
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: setup ## mypy --strict over every package
	$(PY) -m mypy

test: setup ## the tests, against the real peers
	$(PY) -m pytest

cover: setup ## every branch of the change-source protocol is tested
	$(PY) -m pytest tests/protocol --ignore=tests/protocol/sync --cov --cov-config=tests/protocol/coverage.toml
