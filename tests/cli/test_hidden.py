"""Other users of the machine cannot read a node's files under any umask, nor settings on a command line."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Server

SECRET = "a secret key: = # ! ü😀"


@pytest.fixture
def careless(spare_node: Callable[..., Server]) -> Server:
    """A node that was started with the umask 0 and a key in Spark's settings."""
    umask_before = os.umask(0)
    try:
        return spare_node(**{"spark.hadoop.fs.s3a.secret.key": f"'{SECRET}'"})
    finally:
        os.umask(umask_before)


def modes(folder: Path) -> dict[str, int]:
    """Return the permissions of all files and folders."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): path.stat().st_mode for path in paths if not path.is_socket()}


def command_lines(pid: int) -> list[str]:
    """Return the command lines of a process and of all its descendants."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    lines = []
    for member in family:
        try:
            lines.append((Path("/proc") / str(member) / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return lines


@pytest.mark.slow
def test_files_of_a_node_are_private_to_its_user(spare_node: Callable[..., Server]) -> None:
    everything_is_hidden(spare_node())


@pytest.mark.slow
def test_files_of_a_node_are_private_even_with_umask_0(careless: Server) -> None:
    everything_is_hidden(careless)


def everything_is_hidden(node: Server) -> None:
    """Let a node write files of every kind, and check their permissions."""
    database = node.new_database()
    node.psql(
        database,
        """CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 30000) g;
           UPDATE t SET b = 'y' WHERE a % 3 = 0; DELETE FROM t WHERE a < 20000; INSERT INTO t VALUES (1, 'small'); CHECKPOINT;
           CREATE PUBLICATION p FOR ALL TABLES; SELECT pg_create_logical_replication_slot('hidden', 'pgoutput')""",
    )
    exposed = {name: oct(stat.S_IMODE(mode)) for name, mode in modes(node.data).items()}
    assert any(name.endswith(".parquet") for name in exposed)
    assert any(name.endswith(".bin") for name in exposed)
    assert {name: mode for name, mode in exposed.items() if int(mode, 8) & 0o077} == {}
    node.psql(database, "SELECT pg_drop_replication_slot('hidden')")


@pytest.mark.slow
def test_spark_settings_are_on_no_command_line_and_in_no_properties_file(careless: Server) -> None:
    lines = command_lines(careless.pid)
    assert any("SparkSubmit" in line for line in lines)
    assert not [line for line in lines if "secret.key" in line or SECRET in line]
    assert not list((careless.data / "pgsql_tmp").rglob("*.properties"))


@pytest.mark.slow
def test_spark_settings_take_effect_and_are_visible_only_to_superusers(careless: Server) -> None:
    careless.psql("postgres", "DROP ROLE IF EXISTS anybody; CREATE ROLE anybody LOGIN")
    assert careless.psql("postgres", 'SHOW "spark.hadoop.fs.s3a.secret.key"') == SECRET
    assert (
        careless.psql("postgres", "SELECT count(*) FROM pg_settings WHERE name LIKE 'spark.%' OR name = 'data_directory'", user="anybody")
        == "0"
    )
    for statement in ('SHOW "spark.hadoop.fs.s3a.secret.key"', "SELECT current_setting('spark.hadoop.fs.s3a.secret.key')"):
        with pytest.raises(Exception, match="must be superuser or have privileges of pg_read_all_settings"):
            careless.psql("postgres", statement, user="anybody")
