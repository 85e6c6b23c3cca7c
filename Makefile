# headgate: `make` alone lists the targets. Every target that needs it sets the machine up first (scripts/setup.sh); a second run does nothing.

VENV := .venv
BIN := $(VENV)/bin
# a process for each of two cores; the tests of a file stay together (tests/conftest.py)
ABREAST := -n 2 --dist loadfile --no-loadscope-reorder

# Where this is set, as in many containers, each process would compile all modules: 6 s for pytest, 1 s for each start of a node.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick test-all soak check format lock wheel bench clean

help:  ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Set the machine up: .venv, locked packages, Java 17, PostgreSQL 15, the Delta jars (S3=1, GS=1, AZURE=1: those for the store too)
	@bash scripts/setup.sh

demo: setup  ## The main job: one filtered table PostgreSQL → node → node → PostgreSQL (KEEP=1 leaves the servers running)
	@$(BIN)/headgate demo $(if $(KEEP),--keep) $(DEMO)

test: setup  ## The test suite, with the checks beside it (PYTEST=… for options, e.g. PYTEST="-k settings")
	@bash scripts/test.sh $(ABREAST) $(PYTEST)

test-quick: setup  ## The tests that need no server, for the minute between two edits
	@$(BIN)/python -m pytest -n 2 --quick $(PYTEST)

test-all: setup  ## Everything at length, some hours: a line for each part with its result and time (PARTS=… some; RESUME=1 continues)
	@bash scripts/test_all.sh $(PARTS)

soak: setup  ## A chain of servers under load and faults, compared at quiet points (MINUTES=120)
	@$(BIN)/python -m tests.system.soak --minutes $(or $(MINUTES),5) $(SOAK)

check: setup  ## Format, lint, types, floors, dead code, tests that declare a long time and are not marked slow
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/vulture
	@$(BIN)/python -m pytest --collect-only -q >/dev/null

format: setup  ## Format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup  ## Lock the packages anew (requirements*.txt)
	@bash scripts/lock.sh

wheel: setup  ## Make dist/headgate-….whl and dist/pyspark_headgate-….whl
	@rm -rf dist && $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . ./pyspark-headgate

bench: setup  ## Measure a node beside native PostgreSQL (BENCH=… for options)
	@$(BIN)/python -m bench $(BENCH)

clean:  ## Remove what the targets made, .venv included
	rm -rf $(VENV) .setup .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
