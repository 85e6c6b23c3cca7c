"""`verify`, `check` and `backup` report their findings, also if there are none, and show their progress on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from tests.conftest import HEADGATE, Server
from tests.subscriber.conftest import READY


def on_a_terminal(*arguments: str) -> tuple[str, str]:
    """Return what a command writes to stdout, and what it writes to stderr, which is a terminal."""
    terminal, terminal_of_command = pty.openpty()
    with subprocess.Popen([*HEADGATE, *arguments], stdout=subprocess.PIPE, stderr=terminal_of_command, text=True) as command:
        os.close(terminal_of_command)
        output = b""
        while piece := _read(terminal):
            output += piece
        os.close(terminal)
        assert command.stdout is not None
        return command.stdout.read(), output.decode(errors="replace")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.on_disk
def test_check_shows_its_progress_and_that_nothing_was_found(node: Server) -> None:
    database = node.new_database()
    node.psql(database, "CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1); CREATE TABLE b (id int)")
    stdout, stderr = on_a_terminal("check", "-D", str(node.data), "-U", "postgres", "--online", "-d", database)
    assert stdout == "checked 2 tables: nothing found\n"
    assert 'checking files of table "public"."a"' in stderr


@pytest.mark.slow
@pytest.mark.on_disk
def test_verify_and_backup_show_their_progress_and_a_summary(postgres: Server, node: Server, tmp_path: Path) -> None:
    source, database = postgres.new_database(), node.new_database()
    tables = "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)"
    postgres.psql(source, f"{tables}; INSERT INTO a SELECT generate_series(1, 10); CREATE PUBLICATION p FOR TABLE a, b")
    node.psql(database, tables)
    node.psql(database, f"CREATE SUBSCRIPTION s CONNECTION '{postgres.conninfo(source)}' PUBLICATION p WITH (slot_name = '{source}')")
    where = ["-D", str(node.data), "-U", "postgres"]
    stdout, stderr = on_a_terminal("verify", *where, "-d", database)
    assert stdout.endswith("compared 2 tables: all rows are equal\n")
    assert re.search(r'comparing table 1 of 2: "public\.[ab]"', stderr)
    assert re.search(r'comparing table 2 of 2: "public\.[ab]"', stderr)
    assert node.psql(database, READY) == "t"
    node.psql(database, "DELETE FROM a WHERE id = 3")
    stdout, _ = on_a_terminal("verify", *where, "-d", database)
    assert stdout.endswith("compared 2 tables: 1 different\n")
    node.psql(database, "DROP SUBSCRIPTION s")
    stdout, stderr = on_a_terminal("backup", str(tmp_path / "backup"), *where)
    assert re.search(r"backup completed: LSN \S+, [0-9,]+ tables, \d+ bytes, [0-9.]+ s\n", stdout)
    assert re.search(r"\d+ of \d+ tables, \d+ MB", stderr)
