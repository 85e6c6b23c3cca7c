"""PostgreSQL's TAP tests of logical replication (src/test/subscription/t) pass with nodes as subscriber, publisher, or both.

Each test file runs in three ways, with the expected failing checks of `expected_failures.py`. A check that fails and is not expected there
fails the test, and so does an expected failure that passes. `HeadgateTap.pm` says how a PostgreSQL cluster becomes a node.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import PG_BIN
from tests.tap import source
from tests.tap.expected_failures import Way, expected_failures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

LIMIT = 900
"""The limit of one file in seconds."""

FILES = """
    001_rep_changes 002_types 003_constraints 004_sync 005_encoding 006_rewrite 007_ddl 008_diff_schema 009_matviews 010_truncate
    011_generated 012_collation 013_partition 014_binary 015_stream 016_stream_subxact 017_stream_ddl 018_stream_subxact_abort
    019_stream_subxact_ddl_abort 020_messages 021_twophase 022_twophase_cascade 023_twophase_stream 024_add_drop_pub
    025_rep_changes_for_schema 026_stats 027_nosuperuser 028_row_filter 029_on_error 031_column_list 100_bugs
""".split()

PUBLISHERS = {
    "022_twophase_cascade": "node_A,node_B",
    "100_bugs": "publisher.*,twoways,testpublisher1,testpublisher_subscriber,node_publisher_d_cols",
}
"""The names of clusters that publish, in files that do not call them `publisher…`; regular expressions with commas between."""
SUBSCRIBERS = {
    "022_twophase_cascade": "node_B,node_C",
    "100_bugs": "subscriber.*,testpublisher_subscriber,testsubscriber1,node_subscriber_d_cols",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for the clusters of one file, owned by the user who runs them."""
    path = Path(tempfile.mkdtemp(prefix="headgate-tap-"))
    if os.geteuid() == 0:
        shutil.chown(path, "postgres", "postgres")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run_file(file: str, way: Way, folder: Path) -> str:
    """Run a TAP test file and return what it printed, with a line `not ok` if it did not run to its end."""
    root = source.fetch_source()
    source.require_ipc_run()
    nodes = {
        Way.NODE_SUBSCRIBES: SUBSCRIBERS.get(file, "subscriber.*"),
        Way.NODE_PUBLISHES: PUBLISHERS.get(file, "publisher.*"),
        Way.NODES_ALONE: ".*",
    }[way]
    environment = {
        **os.environ,
        "HOME": str(folder),
        "LC_ALL": "C",
        "PATH": f"{PG_BIN}:{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",  # the user postgres must not write into the checkout
        "HEADGATE": str(source.HEADGATE),
        "HEADGATE_NODES": nodes,
        "PGCTLTIMEOUT": "180",  # several nodes that start on a busy machine need more than the default of 60 s
        "PG_REGRESS": str(source.PG_REGRESS),
        "PG_TEST_TIMEOUT_DEFAULT": "90",
        "TESTDIR": str(folder),
        "TESTDATADIR": str(folder / "tmp_check"),
        "TESTLOGDIR": str(folder / "tmp_check" / "log"),
        "with_icu": "yes",
    }
    include = (f"-I{root / 'src/test/perl'}", f"-I{Path(__file__).parent}")
    script = root / "src/test/subscription/t" / f"{file}.pl"
    command = [*source.unprivileged(), "timeout", "-k", "60", str(LIMIT), "perl", *include, "-MHeadgateTap", script]
    completed = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, cwd=folder, env=environment
    )
    if re.search(r"^1\.\.[1-9]", completed.stdout, re.MULTILINE):
        return completed.stdout
    [*_, reason] = re.findall(r"^(?:Bail out! *)?([^#\n].*)", completed.stdout, re.MULTILINE) or [f"exit status {completed.returncode}"]
    return f"{completed.stdout}\nnot ok 0 - HARNESS the file ended early: {reason}"


def compare_with_expected(failed: list[str], expected: dict[str, str]) -> list[str]:
    """Return a line for each check that failed unexpectedly, and for each expected failure that passed.

    An expected failure is a regular expression that matches the beginning of the check's description. The end may contain values that vary.
    """
    matched: set[str] = set()
    lines = []
    for check in failed:
        patterns = [pattern for pattern in expected if re.match(pattern, check)]
        matched.update(patterns)
        if not patterns:
            lines.append(f"fails: {check}")
    return lines + [f"passes, but is expected to fail: {check} ({reason})" for check, reason in expected.items() if check not in matched]


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("file", FILES)
def test_tap_file_passes_except_for_the_expected_failures(file: str, way: Way, folder: Path) -> None:
    output = run_file(file, way, folder)
    failed = re.findall(r"^not ok \d+ - (.*)", output, re.MULTILINE)
    differences = compare_with_expected(failed, expected_failures(file, way))
    assert not differences, "\n".join([*differences, "", output[-6000:]])


def test_every_file_of_the_source_package_is_run() -> None:
    folder = source.fetch_source() / "src/test/subscription/t"
    assert sorted(path.stem for path in folder.glob("*.pl")) == FILES


def test_unexpected_failure_and_unexpected_success_are_reported() -> None:
    expected = {"trigger": "no triggers", "upsert": "no upserts"}
    assert compare_with_expected(["trigger fires", "copy is complete"], expected) == [
        "fails: copy is complete",
        "passes, but is expected to fail: upsert (no upserts)",
    ]
