#!/usr/bin/env bash
# `make test-all`: all tests at length, part by part. Each part is one process, and two parts run at once (ABREAST=1: one), those that take
# longest first. It prints one line for each part with its result and time when the part ends, and continues after a part has failed. The
# output of a part is in .setup/test-all/PART.log.
#
# The parts take some hours. With RESUME=1 a run skips the parts that have passed on this commit, so that it can be interrupted.
#
# Usage: [RESUME=1] [ABREAST=1] scripts/test_all.sh [part…]
set -uo pipefail
cd "$(dirname "$0")/.."

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
failed=$logs/failed
: >"$failed"
wanted=("$@")
abreast=${ABREAST:-2}

# Starts a part as soon as fewer than $abreast parts run.
part() {
    local name=$1
    [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $name "* ]] || return 0
    if [ "${RESUME:-}" ] && grep -qx "$commit $name" "$passed"; then
        printf '%-16s       -  has passed on this commit\n' "$name"
        return 0
    fi
    while [ "$(jobs -rp | wc -l)" -ge "$abreast" ]; do wait -n; done
    run_part "$@" &
}

run_part() {
    local name=$1 began=$SECONDS result=passed
    shift
    if "$@" >"$logs/$name.log" 2>&1; then
        [[ $commit == *-dirty ]] || echo "$commit $name" >>"$passed"
    else
        result="failed ($logs/$name.log)"
        echo "$name" >>"$failed"
    fi
    printf '%-16s %5d s  %s  %s\n' "$name" $((SECONDS - began)) "$result" "$(grep -E '^[=0-9].*(passed|failed)' "$logs/$name.log" | tail -n 1 | tr -d =)"
}

tests() { .venv/bin/python -m pytest --timeout 900 "$@"; }

failpoints() { tests --all "$@" tests/system/test_failpoints.py; }

# Measures the branch coverage of the suite and of some slow tests. The log ends with the coverage by package. `coverage html` shows the lines from the data that stays in
# .setup/test-all/coverage.
coverage() (
    local coverage=.venv/bin/coverage result=0
    export COVERAGE_FILE=$PWD/$logs/coverage/data PYTHONPATH=$PWD
    rm -rf "$logs/coverage" && mkdir "$logs/coverage"
    "$coverage" run -m pytest --timeout 900 || result=$?
    "$coverage" run -m pytest --timeout 900 --all -m slow "${by_slow_tests[@]}" || result=$?
    "$coverage" combine --quiet
    "$coverage" json --quiet -o "$logs/coverage/coverage.json"
    .venv/bin/python -m tools.coverage_by_package "$logs/coverage/coverage.json"
    exit "$result"
)

# the folders of tests, first those that take longest
folders() {
    printf 'tests/%s\n' server catalog subscriber
    printf '%s\n' tests/*/test_*.py | xargs -n 1 dirname | uniq | grep -vxE 'tests/(server|catalog|subscriber)'
}

part check make --no-print-directory check
part failpoints failpoints
for folder in $(folders); do
    part "tests-${folder#tests/}" tests --all --ignore tests/system/test_failpoints.py "$folder"
done
part coverage coverage
part s3-faults failpoints --on s3
part s3 tests --on s3 "${data_path[@]}"
part gs tests --on gs "${data_path[@]}"
part tasks tests --on tasks "${data_path[@]}" tests/rowfilter
part cluster tests --on cluster --timeout 1800 "${data_path[@]}" tests/rowfilter
wait
! [ -s "$failed" ]
