#!/usr/bin/env bash
# `make test-all`: all tests at length, part by part. It prints one line for each part with its result and time, and continues after a
# part has failed. The output of a part is in .setup/test-all/PART.log.
#
# The parts take some hours. With RESUME=1 a run skips the parts that have passed on this commit, so that it can be interrupted.
#
# Usage: [RESUME=1] scripts/test_all.sh [part…]
set -uo pipefail
cd "$(dirname "$0")/.."

abreast=(-n 2 --dist loadfile --no-loadscope-reorder)
# what writes, reads and streams the files of tables
data_path=(tests/storage tests/changes tests/subscriber tests/publisher tests/walsender tests/system)
# what the suite leaves to slow tests for the most part
by_slow_tests=(tests/backup tests/check tests/cli tests/expression tests/server/test_metrics.py tests/system/test_main_job.py)
logs=.setup/test-all
mkdir -p "$logs"
# the parts that have passed, one a line: commit and part
passed=$logs/passed
touch "$passed"
commit=$(git describe --always --dirty --abbrev=40 --exclude '*')
failed=()

part() {
    local name=$1 began=$SECONDS result=passed
    shift
    [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $name "* ]] || return 0
    if [ "${RESUME:-}" ] && grep -qx "$commit $name" "$passed"; then
        printf '%-16s       -  has passed on this commit\n' "$name"
        return 0
    fi
    if "$@" >"$logs/$name.log" 2>&1; then
        [[ $commit == *-dirty ]] || echo "$commit $name" >>"$passed"
    else
        result="failed ($logs/$name.log)"
        failed+=("$name")
    fi
    printf '%-16s %5d s  %s  %s\n' "$name" $((SECONDS - began)) "$result" "$(grep -E '^[=0-9].*(passed|failed)' "$logs/$name.log" | tail -n 1 | tr -d =)"
}

tests() { .venv/bin/python -m pytest "${abreast[@]}" "$@"; }

# The cases of this file are independent, so both processes run them.
failpoints() { .venv/bin/python -m pytest -n 2 --dist load --timeout 900 --all "$@" tests/system/test_failpoints.py; }

# Measures the branch coverage of the suite and of some slow tests. The log ends with the coverage by package. `coverage html` shows the lines from the data that stays in
# .setup/test-all/coverage.
coverage() (
    local coverage=.venv/bin/coverage result=0
    export COVERAGE_FILE=$PWD/$logs/coverage/data PYTHONPATH=$PWD
    rm -rf "$logs/coverage" && mkdir "$logs/coverage"
    "$coverage" run -m pytest "${abreast[@]}" --timeout 900 || result=$?
    "$coverage" run -m pytest "${abreast[@]}" --timeout 900 --all -m slow "${by_slow_tests[@]}" || result=$?
    "$coverage" combine --quiet
    "$coverage" json --quiet -o "$logs/coverage/coverage.json"
    .venv/bin/python -m tools.coverage_by_package "$logs/coverage/coverage.json"
    exit "$result"
)

wanted=("$@")
part check make --no-print-directory check
for folder in $(printf '%s\n' tests/*/test_*.py | xargs -n 1 dirname | uniq); do
    part "tests-${folder#tests/}" tests --all --timeout 900 --ignore tests/system/test_failpoints.py "$folder"
done
part failpoints failpoints
part coverage coverage
part tasks tests --on tasks --timeout 900 "${data_path[@]}" tests/rowfilter
part cluster tests --on cluster --timeout 1800 "${data_path[@]}" tests/rowfilter
part s3 tests --on s3 --timeout 900 "${data_path[@]}"
part s3-faults failpoints --on s3
part gs tests --on gs --timeout 900 "${data_path[@]}"
[ ${#failed[@]} -eq 0 ]
