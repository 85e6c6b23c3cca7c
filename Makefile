# headgate: `make` alone lists the targets. Every target that needs it sets the machine up first (scripts/setup.sh); a second run does nothing.

VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format lock bench clean

help:  ## List the targets
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Set the machine up: .venv, locked packages, Java 17, PostgreSQL 15, the Delta jars
	@bash scripts/setup.sh

demo: setup  ## The main job: one filtered table PostgreSQL → node → node → PostgreSQL (KEEP=1 leaves the servers running)
	@$(BIN)/headgate demo $(if $(KEEP),--keep) $(DEMO)

test: setup check  ## The whole test suite (PYTEST=… for options, e.g. PYTEST="-k settings")
	@$(BIN)/python -m pytest $(PYTEST)

check: setup  ## Format, lint, types, floors
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: setup  ## Format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup  ## Lock the packages anew (requirements*.txt)
	@bash scripts/lock.sh

bench: setup  ## Measure a node beside native PostgreSQL (BENCH=… for options)
	@$(BIN)/python -m bench $(BENCH)

clean:  ## Remove what the targets made, .venv included
	rm -rf $(VENV) .setup .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
