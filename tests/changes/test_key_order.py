"""Changes that are ordered by `untangled`, or written `apart`, satisfy the unique keys after each of them, and have the same result."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.storage.tables import INT4, relation

from headgate.catalog.relation.relation import Index, Relation
from headgate.changes.key_order import apart, unique_keys, untangled
from headgate.storage.write import arrow_row

COLUMNS = relation(27000, "t", id=INT4, u=INT4, f=INT4)
PRIMARY = Index("t_pkey", 27001, (1,), unique=True, primary=True)
TABLE = replace(COLUMNS, indexes=(PRIMARY, Index("t_u_key", 27002, (2,), unique=True)))
PARTIAL = replace(COLUMNS, indexes=(PRIMARY, Index("t_u_idx", 27002, (2,), unique=True, predicate="(f = 1)")))
OF_EXPRESSION = replace(COLUMNS, indexes=(PRIMARY, Index("t_expr_idx", 27002, (0,), unique=True, expressions=("(u + f)",))))
Row = tuple[int, int | None, int]
KEYS: dict[str, Callable[[Row], int | None]] = {
    "t_u_key": lambda row: row[1],
    "t_u_idx": lambda row: row[1] if row[2] == 1 else None,
    "t_expr_idx": lambda row: None if row[1] is None else row[1] + row[2],
}
ROW = pa.struct(list(arrow_row(TABLE)))


def changes(pairs: list[tuple[Row | None, Row | None]]) -> pa.Table:
    """Return changes (old row, new row) in the form of `Transaction.rewrite`."""
    old, new = ([row and dict(zip(("id", "u", "f"), row, strict=True)) for row in rows] for rows in zip(*pairs, strict=True))
    places = pa.array([None if row is None else number for number, row in enumerate(old)], pa.int64())
    files = pa.array([None if row is None else "f" for row in old], pa.string())
    return pa.table([pa.array(old, ROW), pa.array(new, ROW), files, places], names=["old", "new", "file", "row"])


def is_unique(rows: Iterable[Row], table: Relation) -> bool:
    """Return whether no two rows have the same key."""
    key = KEYS[table.indexes[1].name]
    ids, keys = [row[0] for row in rows], [key(row) for row in rows if key(row) is not None]
    return len(ids) == len(set(ids)) and len(keys) == len(set(keys))


def applied(rows: set[Row], changed: pa.Table, table: Relation = TABLE) -> set[Row]:
    """Return the rows after the changes, one after the other, each of which must leave unique keys."""
    for change in changed.to_pylist():
        old, new = (tuple(row.values()) if row is not None else None for row in (change["old"], change["new"]))
        assert old is None or old in rows
        assert (old is None) == (change["file"] is None) == (change["row"] is None)
        rows = (rows - {old}) | ({new} if new is not None else set())
        assert is_unique(rows, table), change
    return rows


def exchanges(rng: random.Random, table: Relation) -> tuple[set[Row], list[tuple[Row | None, Row | None]], set[Row]]:
    """Return rows, changes of some of them, and the rows afterwards."""

    def row() -> Row:
        return rng.randrange(7), rng.choice((None, 10, 11, 12, 13)), rng.randrange(2)

    while True:
        before = [row() for _ in range(5)]
        after = [rng.choice((old, None, row(), (old[0], *row()[1:]))) for old in before]
        pairs: list[tuple[Row | None, Row | None]] = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        pairs += [(None, row()) for _ in range(rng.randrange(2))]
        remaining = [*(new for old, new in zip(before, after, strict=True) if new is not None), *(new for old, new in pairs if old is None)]
        if len(pairs) > 2 and is_unique(before, table) and is_unique(remaining, table):
            rng.shuffle(pairs)
            return set(before), pairs, set(remaining)


TABLES = pytest.mark.parametrize("table", [TABLE, PARTIAL, OF_EXPRESSION], ids=["plain", "partial", "expression"])


@TABLES
@pytest.mark.parametrize("seed", range(60))
def test_each_change_leaves_unique_keys(seed: int, table: Relation) -> None:
    before, pairs, remaining = exchanges(random.Random(seed), table)
    assert applied(before, untangled(table, changes(pairs)), table) == remaining


@TABLES
@pytest.mark.parametrize("seed", range(20))
def test_changes_of_several_writers_leave_unique_keys_in_any_order_of_the_writers(seed: int, table: Relation) -> None:
    rng = random.Random(seed)
    before, pairs, remaining = exchanges(rng, table)
    writers = [apart(unique_keys(table), changes(part)) for part in (pairs[::2], pairs[1::2]) if part]
    rng.shuffle(writers)
    kinds = (lambda part: pc.is_null(part["new"]), lambda part: pc.and_(pc.is_valid(part["old"]), pc.is_valid(part["new"])))
    ordered = [part.filter(kind(part)) for kind in (*kinds, lambda part: pc.is_null(part["old"])) for part in writers]
    assert applied(before, pa.concat_tables(ordered), table) == remaining


def test_rows_that_only_shift_stay_updates() -> None:
    shifted = untangled(TABLE, changes([((number, None, 0), (number + 1, None, 0)) for number in range(5)]))
    assert shifted["new"].null_count == shifted["old"].null_count == 0
    assert applied({(number, None, 0) for number in range(5)}, shifted) == {(number + 1, None, 0) for number in range(5)}
