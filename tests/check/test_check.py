"""`headgate check` finds nothing in an undamaged directory, and exactly the damage in a damaged one.

In the suite several independent damages are made on one copy. With ``--all`` each is made on its own copy.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import conftest
from tests.check.damage import APART, Damage, frames_of_no_subscription
from tests.check.scene import Copy, build
from tests.conftest import HEADGATE, NodeServer, Server, SqlError

from headgate.check import course, subject
from headgate.check.finding import FindingSeverity

pytestmark = pytest.mark.on_disk  # copies of a directory are damaged


@pytest.fixture(scope="module")
def original(_session_farm, postgres: Server) -> tuple[NodeServer, str]:
    """A stopped node with objects of every kind, and its database."""
    node = _session_farm.make(NodeServer)
    return node, build(node, postgres)


@pytest.fixture
def copy(original: tuple[NodeServer, str], spark: SparkSession, tmp_path: Path) -> Copy:
    """A copy of its directory."""
    node, database = original
    return Copy(node.data, tmp_path, database, spark)


@pytest.mark.parametrize(
    "damages",
    [pytest.param(damages, id=name, marks=[pytest.mark.slow] if index else []) for index, (name, damages) in enumerate(APART.items())],
)
def test_check_names_each_damage_and_nothing_else(copy: Copy, damages: tuple[Damage, ...]) -> None:
    expected = [line for damage in damages for line in damage(copy)]
    assert sorted(copy.findings()) == sorted(expected)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [damage for damages in APART.values() for damage in damages])
def test_check_names_a_single_damage_and_nothing_else(copy: Copy, damage: Damage) -> None:
    expected = damage(copy)
    assert sorted(copy.findings()) == sorted(expected)


@pytest.mark.slow
def test_invalid_catalog_value_is_reported_and_the_rest_is_checked(copy: Copy) -> None:
    copy.catalog("UPDATE hg.pg_class SET relreplident = 'q' WHERE relname = 'plain'")
    expected = frames_of_no_subscription(copy)
    findings = copy.findings()
    assert (
        "error: catalog: the check of keys ended in ValueError: 'q' is not a valid ReplicaIdentity (restore it from a backup)" in findings
    )
    assert expected[0] in findings


@pytest.mark.slow
def test_directory_of_a_stopped_node_has_no_findings_and_is_not_changed(original: tuple[NodeServer, str]) -> None:
    node, _ = original
    files_before = {path: path.read_bytes() for path in node.data.rglob("*") if path.is_file()}
    assert node.headgate("check").stdout.endswith(": nothing found\n")
    assert {path: path.read_bytes() for path in node.data.rglob("*") if path.is_file()} == files_before


@pytest.mark.slow
def test_running_node_can_be_checked(original: tuple[NodeServer, str]) -> None:
    node, database = original
    node.start()
    node.psql(database, "ALTER SUBSCRIPTION s DISABLE; INSERT INTO plain (b) VALUES ('1')")
    assert node.headgate("check", "--online", "-U", "postgres").stdout.endswith(": nothing found\n")
    refused = check(node)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (1, f'headgate: node is running in directory "{node.data}"')
    file = max(node.data.glob("base/[0-9]*/*/part-*.parquet"), key=lambda path: path.stat().st_mtime)
    file.rename(file.with_suffix(".away"))
    findings = check(node, "--online", "-U", "postgres")
    line = f'error: table "public"."plain" of database "{database}": data file "{file.name}" is missing (restore it from a backup)\n'
    assert (findings.returncode, findings.stdout) == (2, f"{line}checked 8 tables: 1 error\n")


@pytest.mark.slow
def test_work_left_by_a_crash_for_the_next_start_is_not_damage(spare_node: Callable[..., Server], spark: SparkSession) -> None:
    node = spare_node(**{"headgate.failpoints": "'version behind=kill'"})
    assert isinstance(node, NodeServer)
    database = node.new_database()
    with pytest.raises(SqlError, match="server closed the connection"):
        node.psql(
            database, "CREATE TABLE a (id int); CREATE TABLE b (id int); BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); COMMIT"
        )
    with subject.of_stopped(node.data, {}, database, session=spark) as checked:
        findings = list(course.run(checked))
    assert {finding.severity for finding in findings} == {FindingSeverity.NOTICE}
    assert sorted(finding.what.replace(finding.what.split()[1], "n") for finding in findings) == [
        "transaction n was committing",
        "version n is not yet in the log",
    ]
    node.conf = {}
    node._write_files()
    node.start()
    assert node.psql(database, "SELECT count(*) FROM a JOIN b USING (id)") == "1"
    conftest.check(node, database)


@pytest.mark.slow
def test_constraints_that_need_a_session_are_named_as_not_checked(spare_node: Callable[..., Server]) -> None:
    node = spare_node()
    assert isinstance(node, NodeServer)
    database = node.new_database()
    node.psql(
        database,
        "CREATE FUNCTION positive(integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 > 0'; CREATE SEQUENCE s; SELECT nextval('s');"
        "CREATE TABLE t (a integer CHECK (a > 0), b integer CONSTRAINT b CHECK (b <= currval('s')), c name CONSTRAINT c CHECK (c = current_user),"
        " d timestamptz CONSTRAINT d CHECK (d <= now()), e integer CONSTRAINT e CHECK (positive(e)), f float8 CONSTRAINT f CHECK (f < random() + 1),"
        " g integer GENERATED ALWAYS AS (positive(a)::integer) STORED); CREATE UNIQUE INDEX i ON t (positive(a));"
        "INSERT INTO t VALUES (1, 1, current_user, now(), 1, 0)",
    )
    node.stop()
    findings = check(node)
    place = f'notice: table "public"."t" of database "{database}": not checked whether'
    unknown = [f'rows violate check constraint "{name}"' for name in "bcdef"]
    unknown += ['rows do not have the value of generated column "g"', 'keys of unique index "i" are there more than once']
    lines = [f"{place} {what} (the expression needs a session)" for what in unknown]
    assert findings.returncode == 0
    assert sorted(findings.stdout.splitlines()) == sorted([*lines, "checked 1 table: 7 notices"])


def check(node: NodeServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the check. It may report findings."""
    return subprocess.run([*HEADGATE, "check", "-D", str(node.data), *arguments], capture_output=True, text=True, timeout=180)
