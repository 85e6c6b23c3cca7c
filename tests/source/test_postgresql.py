"""pyspark_headgate reads changes from PostgreSQL itself: the same rows as from a node, in any ranges, repeatedly, and the errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from pyspark_headgate import walsender
from pyspark_headgate.connection import NodeConnection, Range
from pyspark_headgate.options import SourceOptions
from pyspark_headgate.postgresql import PostgresConnection

TYPES = """
CREATE DOMAIN positive AS numeric(8, 3) CHECK (value > 0); CREATE TYPE mood AS ENUM ('sad', 'o''k');
CREATE TABLE t (
  id int PRIMARY KEY, b boolean, s smallint, l bigint, o oid, f real, d double precision, n numeric(10, 2), free numeric, p positive, m mood,
  day date, at timestamp, tz timestamptz(3), bytes bytea, v text, c char(4), u uuid, j jsonb, i interval, a int[], tm time
);
CREATE PUBLICATION p FOR TABLE t;
"""
ROWS = """
INSERT INTO t VALUES
  (1, true, -32768, 9223372036854775807, 4294967295, 1.5, 'NaN', -12345678.91, 1.500, 1.25, 'sad', '2024-02-29', '2024-02-29 12:34:56.7',
   '2024-02-29 12:34:56.789+05:30', '\\x00ff10', E'a "b",\\n\\t\\\\', 'ab', '00000000-0000-0000-0000-000000000001', '{"b": 1, "a": [1.50]}',
   '1 mon -2 days 03:04:05', '{1,NULL,3}', '23:59:59.5'),
  (2, false, 0, 0, 0, 'Infinity', '-Infinity', 0, 'NaN', 99999.999, 'o''k', 'infinity', '-infinity', 'infinity', '', '', '', NULL, 'null',
   NULL, '{}', NULL),
  (3, NULL, NULL, NULL, NULL, '-0', 1e-300, NULL, NULL, NULL, NULL, '0044-03-15 BC', '0001-12-31 23:59:59.999999 BC', '12024-01-01 00:00:00+00',
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""
VARYING = ("_lsn", "_seq", "_xid", "_commit_time")
"""The columns that differ between servers."""


@pytest.fixture
def source(postgres: Any) -> Iterator[Source]:
    source = Source(postgres)
    yield source
    source.connection.close()
    source.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{source.options.slot}'")


class Source:
    """A database with a slot, and a connection that reads its changes."""

    def __init__(self, server: Any) -> None:
        self.server, self.database = server, server.new_database()
        url = server.conninfo(self.database)
        self.options = SourceOptions(url, "p", "public.t", f"{self.database}_s")
        self.connection = PostgresConnection(url)

    def sql(self, script: str) -> str:
        return str(self.server.psql(self.database, script))

    def begin(self, script: str) -> int:
        """Create the tables and the slot, and return its position."""
        self.sql(script)
        return self.connection.ensured_slot(self.options.slot).position

    def rows(self, start: int, end: int | None = None) -> list[dict[str, Any]]:
        changes = Range(start, self.connection.current() if end is None else end)
        return [row for batch in self.connection.batches(self.options, changes) for row in batch.to_pylist()]


def values(table: pa.Table) -> list[str]:
    """Return the rows as texts, without what differs between servers. As a text, NaN is equal to itself."""
    columns = [f"{name}: {table.column(name).cast(kind(table.schema.field(name).type)).to_pylist()!r}" for name in table.column_names]
    return [column for column in columns if not column.startswith(VARYING)]


def kind(found: pa.DataType) -> pa.DataType:
    """Return the type to use for a column: Python has no infinite dates and times."""
    if pa.types.is_struct(found):
        return pa.struct([pa.field(field.name, kind(field.type)) for field in found])
    return pa.int32() if pa.types.is_date(found) else pa.int64() if pa.types.is_timestamp(found) else found


@pytest.mark.slow
def test_all_types_are_read_as_from_a_node(source: Source, node: Any) -> None:
    database = node.new_database()
    url, slot = node.conninfo(database), f"{database}_s"
    node.psql(database, TYPES)
    options = dataclasses.replace(source.options, url=url, slot=slot)
    changes = "UPDATE t SET v = 'new' WHERE id < 3; UPDATE t SET id = 30 WHERE id = 3; DELETE FROM t WHERE id = 1; TRUNCATE t;" + ROWS
    with NodeConnection(url) as of_node:
        starts = source.begin(TYPES), of_node.ensured_slot(slot).position
        for full in ("", "ALTER TABLE t REPLICA IDENTITY FULL;"):
            for sql in (source.sql, lambda script: node.psql(database, script)):
                sql(f"TRUNCATE t; {full} {ROWS} {changes}")
        tables = [
            pa.Table.from_batches(server.batches(chosen, Range(start, server.current())))
            for server, chosen, start in zip((source.connection, of_node), (source.options, options), starts, strict=True)
        ]
        rows = [
            pa.Table.from_batches(server.batches(chosen, Range(None, server.current()))).sort_by("id")
            for server, chosen in ((source.connection, source.options), (of_node, options))
        ]
        of_node.drop_slot(slot)
    assert tables[0].schema == tables[1].schema
    assert tables[0].num_rows == 2 * (1 + 3 + 2 + 1 + 1 + 1 + 3)
    assert values(tables[0]) == values(tables[1])
    assert rows[0].num_rows == 3
    assert values(rows[0]) == values(rows[1])


def test_any_cutting_gives_the_same_rows(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walsender, "RUN", 2000)  # so that transactions continue in later runs
    start = source.begin(
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE beside (id int); CREATE PUBLICATION p FOR TABLE t, beside"
    )
    source.sql("INSERT INTO t SELECT i, repeat('x', i % 50) FROM generate_series(1, 300) i; INSERT INTO beside VALUES (1)")
    source.sql(
        "BEGIN; UPDATE t SET v = 'y' WHERE id % 3 = 0; TRUNCATE t; INSERT INTO t VALUES (1, 'z'); INSERT INTO beside VALUES (2); COMMIT"
    )
    source.sql("".join(f"INSERT INTO t VALUES ({i}, 'single'); INSERT INTO beside VALUES ({i});" for i in range(1000, 1030)))
    whole = Range(start, source.connection.current())
    expected = source.rows(start)
    assert [row["_op"] for row in expected] == ["I"] * 300 + ["U"] * 100 + ["T"] + ["I"] * 31
    assert [row["_seq"] for row in expected[300:402]] == list(range(102))
    assert source.rows(start) == expected
    for most, parts in ((1, 32), (10, 5), (1 << 62, 1)):
        cuts = source.connection.ranges(source.options, whole, most)
        assert len(cuts) == parts
        assert sum(changes for _, changes, _ in cuts) == len(expected)
        assert [row for cut, _, _ in cuts for row in source.rows(cut.start or 0, cut.end)] == expected
        assert source.connection.ranges(source.options, whole, most, first=1) == cuts[:1]


@pytest.mark.slow
@pytest.mark.parametrize("version", [14, 16, 17, 18])
def test_each_version_gives_the_table_and_its_changes(of_version: Callable[[int], Any], version: int) -> None:
    source = Source(of_version(version))
    start = source.begin(
        "CREATE TABLE t (id int PRIMARY KEY, v text, doubled int GENERATED ALWAYS AS (id * 2) STORED); CREATE PUBLICATION p FOR TABLE t"
    )
    source.sql("INSERT INTO t (id, v) VALUES (1, 'a'), (2, 'b'); UPDATE t SET v = 'c' WHERE id = 1; DELETE FROM t WHERE id = 2")
    assert [(row["_op"], row["id"], row["v"]) for row in source.rows(start)] == [
        ("I", 1, "a"),
        ("I", 2, "b"),
        ("U", 1, "c"),
        ("D", 2, None),
    ]
    with closing(source.connection.create_slot(dataclasses.replace(source.options, slot=f"{source.database}_snapshot"))) as snapshot:
        source.sql("INSERT INTO t (id, v) VALUES (3, 'late')")
        then, now = (
            pa.Table.from_batches(source.connection.batches(source.options, Range(None, snapshot.position, name)))
            for name in (snapshot.name, "")
        )
    assert then.schema.names[6:] == ["id", "v", "_old"]
    assert then.column("id").to_pylist() == [1]
    assert sorted(now.column("id").to_pylist()) == [1, 3]
    assert set(then.column("_lsn").to_pylist()) == {snapshot.position}
    source.connection.close()
    for slot in (source.options.slot, f"{source.database}_snapshot"):
        source.server.drop_slot(source.database, slot)


def test_filter_column_list_and_partition_root_hold(source: Source) -> None:
    start = source.begin(
        "CREATE TABLE t (id int PRIMARY KEY, v text, secret text) PARTITION BY RANGE (id);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20);"
        "CREATE PUBLICATION p FOR TABLE t (id, v) WHERE (id % 2 = 0) WITH (publish_via_partition_root = true)"
    )
    source.sql("INSERT INTO t SELECT i, 'v', 'hidden' FROM generate_series(1, 19, 3) i; UPDATE t SET id = id + 1 WHERE id IN (4, 7, 10)")
    rows = source.rows(start)
    assert [(row["_op"], row["id"]) for row in rows] == [("I", 4), ("I", 10), ("I", 16), ("D", 4), ("I", 8), ("D", 10)]
    table = [row for batch in source.connection.batches(source.options, Range(None, 0)) for row in batch.to_pylist()]
    assert sorted(row["id"] for row in table) == [8, 16]
    assert "secret" not in table[0]
    with closing(source.connection.create_slot(dataclasses.replace(source.options, slot=f"{source.database}_snapshot"))) as snapshot:
        source.sql("ALTER TABLE t ALTER secret TYPE bytea USING NULL")
        with pytest.raises(RuntimeError, match=r'table "public\.t" was rewritten after the snapshot of its rows'):
            list(source.connection.batches(source.options, Range(None, snapshot.position, snapshot.name)))
    source.sql(f"SELECT pg_drop_replication_slot('{source.database}_snapshot')")


def test_a_changed_definition_begins_a_range_of_its_own(source: Source) -> None:
    start = source.begin("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    source.sql("INSERT INTO t VALUES (1); ALTER TABLE t ADD COLUMN v text; INSERT INTO t VALUES (2, 'x'); ALTER TABLE t RENAME TO u")
    source.sql("INSERT INTO u VALUES (3, 'y'); ALTER TABLE u RENAME TO t")
    [first, second] = source.connection.ranges(source.options, Range(start, source.connection.current()), 1 << 62)
    assert (first[1:], second[1:]) == ((1, False), (2, True))
    assert source.connection.schema(source.options, start).names[6:] == ["id", "_old"]
    assert source.connection.schema(source.options, first[0].end).names[6:] == ["id", "v", "_old"]
    assert [row["id"] for row in source.rows(*dataclasses.astuple(second[0])[:2])] == [2, 3]


def test_an_unchanged_toast_value_comes_from_the_old_row_or_is_an_error(source: Source) -> None:
    start = source.begin(
        "CREATE TABLE t (id int PRIMARY KEY, n int, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL; CREATE PUBLICATION p FOR TABLE t"
    )
    source.sql("ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 1, repeat('long', 5000)); UPDATE t SET n = 2")
    assert [(row["n"], row["v"]) for row in source.rows(start)] == [(1, "long" * 5000), (2, "long" * 5000)]
    source.sql("ALTER TABLE t REPLICA IDENTITY DEFAULT; UPDATE t SET n = 3")
    with pytest.raises(RuntimeError, match='the log does not have the value of column "v"'):
        source.rows(start)


def test_a_slot_that_is_missing_or_ahead_is_an_error(source: Source) -> None:
    start = source.begin("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    source.sql("INSERT INTO t VALUES (1)")
    source.connection.advance(source.options.slot, source.connection.current())
    with pytest.raises(RuntimeError, match="no longer has the changes from LSN"):
        source.rows(start)
    source.connection.drop_slot(source.options.slot)
    with pytest.raises(RuntimeError, match="is lost"):
        source.rows(start)


def test_a_value_that_arrow_cannot_hold_is_an_error_without_the_value(source: Source) -> None:
    start = source.begin("CREATE TABLE t (id int PRIMARY KEY, n numeric(10, 2)); CREATE PUBLICATION p FOR TABLE t")
    source.sql("INSERT INTO t VALUES (1, 'NaN')")
    with pytest.raises(ValueError, match=r'^column "n" has a value that the type decimal128\(10, 2\) cannot hold$'):
        source.rows(start)


def test_row_security_is_an_error(source: Source) -> None:
    source.begin("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    role = f"{source.database}_reader"
    source.sql(f"CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON t TO {role}; ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    url = source.server.conninfo(source.database, role)
    with PostgresConnection(url) as reader, pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        list(reader.batches(dataclasses.replace(source.options, url=url), Range(None, 0)))
    source.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")
