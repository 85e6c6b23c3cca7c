"""Rows are routed to the leaf to which PostgreSQL routes them. Random trees and rows are sent to both."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pyarrow as pa

from headgate.catalog.relation.partition import build, read
from headgate.catalog.relation.relation import Column, PartitionKey, Relation
from headgate.storage.partitioned import LeafPlaces
from headgate.storage.routing import Router
from headgate.types import registry as r

COLUMNS = (Column(1, "a", r.INT4), Column(2, "b", r.TEXT, collation=100), Column(3, "n", r.NUMERIC))


def table(oid: int, parent: int = 0, bound: str | None = None, key: tuple[str, str] | None = None) -> Relation:
    """Return a relation of the tree. `key`: its strategy and columns."""
    partition_key = None if key is None else PartitionKey(key[0], tuple("abn".index(name) + 1 for name in key[1]), "")
    return Relation(
        oid, 1, 1, "s", f"t{oid}", "r" if key is None else "p", COLUMNS, parent=parent, bound=bound, partition_key=partition_key
    )


def route(tree: list[Relation], rows: list[tuple[Any, ...]]) -> list[str | None]:
    router = Router(build(tree[0], tree[1:]))
    columns = {
        "a": pa.array([row[0] for row in rows], pa.int32()),
        "b": pa.array([row[1] for row in rows], pa.string()),
        "n": pa.array([row[2] for row in rows], pa.string()),
    }
    places, _ = router.route(columns, len(rows))
    return [None if leaf_index < 0 else router.leaves[leaf_index].name for leaf_index in places.tolist()]


TREE = [
    table(1, key=("l", "a")),
    table(2, 1, "FOR VALUES IN (1, 2, NULL)", ("r", "bn")),
    table(3, 2, "FOR VALUES FROM ('a', 0) TO ('m', MINVALUE)"),
    table(4, 2, "FOR VALUES FROM ('m', '-1.50') TO ('t', MAXVALUE)"),
    table(5, 2, "DEFAULT"),
    table(6, 1, "FOR VALUES IN (3, 4, 5)", ("h", "bn")),
    table(7, 6, "FOR VALUES WITH (modulus 2, remainder 0)"),
    table(8, 6, "FOR VALUES WITH (modulus 4, remainder 1)"),
    table(9, 6, "FOR VALUES WITH (modulus 4, remainder 3)", ("r", "a")),
    table(10, 9, "FOR VALUES FROM (MINVALUE) TO (4)"),
    table(11, 9, "FOR VALUES FROM (4) TO (MAXVALUE)"),
    table(12, 1, "FOR VALUES IN (7)"),
]
WORDS = {"l": "LIST", "r": "RANGE", "h": "HASH"}


def create(table_to_create: Relation) -> str:
    by = ""
    if table_to_create.partition_key is not None:
        by = f" PARTITION BY {WORDS[table_to_create.partition_key.strategy]} ({', '.join('abn'[attnum - 1] for attnum in table_to_create.partition_key.attnums)})"
    if table_to_create.parent:
        return f"CREATE TABLE t{table_to_create.oid} PARTITION OF t{table_to_create.parent} {table_to_create.bound}{by}"
    return f'CREATE TABLE t{table_to_create.oid} (a int, b text COLLATE "C", n numeric){by}'


def test_rows_are_routed_to_postgresqls_leaf(postgres: Any) -> None:
    choose = random.Random(7)
    numbers = ["-1.50", "-1.5", "0", "0.0", "3.25", "NaN", "12345678901234567890.5", None]
    rows = [
        (choose.choice([1, 2, 3, 4, 5, 7, None]), choose.choice(["", "a", "lz", "m", "s", "t", "é", None]), choose.choice(numbers))
        for _ in range(300)
    ]
    with psycopg.connect(postgres.conninfo(postgres.new_database()), autocommit=True) as native:
        for node in TREE:
            native.execute(create(node))
        expected = [
            native.execute("INSERT INTO t1 VALUES (%s, %s, %s) RETURNING tableoid::regclass::text", row).fetchone()[0] for row in rows
        ]  # type: ignore[index]
    assert route(TREE, rows) == expected


def test_row_without_a_partition_has_no_leaf_and_the_error_names_the_table() -> None:
    router = Router(build(TREE[0], TREE[1:]))
    columns = {"a": pa.array([7, 6], pa.int32()), "b": pa.array(["x", "y"]), "n": pa.array(["1", "2"])}
    places, homeless = router.route(columns, 2)
    assert homeless is not None
    error = router.refused(homeless, columns)
    assert (places.tolist()[1], error.message) == (-1, 'no partition of relation "t1" found for row')
    assert error.detail == "Partition key of the failing row contains (a) = (6)."


def test_leaf_that_has_a_file_is_found_by_its_folder() -> None:
    """A file of a table with column mapping is in a folder whose random name may be a number."""
    places = LeafPlaces(build(TREE[0], TREE[1:]), lambda leaf: "file:/lake/t" if leaf.oid == 3 else f"file:/base/5/{leaf.oid}")
    files = pa.array(["file:/base/5/4/11/part-0.parquet", "file:/lake/t/part-0.parquet", None])
    assert [number if number < 0 else places.leaves[number].oid for number in places.sources(files).tolist()] == [4, 3, -1]


def test_partition_bound_reads_back_as_it_was_printed() -> None:
    for text, types in {
        "FOR VALUES IN (1, '-2', NULL)": (r.INT4,),
        "FOR VALUES IN ('it''s', 'a\\b')": (r.TEXT,),
        "FOR VALUES FROM ('1', MINVALUE) TO (MAXVALUE, MAXVALUE)": (r.INT8, r.TEXT),
        "FOR VALUES FROM (1.50) TO ('-2')": (r.NUMERIC,),
        "FOR VALUES IN (true)": (r.BOOL,),
        "FOR VALUES WITH (modulus 4, remainder 3)": (r.INT4,),
        "DEFAULT": (r.INT4,),
    }.items():
        assert read(text).text(types) == text
