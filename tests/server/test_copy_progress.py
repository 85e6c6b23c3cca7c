"""pg_stat_progress_copy shows a running COPY on a node as on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.conftest import Server, until

SHOWN = b"""SELECT datname = current_database(), relid::regclass::text, command, type, bytes_total, tuples_processed > 0, tuples_excluded > 0
  FROM pg_stat_progress_copy WHERE pid = %s"""
ROWS = b"".join(b"%d\t%s\n" % (number, b"x" * 1000) for number in range(20_000))


@pytest.fixture
def two(server: Server) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any]]]:
    """A session that copies, and a session that reads pg_stat_progress_copy."""
    conninfo = server.conninfo(server.new_database())
    with psycopg.connect(conninfo, autocommit=True) as copying, psycopg.connect(conninfo, autocommit=True) as watching:
        copying.execute("CREATE TABLE t (n int, x text)")
        yield copying, watching


def progress(watching: psycopg.Connection[Any], copying: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return watching.execute(SHOWN, (copying.info.backend_pid,)).fetchall()


def processed(watching: psycopg.Connection[Any]) -> int:
    row = watching.execute("SELECT coalesce(max(bytes_processed), 0) FROM pg_stat_progress_copy").fetchone()
    assert row is not None
    return int(row[0])


def test_copy_from_shows_processed_and_excluded_rows_and_bytes(two: Any) -> None:
    copying, watching = two
    with copying.cursor().copy("COPY t FROM STDIN WHERE n % 2 = 0") as copy:
        copy.write(ROWS)
        until(lambda: processed(watching) > len(ROWS) - 70_000, "the bytes are not counted")
        until(lambda: bool(progress(watching, copying)[0][5]), "the rows are not counted")
        assert progress(watching, copying) == [(True, "t", "COPY FROM", "PIPE", 0, True, True)]
        assert processed(watching) <= len(ROWS)
    assert progress(watching, copying) == []
    assert copying.execute("SELECT count(*) FROM t").fetchall() == [(10_000,)]


@pytest.mark.parametrize(("what", "relation"), [("t", "t"), ("(SELECT * FROM t)", "-")])
def test_copy_to_shows_rows_and_the_table_but_no_relation_for_a_query(two: Any, what: str, relation: str) -> None:
    copying, watching = two
    with copying.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write(ROWS)
    with copying.cursor().copy(f"COPY {what} TO STDOUT".encode()) as copy:
        copy.read()
        assert progress(watching, copying) == [(True, relation, "COPY TO", "PIPE", 0, True, False)]
        assert 0 < processed(watching) < len(ROWS)
        rest = sum(len(data) for data in copy)
    assert progress(watching, copying) == []
    assert 0 < rest < len(ROWS)


def test_failed_copy_leaves_no_progress_row(two: Any) -> None:
    copying, watching = two
    with pytest.raises(psycopg.errors.BadCopyFileFormat), copying.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write(b"1\n")
    assert progress(watching, copying) == []
