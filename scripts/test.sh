#!/usr/bin/env bash
# `make test`: the tests, with `make check` beside them. What the checks say is shown at the end, if one fails.
#
# Usage: scripts/test.sh [options of pytest]
set -euo pipefail
cd "$(dirname "$0")/.."

said=$(mktemp)
trap 'rm -f "$said"' EXIT
make --no-print-directory check >"$said" 2>&1 &
checks=$!

tests=0
.venv/bin/python -m pytest "$@" || tests=$?
if wait "$checks"; then
    echo "make check: passed"
else
    cat "$said"
    echo "make check: failed"
    exit 1
fi
exit "$tests"
