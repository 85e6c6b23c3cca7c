#!/usr/bin/env bash
# Sets a Debian 12 machine up for headgate: `make setup`, and the first step of the other targets.
#
#   1. Debian packages that are missing: Python 3.11 and up with venv, a Java 17 runtime, PostgreSQL 15 (needs root)
#   2. .venv with the locked packages (requirements-dev.txt, hashes checked) and headgate and pyspark-headgate themselves, editable
#   3. the Delta jars from Maven Central into .venv/share/headgate/jars (Spark's own resolver, digests checked); with S3=1, GS=1,
#      AZURE=1 also those that a data location in S3, in Google's, in Azure's storage needs, which a node fetches itself when it is first
#      started with one
#   4. the archive of Java's classes with which a node starts in half the time (.venv/share/headgate, 190 MB)
#
# Each step is left out when it has been done; when nothing has changed since the last run the whole script takes some milliseconds.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=.setup/stamp
java_major=17
newest_java=23  # Hadoop does not run on a newer one
postgresql=15
postgresql_bin=/usr/lib/postgresql/$postgresql/bin

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$1"; shift; for line in "$@"; do printf '       %s\n' "$line" >&2; done; exit 1; }

# ---- nothing to do? -------------------------------------------------------------------------------------------
project=$(sed '/^\[tool\./,$d' pyproject.toml)
wanted=$({ printf '%s' "$project"; cat scripts/setup.sh pyspark-headgate/pyproject.toml requirements-build.txt requirements-dev.txt src/headgate/storage/{archive,spark/application/jars,spark/application/class_archive}.py src/headgate/storage/spark/application/jars.csv; } | sha256sum)
has_java() { [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] || command -v java >/dev/null; }
has_postgresql() { [ -x "$postgresql_bin/initdb" ] && [ -x "$postgresql_bin/psql" ] && command -v psql >/dev/null; }
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted $PWD" ] && [ -x "$venv/bin/headgate" ] && "$venv/bin/python" -c '' 2>/dev/null \
    && has_java && has_postgresql; then
    [ -z "${S3:-}${GS:-}${AZURE:-}" ] || "$venv/bin/python" -m headgate.storage.spark.application.jars ${S3:+s3} ${GS:+gs} ${AZURE:+azure}
    exit 0
fi

# ---- 1. Debian packages -----------------------------------------------------------------------------------------
find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null \
            && "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
}
java_version() {
    local java=java
    [ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
    "$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

missing=()
python=$(find_python)
[ -n "$python" ] || missing+=(python3 python3-venv)
fits_java() { has_java && [ "$(java_version)" -ge "$java_major" ] 2>/dev/null && [ "$(java_version)" -le "$newest_java" ]; }
# Ends if another Java than Debian's, which is installed, comes first.
find_java() {
    local home
    home=/usr/lib/jvm/java-$java_major-openjdk-$(dpkg --print-architecture 2>/dev/null)
    fits_java || [ ! -x "$home/bin/java" ] || die "Java $(java_version) comes first, but Spark needs Java $java_major to $newest_java; type this and run make again:" \
        "export JAVA_HOME=$home"
}
find_java
fits_java || missing+=("openjdk-$java_major-jre-headless")
command -v openssl >/dev/null || missing+=(openssl)  # makes the certificates of tests
has_postgresql || missing+=("postgresql-$postgresql" "postgresql-client-$postgresql")
# only the tests of power loss need it, and say so where it is missing: not worth an apt-get of its own
command -v strace >/dev/null || [ ${#missing[@]} -eq 0 ] || missing+=(strace)

install_packages() {
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0)
    say "installing ${missing[*]}"
    "${apt[@]}" update >/dev/null
    if [[ " ${missing[*]} " == *" postgresql-$postgresql "* ]]; then
        # Debian's package makes and starts a cluster of its own unless it is told not to; nobody needs one here
        "${apt[@]}" install --no-install-recommends postgresql-common >/dev/null
        mkdir -p /etc/postgresql-common
        touch /etc/postgresql-common/createcluster.conf
        sed -i '/^ *#* *create_main_cluster/d' /etc/postgresql-common/createcluster.conf
        echo 'create_main_cluster = false' >>/etc/postgresql-common/createcluster.conf
    fi
    "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null
}
if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        die "missing: ${missing[*]} (names of Debian's packages); install them and run make again"
    elif [ "$(id -u)" != 0 ]; then
        die "missing: ${missing[*]}. Installing them needs root; type this and run make again:" \
            "sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
    fi
    install_packages || die "could not install ${missing[*]}; see apt-get's message above"
    python=$(find_python)
    [ -n "$python" ] || die "could not find Python 3.11 or newer with its venv module, even after installing it"
    find_java
    has_postgresql || die "could not find PostgreSQL $postgresql in $postgresql_bin, even after installing it"
fi

# ---- 2. the virtual environment ----------------------------------------------------------------------------------
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    say "making $venv with $("$python" --version)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet)
[ -t 2 ] && pip=("$venv/bin/python" -m pip --disable-pip-version-check install)
say "installing the locked packages (a few minutes the first time: Spark is 450 MB)"
"${pip[@]}" --require-hashes -r requirements-build.txt
"${pip[@]}" --require-hashes --no-build-isolation -r requirements-dev.txt
"${pip[@]}" --no-deps --no-build-isolation -e . -e ./pyspark-headgate

# ---- 3. the Delta jars -------------------------------------------------------------------------------------------
say "fetching the Delta jars"
"$venv/bin/python" -m headgate.storage.spark.application.jars ${S3:+s3} ${GS:+gs} ${AZURE:+azure}

# ---- 4. the class archive ----------------------------------------------------------------------------------------
say "making the archive of Java's classes (half a minute)"
"$venv/bin/python" -m headgate.storage.archive 2>/dev/null || say "no archive was made: nodes start without it, in twice the time"

mkdir -p "$(dirname "$stamp")"
printf '%s\n' "$wanted $PWD" >"$stamp"
say "done"
