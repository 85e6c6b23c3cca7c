#!/usr/bin/env bash
# Writes the locks: every package with its version and hashes, for Python 3.11 and up on Linux. No index, host or machine path gets into them.
#   requirements.txt        what a node needs
#   requirements-dev.txt    that and the tools of `make check` and `make test`
#   requirements-readers.txt  the readers of the tables that tests/system/test_readers.py installs into an environment of their own
#   requirements-clients.txt  the drivers that tests/clients installs so
#   requirements-programs.txt  dbt and Debezium's engine, which its slow tests install
#   requirements-guide.txt  Spark and Delta Lake, for the pages of docs/guide
#   requirements-orchestrators.txt  Airflow and Dagster, for the sensors
#   requirements-build.txt  what installing from source distributions (pyspark) and the editable install need
set -euo pipefail
cd "$(dirname "$0")/.."

uv="uv"
command -v "$uv" >/dev/null || uv=".venv/bin/uv"
command -v "$uv" >/dev/null || { .venv/bin/python -m pip install --quiet uv; uv=".venv/bin/uv"; }

compile() {
    "$uv" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
        --no-header --no-annotate --custom-compile-command "make lock" "$@"
}
compile pyproject.toml -o requirements.txt
compile pyproject.toml --group dev -o requirements-dev.txt
compile --group build -o requirements-build.txt
compile --group readers -o requirements-readers.txt
compile --group clients -o requirements-clients.txt
compile --group guide -o requirements-guide.txt
compile --group orchestrators -o requirements-orchestrators.txt
compile --group programs --no-strip-extras -o requirements-programs.txt
