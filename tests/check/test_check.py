"""What `headgate check` finds: nothing in what a node has left, and of each damage exactly that.

In the suite several damages that do not touch each other are made on one copy; with ``--all`` each is made on a copy of its own.
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
    """A stopped node with something of everything, and its database."""
    node = _session_farm.make(NodeServer)
    return node, build(node, postgres)


@pytest.fixture
def copy(original: tuple[NodeServer, str], spark: SparkSession, tmp_path: Path) -> Copy:
    """A copy of its directory."""
    node, database = original
    return Copy(node.data, tmp_path, database, spark)


@pytest.mark.parametrize(
    "damages",
    [pytest.param(damages, id=name, marks=[pytest.mark.slow] if place else []) for place, (name, damages) in enumerate(APART.items())],
)
def test_the_check_names_each_damage_and_nothing_else(copy: Copy, damages: tuple[Damage, ...]) -> None:
    expected = [line for damage in damages for line in damage(copy)]
    assert sorted(copy.findings()) == sorted(expected)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [damage for damages in APART.values() for damage in damages])
def test_the_check_names_one_damage_and_nothing_else(copy: Copy, damage: Damage) -> None:
    expected = damage(copy)
    assert sorted(copy.findings()) == sorted(expected)


@pytest.mark.slow
def test_what_the_catalog_says_and_nobody_understands_is_found_and_the_rest_is_checked(copy: Copy) -> None:
    copy.catalog("UPDATE hg.pg_class SET relreplident = 'q' WHERE relname = 'plain'")
    left = frames_of_no_subscription(copy)
    found = copy.findings()
    assert "error: catalog: the check of keys ended in ValueError: 'q' is not a valid ReplicaIdentity (restore it from a backup)" in found
    assert left[0] in found


@pytest.mark.slow
def test_a_stopped_nodes_directory_has_nothing_wrong_and_stays_as_it_is(original: tuple[NodeServer, str]) -> None:
    node, _ = original
    before = {path: path.read_bytes() for path in node.data.rglob("*") if path.is_file()}
    assert node.headgate("check").stdout == ""
    assert {path: path.read_bytes() for path in node.data.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_running_node_is_asked(original: tuple[NodeServer, str]) -> None:
    node, database = original
    node.start()
    node.psql(database, "ALTER SUBSCRIPTION s DISABLE; INSERT INTO plain (b) VALUES ('1')")
    assert node.headgate("check", "--online", "-U", "postgres").stdout == ""
    refused = check(node)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (1, f'headgate: node is running in directory "{node.data}"')
    file = max(node.data.glob("base/[0-9]*/*/part-*.parquet"), key=lambda path: path.stat().st_mtime)
    file.rename(file.with_suffix(".away"))
    found = check(node, "--online", "-U", "postgres")
    what = f'error: table "public"."plain" of database "{database}": data file "{file.name}" is missing (restore it from a backup)\n'
    assert (found.returncode, found.stdout) == (2, what)


@pytest.mark.slow
def test_what_a_crash_has_left_to_the_next_start_is_no_damage(spare_node: Callable[..., Server], spark: SparkSession) -> None:
    node = spare_node(**{"headgate.failpoints": "'version behind=kill'"})
    assert isinstance(node, NodeServer)
    database = node.new_database()
    with pytest.raises(SqlError, match="server closed the connection"):
        node.psql(
            database, "CREATE TABLE a (id int); CREATE TABLE b (id int); BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); COMMIT"
        )
    with subject.of_stopped(node.data, {}, database, session=spark) as checked:
        found = list(course.run(checked))
    assert {each.severity for each in found} == {FindingSeverity.NOTICE}
    assert sorted(each.what.replace(each.what.split()[1], "n") for each in found) == [
        "transaction n was committing",
        "version n is not yet in the log",
    ]
    node.conf = {}
    node._write_files()
    node.start()
    assert node.psql(database, "SELECT count(*) FROM a JOIN b USING (id)") == "1"
    conftest.check(node, database)


def check(node: NodeServer, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the check, whatever it finds."""
    return subprocess.run([*HEADGATE, "check", "-D", str(node.data), *words], capture_output=True, text=True, timeout=180)
