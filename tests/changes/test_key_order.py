"""Changes that are ordered by `untangled`, or written `apart`, satisfy the unique keys after each of them, and have the same result."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.storage.tables import INT4, relation

from headgate.catalog.relation.relation import Index
from headgate.changes.key_order import apart, untangled
from headgate.changes.lookup import key_of
from headgate.storage.write import arrow_row

TABLE = replace(
    relation(27000, "t", id=INT4, u=INT4),
    indexes=(Index("t_pkey", 27001, (1,), unique=True, primary=True), Index("t_u_key", 27002, (2,), unique=True)),
)
Row = tuple[int, int | None]
ROW = pa.struct(list(arrow_row(TABLE)))


def changes(pairs: list[tuple[Row | None, Row | None]]) -> pa.Table:
    """Return changes (old row, new row) in the form of `Transaction.rewrite`."""
    old, new = ([None if row is None else {"id": row[0], "u": row[1]} for row in rows] for rows in zip(*pairs, strict=True))
    places = pa.array([None if row is None else number for number, row in enumerate(old)], pa.int64())
    files = pa.array([None if row is None else "f" for row in old], pa.string())
    return pa.table([pa.array(old, ROW), pa.array(new, ROW), files, places], names=["old", "new", "file", "row"])


def applied(rows: set[Row], changed: pa.Table) -> set[Row]:
    """Return the rows after the changes, one after the other, each of which must leave unique keys."""
    for change in changed.to_pylist():
        old, new = ((row["id"], row["u"]) if row is not None else None for row in (change["old"], change["new"]))
        assert old is None or old in rows
        assert (old is None) == (change["file"] is None) == (change["row"] is None)
        rows = (rows - {old}) | ({new} if new is not None else set())
        for keys in ([key for key, _ in rows], [u for _, u in rows if u is not None]):
            assert len(keys) == len(set(keys)), change
    return rows


def exchanges(rng: random.Random) -> tuple[list[Row], list[tuple[Row | None, Row | None]], set[Row]]:
    """Return rows, changes of some of them, and the rows afterwards."""
    before = [(number, rng.choice((None, 10 + number))) for number in rng.sample(range(9), 6)]
    ids, us = rng.sample(range(9), 9), rng.sample(range(10, 19), 9)
    after = [(ids.pop(), rng.choice((None, us.pop()))) for _ in range(7)]
    kept = [rng.choice((row, None, *after[number : number + 1])) for number, row in enumerate(after[:6])]
    pairs: list[tuple[Row | None, Row | None]] = [*zip(before, kept, strict=True), (None, after[6])]
    pairs = [pair for pair in pairs if pair[0] != pair[1]]
    rng.shuffle(pairs)
    remaining = set(before) - {old for old, _ in pairs} | {new for _, new in pairs if new is not None}
    return before, pairs, remaining


@pytest.mark.parametrize("seed", range(200))
def test_each_change_leaves_unique_keys(seed: int) -> None:
    before, pairs, remaining = exchanges(random.Random(seed))
    assert applied(set(before), untangled(TABLE, changes(pairs))) == remaining


@pytest.mark.parametrize("seed", range(50))
def test_changes_of_several_writers_leave_unique_keys_in_any_order_of_the_writers(seed: int) -> None:
    rng = random.Random(seed)
    before, pairs, remaining = exchanges(rng)
    keys = [key_of(TABLE, index.attnums) for index in TABLE.indexes]
    writers = [apart(keys, changes(part)) for part in (pairs[::2], pairs[1::2]) if part]
    rng.shuffle(writers)
    kinds = (lambda part: pc.is_null(part["new"]), lambda part: pc.and_(pc.is_valid(part["old"]), pc.is_valid(part["new"])))
    ordered = [part.filter(kind(part)) for kind in (*kinds, lambda part: pc.is_null(part["old"])) for part in writers]
    assert applied(set(before), pa.concat_tables(ordered)) == remaining


def test_rows_that_only_shift_stay_updates() -> None:
    shifted = untangled(TABLE, changes([((number, None), (number + 1, None)) for number in range(5)]))
    assert shifted["new"].null_count == shifted["old"].null_count == 0
    assert applied({(number, None) for number in range(5)}, shifted) == {(number + 1, None) for number in range(5)}
