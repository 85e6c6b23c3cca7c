"""Columns and tables may have names that mean something to Arrow, Spark, DuckDB or Delta Lake, such as dots, quotes or metadata columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.conftest import Server, check
from tests.system.chain import Database, subscribe

HOSTILE = [
    "..", ".", ".a", "a.b", "a", "b", "`", "a``b", '"', "'", "*", "[0]", "{x}", "(y)", "a b", " ", ",", ";", "=", "\n", "\t", "\\", "%s", "$1", "--", "/*",
    "_file", "_row", "_Metadata", "_leaf", "_from", "_to", "_before", "_after", "_place", "__nextval", "hg_old", "k0", "v0", "s0", "c0", "n0", "i", "old", "new",
    "file", "row", "op", "seq", "position", "commit_lsn", "unchanged", "filename", "file_row_number", "file_index", "none", "key", "value", "place", "at", "count",
    "path", "name", "select", "NULL", "😀", "ü" * 31, "x" * 63, "o_a", "e_a", "k1_a", "element", "col-1",
]  # fmt: skip
"""Columns of a table whose key is the first and the fourth."""
KEY = [HOSTILE[0], HOSTILE[3]]
TABLE = 'we.ird"`*'


def quoted(name: str) -> str:
    """Quote a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


T = quoted(TABLE)
ALL = ", ".join(map(quoted, HOSTILE))
SHOWN = f"SELECT {ALL} FROM {T} ORDER BY 1, 4"


def made(key: str = f"PRIMARY KEY ({', '.join(map(quoted, KEY))})", more: str = "") -> str:
    """Return a CREATE TABLE. Every third column is text."""
    columns = ", ".join(f"{quoted(name)} {'text' if number % 3 == 2 else 'int'}" for number, name in enumerate(HOSTILE))
    return f"CREATE TABLE {T} ({columns}{', ' + key if key else ''}) {more}"


def inserted(*numbers: int) -> str:
    """Return an INSERT of rows."""
    rows = ", ".join(
        "(" + ", ".join(f"'{number}'" if at % 3 == 2 else str(number * 100 + at % 7) for at in range(len(HOSTILE))) + ")"
        for number in numbers
    )
    return f"INSERT INTO {T} ({ALL}) VALUES {rows};"


CHANGES = f"""{inserted(3, 4, 5, 6)}
UPDATE {T} SET "_file" = '7', "*" = '8', "row" = '9' WHERE ".." = 300;
UPDATE {T} SET ".." = ".." + 5000, "a.b" = -1 WHERE ".." = 400;
UPDATE {T} SET "a.b" = "a.b" + 1, "old" = '10', "😀" = '5', ".a" = 'x' WHERE ".." IN (100, 500);
DELETE FROM {T} WHERE ".." = 200;
BEGIN; {inserted(7, 8)} UPDATE {T} SET "`" = '1', "filename" = '11' WHERE ".." > 600; DELETE FROM {T} WHERE ".." = 700; COMMIT"""


@pytest.fixture
def lakes(node: Server) -> Iterator[list[Database]]:
    """Two databases of the run's node. Their subscriptions are dropped at the end."""
    databases = [Database(node, node.new_database()) for _ in range(2)]
    yield databases
    for database in databases:
        database.unsubscribe()


def chain(publisher: Database, lakes: list[Database], last: Database, tables: str, publication: str) -> None:
    """Subscribe PostgreSQL → node → node → PostgreSQL."""
    stations = [publisher, *lakes, last]
    for number, (upstream, downstream) in enumerate(itertools.pairwise(stations)):
        downstream.sql(tables)
        upstream.sql(publication)
        subscribe(downstream, upstream, f"hostile_{number}", "p")


@pytest.fixture
def last(postgres: Server) -> Iterator[Database]:
    """A database of PostgreSQL. Its subscriptions are dropped at the end."""
    database = Database(postgres, postgres.new_database())
    yield database
    database.unsubscribe()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "identity", "more"),
    [
        (f"PRIMARY KEY ({', '.join(map(quoted, KEY))})", "", ""),
        pytest.param("", f"ALTER TABLE {T} REPLICA IDENTITY FULL", "", marks=pytest.mark.slow),
        pytest.param(f"PRIMARY KEY ({', '.join(map(quoted, KEY))})", "", 'PARTITION BY HASH ("..")', marks=pytest.mark.slow),
    ],
    ids=["key", "identity full", "partitioned"],
)
def test_columns_of_any_name_are_replicated_through_the_whole_chain(publisher, lakes, last, key, identity, more) -> None:
    leaves = (
        "".join(f"; CREATE TABLE l{number} PARTITION OF {T} FOR VALUES WITH (MODULUS 2, REMAINDER {number})" for number in range(2))
        if more
        else ""
    )
    tables = f"{made(key, more)}{leaves}; {identity}"
    publisher.sql(f"{tables}; {inserted(1, 2)}")
    root = " WITH (publish_via_partition_root)" if more else ""
    chain(publisher, lakes, last, tables, f"CREATE PUBLICATION p FOR TABLE {T}{root}")
    publisher.sql(CHANGES)
    expected = publisher.sql(SHOWN)
    for subscriber in (*lakes, last):
        subscriber.wait(SHOWN, expected, seconds=30)
    failed_subscriptions = "SELECT count(*) FROM pg_stat_subscription_stats s JOIN pg_subscription ON subid = oid WHERE apply_error_count + sync_error_count > 0"
    assert lakes[0].sql(failed_subscriptions) == "0"
    check(lakes[0].server, lakes[0].name)


def test_publication_may_have_any_name(publisher, lakes) -> None:
    name = quoted("p.`'\"\\n, ü😀")
    for upstream, downstream in itertools.pairwise([publisher, *lakes]):
        if upstream is publisher:
            upstream.sql("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        downstream.sql("CREATE TABLE t (a int PRIMARY KEY)")
        upstream.sql(f"CREATE PUBLICATION {name} FOR TABLE t WHERE (a <> 3)")
        subscribe(downstream, upstream, "any_name", name)
    publisher.sql("INSERT INTO t VALUES (2), (3)")
    for lake in lakes:
        lake.wait("SELECT string_agg(a::text, ' ' ORDER BY a) FROM t", "1 2", seconds=30)


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    ['("a.b" > 0 AND "*" > 0)', '(upper("..a" || "\'") <> \'Z\')'],
    ids=["column by column", "by Spark"],
)
def test_filters_and_column_lists_may_name_any_column(publisher, lakes, last, where) -> None:
    texts = ("..a", "'")
    names = ["..", "a.b", "`", '"', "..a", "'", "*", "_file", "_Metadata", "i"]
    chosen = ", ".join(map(quoted, names))
    columns = ", ".join(f"{quoted(name)} {'text' if name in texts else 'int'}" for name in names)
    table = f'CREATE TABLE {T} ({columns}, left_out int, PRIMARY KEY ("..", "a.b", "..a", "*", "\'"))'
    publisher.sql(table)
    chain(publisher, lakes, last, table, f"CREATE PUBLICATION p FOR TABLE {T} ({chosen}) WHERE {where}")
    row = f"INSERT INTO {T} ({chosen}, left_out) VALUES ({{0}}, {{0}}, {{0}}, {{0}}, 'x', 'q', {{1}}, {{0}}, {{0}}, {{0}}, 1);"
    publisher.sql(
        "".join(row.format(key, key - 3) for key in range(1, 8))
        + f'UPDATE {T} SET "*" = -1, "\'" = \'Z\' WHERE ".." = 7; DELETE FROM {T} WHERE ".." = 6'
    )
    query = f"SELECT {chosen}, left_out IS NULL FROM {T} ORDER BY 1"
    for upstream, downstream in zip((publisher, *lakes), (*lakes, last), strict=True):
        expected = upstream.sql(f"SELECT {chosen}, true FROM {T} WHERE {where} ORDER BY 1")
        downstream.wait(query, expected, seconds=30)


STATEMENTS = (
    f"""{made()};
{inserted(1, 2, 3)}
INSERT INTO {T} DEFAULT VALUES;
INSERT INTO {T} ("..", "a.b", "none") VALUES (5, 5, 5);
INSERT INTO {T} SELECT {ALL.replace('".."', '".." + 9000', 1)} FROM {T};
INSERT INTO {T} ("..", "a.b") VALUES (100, 103) ON CONFLICT ("..", "a.b") DO UPDATE SET "*" = excluded.".." + {T}."*", "`" = 1;
INSERT INTO {T} ("..", "a.b") VALUES (100, 103) ON CONFLICT DO NOTHING;
UPDATE {T} SET "_Metadata" = 1, "i" = DEFAULT WHERE "_row" IS NOT NULL RETURNING "..", "_Metadata", "i", "`";
UPDATE {T} AS u SET "old" = v."new" + 1 FROM {T} AS v WHERE u.".." = v.".." AND u."a.b" = v."a.b" RETURNING u."old", v."new", u."..";
DELETE FROM {T} USING (SELECT 200 AS "a.b", 1 AS "..", 2 AS "`") AS "x.`" WHERE {T}.".." = "x.`"."a.b" RETURNING "x.`"."`", {T}."..";
MERGE INTO {T} AS m USING (SELECT 300 AS "..", 7 AS "_file", 9 AS "_row") AS "s.." ON m.".." = "s..".".." WHEN MATCHED THEN UPDATE SET "_file" = "s.."."_file"
  WHEN NOT MATCHED THEN INSERT ("..", "a.b", "_row") VALUES ("s..".."..", 1, "s.."."_row");
SELECT {ALL} FROM {T} ORDER BY "..", "a.b";
SELECT "..", count(*) AS "a.b", sum("*") AS "``" FROM {T} GROUP BY ".." HAVING count("`") >= 0 ORDER BY "a.b", "..";
SELECT "..", row_number() OVER (PARTITION BY "a.b" ORDER BY "..") AS "*" FROM {T} ORDER BY 1, 2;
SELECT x.* FROM (SELECT ".." AS "x.y", "a.b" AS "x`y" FROM {T}) AS x ORDER BY 1;
WITH "c.`" AS (SELECT "*" AS "." FROM {T}) SELECT "." FROM "c.`" ORDER BY 1;
SELECT r FROM {T} AS r ORDER BY r."..";
SELECT one.".." FROM {T} AS one JOIN {T} AS other USING ("..", "a.b") ORDER BY 1;
ALTER TABLE {T} ADD COLUMN "new.col" int DEFAULT 5;
ALTER TABLE {T} ADD COLUMN "se.rial" serial;
ALTER TABLE {T} RENAME COLUMN "a.b" TO "b.a";
ALTER TABLE {T} ALTER COLUMN "`" TYPE text;
ALTER TABLE {T} ADD CONSTRAINT "c.`"""
    """" CHECK ("*" IS NULL OR "*" > -1000000);
"""
    f"""ALTER TABLE {T} DROP COLUMN ".";
CREATE UNIQUE INDEX "i.`" ON {T} ("..", "b.a", "new.col");
UPDATE {T} SET "new.col" = "new.col" + 1;
CREATE VIEW "v.`" AS SELECT ".." AS "q.`", "new.col", "se.rial" > 0 AS "*" FROM {T};
SELECT * FROM "v.`" ORDER BY 1;
CREATE TABLE "child.`" ("r.`" int, "s.." int, "g.." int GENERATED ALWAYS AS ("s.." + 1) STORED, FOREIGN KEY ("r.`", "s..") REFERENCES {T} ("..", "b.a") ON DELETE CASCADE);
INSERT INTO "child.`" SELECT "..", "b.a" FROM {T};
INSERT INTO "child.`" VALUES (-5, -5);
DELETE FROM {T} WHERE ".." = 300;
SELECT * FROM "child.`" ORDER BY 1;
COPY {T} TO STDOUT;
"""
)


@pytest.mark.slow
def test_statements_on_columns_of_any_name_return_postgresqls_results(postgres: Server, node: Server, tmp_path) -> None:
    script = tmp_path / "hostile.sql"
    script.write_text(STATEMENTS)
    printed = [server.script(server.new_database(), script, "-A", PGCLIENTENCODING="UTF8") for server in (node, postgres)]
    assert printed[0].splitlines() == printed[1].splitlines()
