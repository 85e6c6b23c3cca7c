"""Every way of merging a batch gives the table and the change feed that applying the changes row by row gives."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.storage.tables import DATABASE, INT4, INT8, TEXT, contents, made, relation

from headgate.catalog.relation.relation import Index
from headgate.changes import lookup
from headgate.changes import merge as merge_module
from headgate.changes.merge import FEW_CHANGES, Merged, merge
from headgate.storage import feed, write
from headgate.storage.delta import rows
from headgate.storage.engine import Engine
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import arrow_row
from headgate.types import registry

T = relation(21000, "t", id=INT8, v=TEXT, w=INT4)
KEY = (1,)
Row = dict[str, Any]


def row(key: int, v: str | None, w: int | None = 0) -> Row:
    return {"id": key, "v": v, "w": w}


def batch(*changes: tuple[Any, ...], table: Any = T) -> pa.Table:
    """Return changes (commit_lsn, op, old, new[, unchanged]) as a frame."""
    struct = pa.struct(list(arrow_row(table)))
    return pa.table(
        {
            "commit_lsn": pa.array([change[0] for change in changes], pa.int64()),
            "seq": pa.array([0] * len(changes), pa.int64()),
            "position": pa.array(range(len(changes)), pa.int64()),
            "op": pa.array([change[1] for change in changes], pa.string()),
            "old": pa.array([change[2] for change in changes], struct),
            "new": pa.array([change[3] for change in changes], struct),
            "unchanged": pa.array([change[4] if len(change) > 4 else None for change in changes], pa.list_(pa.string())),
        }
    )


WAYS = [
    pytest.param({}, id="small"),
    pytest.param({"few": -1}, id="by column"),
    pytest.param({"by_tasks": True}, id="by tasks"),
]


def merged(
    engine: Engine, transaction: Transaction, table: Any, key: Any, changes: pa.Table, *, few: int = FEW_CHANGES, by_tasks: bool = False
) -> Merged:
    """Merge a batch in one of the ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_module, "FEW_CHANGES", few)
        if by_tasks:
            patch.setattr(engine, "settings", {**engine.settings, "small_batch_rows": "0"})
        return merge(transaction, table, key, changes)


def applied(
    engine: Engine, changes: pa.Table, *, commit: bool = True, key: Any = KEY, table: Any = T, **way: Any
) -> tuple[Merged, list[Any]]:
    """Return the statistics of a merge, and the table's contents after it."""
    transaction = engine.begin(DATABASE)
    result = merged(engine, transaction, table, key, changes, **way)
    rows = contents(transaction, table)
    if commit and not result.conflict:
        transaction.commit()
    else:
        transaction.rollback()
    return result, rows


def feed_of(engine: Engine, transaction: Transaction) -> list[str]:
    """Return the changes that a transaction's writes have recorded, sorted. Check that the log counts as many changes."""
    transaction.staging.make_whole()
    changes = feed.changes(engine, T, transaction.staging.writes).select("op", "old", "new").toArrow().to_pylist()
    assert sum(logged_write.changes for logged_write in transaction.staging.logged_writes()) == len(changes)
    return sorted(map(repr, changes))


@pytest.mark.parametrize("way", WAYS)
def test_swapped_and_moved_keys_keep_values_that_were_not_sent(engine: Engine, way: dict[str, Any]) -> None:
    made(engine, T, (1, "one", 1), (2, "two", 2), (3, "three", 3))
    changes = batch(
        (1, "U", row(1, None, None), row(9, None, 10), ["v"]),
        (1, "U", row(2, None, None), row(1, None, 20), ["v"]),
        (1, "U", row(9, None, None), row(2, None, 30), ["v"]),
        (2, "U", row(3, None, None), row(4, "moved", 3)),
        (3, "I", None, row(5, "new")),
        (3, "U", None, row(5, None, 7), ["v"]),
    )
    done, rows = applied(engine, changes, **way)
    assert done.conflict is None
    assert rows == [(1, "two", 20), (2, "one", 30), (4, "moved", 3), (5, "new", 7)]


def test_spark_ui_shows_what_a_job_of_a_batch_does(engine: Engine) -> None:
    made(engine, T, (1, "one", 1))
    applied(engine, batch((1, "U", None, row(1, "a"))), by_tasks=True)
    context = engine.spark._jsparkSession.sparkContext()  # type: ignore[attr-defined]
    context.listenerBus().waitUntilEmpty()
    listed = context.statusStore().jobsList(None)
    assert 'Some(merge into "t")' in [listed.apply(index).description().toString() for index in range(listed.size())]


def test_batch_by_tasks_leaves_nothing_in_sparks_cache(engine: Engine) -> None:
    made(engine, T, (1, "one", 1), (2, "two", 2))
    applied(engine, batch((1, "U", None, row(1, "a")), (1, "U", row(2, None, None), row(3, "b"))), by_tasks=True)
    assert engine.spark._jsparkSession.sharedState().cacheManager().isEmpty()  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", WAYS)
def test_changes_of_missing_rows_are_skipped_and_counted(engine: Engine, way: dict[str, Any]) -> None:
    made(engine, T, (1, "one", 1))
    changes = batch(
        (1, "U", None, row(7, "x")), (1, "D", row(8, None), None), (2, "U", row(6, None, None), row(5, "y")), (3, "D", row(1, None), None)
    )
    done, rows = applied(engine, changes, **way)
    assert (done.missing, rows) == (3, [])


@pytest.mark.parametrize("way", [pytest.param({}, id="small"), pytest.param({"by_tasks": True}, id="by tasks")])
def test_missing_row_is_counted_for_each_change_under_every_key(engine: Engine, way: dict[str, Any]) -> None:
    made(engine, T, (1, "one", 1))
    changes = batch(
        (1, "U", row(7, None, None), row(8, "x")),
        (1, "U", row(8, None, None), row(9, "x")),
        (2, "D", row(9, None, None), None),
        (3, "I", None, row(7, "new")),
        (3, "U", None, row(7, "newer")),
        (4, "U", row(1, None, None), row(2, "moved", 1)),
    )
    done, rows = applied(engine, changes, **way)
    assert (done.missing, rows) == (3, [(2, "moved", 1), (7, "newer", 0)])


@pytest.mark.parametrize("way", WAYS)
def test_insert_of_an_existing_key_is_reported_and_nothing_is_written(engine: Engine, way: dict[str, Any]) -> None:
    made(engine, T, (1, "one", 1), (2, "two", 2))
    changes = batch((5, "I", None, row(3, "fine")), (7, "I", None, row(2, "again")), (8, "I", None, row(1, "too")))
    done, rows = applied(engine, changes, **way)
    assert done.conflict is not None
    assert (done.conflict.commit_lsn, done.conflict.key.to_pylist()) == (7, [{"id": 2}])
    assert rows == [(1, "one", 1), (2, "two", 2)]


@pytest.mark.parametrize("way", WAYS)
def test_two_inserts_of_one_key_in_a_batch_are_a_conflict(engine: Engine, way: dict[str, Any]) -> None:
    made(engine, T)
    done, _ = applied(engine, batch((5, "I", None, row(3, "one")), (6, "I", None, row(3, "two"))), **way)
    assert done.conflict is not None
    assert (done.conflict.commit_lsn, done.conflict.key.to_pylist()) == (6, [{"id": 3}])


@pytest.mark.parametrize("way", WAYS)
def test_changes_before_a_truncate_have_no_effect(engine: Engine, way: dict[str, Any]) -> None:
    made(engine, T, (1, "one", 1))
    changes = batch((1, "U", None, row(1, "x")), (2, "I", None, row(2, "y")), (3, "T", None, None), (4, "I", None, row(1, "z")))
    assert applied(engine, changes, **way)[1] == [(1, "z", 0)]


@pytest.mark.parametrize("way", WAYS)
def test_new_rows_with_unique_values_of_deleted_rows_are_published_after_them(engine: Engine, way: dict[str, Any]) -> None:
    keys = (Index("u_pkey", 21003, KEY, unique=True, primary=True), Index("u_v_key", 21004, (2,), unique=True))
    table = replace(relation(21002, "u", id=INT8, v=TEXT, w=INT4), indexes=keys)
    made(engine, table, *[(number, f"v{number}", 0) for number in range(40)])
    replaced = [(1, "D", row(number, None), None) for number in range(20)] + [
        (1, "I", None, row(100 + number, f"v{number}")) for number in range(20)
    ]
    rewritten = [(2, "U", None, row(number, f"v{number}", 1)) for number in range(20, 40)]
    transaction = engine.begin(DATABASE)
    merged(engine, transaction, table, KEY, batch(*replaced, *rewritten, table=table), **way)
    transaction.staging.make_whole()
    changes = feed.changes(engine, table, transaction.staging.writes).orderBy("seq", "position")
    ops = [change["op"] for change in changes.collect()]
    transaction.rollback()
    assert sorted(ops) == ["D"] * 20 + ["I"] * 20 + ["U"] * 20
    assert max(index for index, op in enumerate(ops) if op == "D") < ops.index("I")


@pytest.mark.parametrize("way", WAYS)
def test_new_rows_are_appended_without_a_change_file(engine: Engine, way: dict[str, Any]) -> None:
    made(engine, T, *[(number, "x", number) for number in range(100)])
    folder = Path(str(engine.tables[DATABASE, T.oid].folder.path))
    applied(engine, batch((1, "I", None, row(100, "new"))), **dict(way))
    assert not list(folder.rglob("cdc-*"))
    applied(engine, batch((1, "U", None, row(100, "newer"))), **dict(way))
    assert list(folder.rglob("cdc-*"))


def test_driver_reads_and_writes_no_rows_of_a_batch_by_tasks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made(engine, T, (1, "one", 1), (2, "two", 2), (3, "three", 3))
    changes = batch((1, "U", row(1, "one", 1), row(1, "changed", 1)), (2, "D", row(2, "two", 2), None), (3, "I", None, row(4, "four", 4)))
    monkeypatch.setattr(engine, "settings", {**engine.settings, "small_batch_rows": "0"})
    transaction = engine.begin(DATABASE)
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((write, "write_changed"), (write, "append_rows"), (lookup, "find"), (rows, "read")):
            patch.setattr(module, name, lambda *_, name=name, **__: pytest.fail(f"{name} was called"))
        assert merge(transaction, T, KEY, changes).conflict is None
    assert contents(transaction, T) == [(1, "changed", 1), (3, "three", 3), (4, "four", 4)]
    transaction.commit()
    assert contents(engine, T) == [(1, "changed", 1), (3, "three", 3), (4, "four", 4)]


def test_each_change_without_a_key_affects_one_equal_row(engine: Engine) -> None:
    made(engine, T, (1, None, 1), (1, None, 1), (2, "two", 2))
    changes = batch(
        (1, "D", row(1, None, 1), None),
        (2, "U", row(2, "two", 2), row(3, "three", 3)),
        (3, "I", None, row(3, "three", 3)),
        (4, "D", row(8, "not there", 1), None),
    )
    rows = applied(engine, changes, key=None)[1]
    assert rows[-2:] == [(3, "three", 3), (3, "three", 3)]
    assert rows.count((1, None, 1)) == 1


def test_update_without_a_key_of_a_missing_row_is_skipped(engine: Engine) -> None:
    made(engine, T, (1, "one", 1))
    changes = batch((1, "U", row(2, "two", 2), row(3, "three", 3)), (2, "D", row(5, "x", 1), None), (3, "I", None, row(5, "x", 1)))
    assert applied(engine, changes, key=None)[1] == [(1, "one", 1), (5, "x", 1)]


@pytest.mark.parametrize("way", WAYS)
def test_equal_numbers_of_different_scales_are_one_key(engine: Engine, way: dict[str, Any]) -> None:
    numbers = relation(21001, "n", k=registry.NUMERIC, v=TEXT)
    made(engine, numbers, ("1.50", "a"), ("100", "b"))
    changes = batch((1, "U", None, {"k": "1.5", "v": "changed"}), (2, "D", {"k": "100.00", "v": None}, None), table=numbers)
    assert applied(engine, changes, table=numbers, **way)[1] == [("1.5", "changed")]


def test_new_rows_of_a_table_without_a_key_are_stored_as_sent(engine: Engine) -> None:
    numbers = relation(21002, "m", n=registry.NUMERIC, f=registry.FLOAT8)
    made(engine, numbers, ("1.0", 0.0), ("2.0", 0.0))
    changes = batch(
        (1, "U", {"n": "1.0", "f": 0.0}, {"n": "1.000", "f": -0.0}),
        (2, "I", None, {"n": "2.00", "f": -0.0}),
        (2, "I", None, {"n": "3.0", "f": 0.0}),
        (3, "D", {"n": "3.00", "f": -0.0}, None),
        table=numbers,
    )
    rows = applied(engine, changes, key=None, table=numbers)[1]
    assert sorted(map(repr, rows)) == ["('1.000', -0.0)", "('2.0', 0.0)", "('2.00', -0.0)"]


def stream(rng: random.Random, stored: list[int], length: int, kinds: str) -> tuple[list[tuple[Any, ...]], dict[int, Row]]:
    """Return a random stream of valid changes of rows with these keys (v of a key is its name), and the rows after it.

    If `kinds` contains M (updates that change keys), some of the updates do not send v.
    """
    rows: dict[int, Row] = {key: row(key, f"v{key}", key) for key in stored}
    changes: list[tuple[Any, ...]] = []
    for number in range(length):
        lsn, free = number // 3, [key for key in range(12) if key not in rows]
        kind = rng.choice(kinds)
        if kind == "I" and free:
            key = rng.choice(free)
            rows[key] = row(key, f"n{number}", number)
            changes.append((lsn, "I", None, dict(rows[key])))
        elif kind == "D" and rows:
            key = rng.choice(list(rows))
            del rows[key]
            changes.append((lsn, "D", row(key, None, None), None))
        elif rows and (kind == "U" or free):
            key = rng.choice(list(rows))
            to = rng.choice(free) if kind == "M" and free else key
            old_row = rows.pop(key)
            unsent = "M" in kinds and rng.random() < 0.4
            rows[to] = row(to, old_row["v"] if unsent else f"u{number}", number)
            new_row = {**rows[to], "v": None if unsent else rows[to]["v"]}
            changes.append((lsn, "U", row(key, None, None) if to != key else None, new_row, ["v"] if unsent else None))
    return changes, rows


@pytest.mark.parametrize(
    ("seed", "kinds"),
    [(0, "IUUUMD"), pytest.param(0, "IUUUD", marks=pytest.mark.slow), pytest.param(1, "IUUUMD", marks=pytest.mark.slow)],
    ids=["moves", "no moves", "more moves"],
)
def test_all_ways_give_the_same_table_and_the_same_change_feed(engine: Engine, seed: int, kinds: str) -> None:
    rng = random.Random(seed)
    stored = sorted(rng.sample(range(12), 6))
    made(engine, T, *[(key, f"v{key}", key) for key in stored])
    for _ in range(2):
        current = {key: (v, w) for key, v, w in contents(engine, T)}
        changes, _ = stream(rng, list(current), 30, kinds)
        expected = _by_model(current, changes)
        feeds = []
        for way in ({}, {"few": -1}, {"by_tasks": True}):
            transaction = engine.begin(DATABASE)
            result = merged(engine, transaction, T, KEY, batch(*changes), **way)  # type: ignore[arg-type]
            assert result.conflict is None
            assert contents(transaction, T) == expected
            feeds.append(feed_of(engine, transaction))
            transaction.rollback()
        assert all(feed == feeds[0] for feed in feeds)
        applied(engine, batch(*changes))


def _by_model(current: dict[int, tuple[Any, Any]], changes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows after applying the changes one by one to a dictionary."""
    rows = dict(current)
    for _, op, old, new, *unchanged in changes:
        key = (old or new)["id"]
        if op == "D":
            del rows[key]
        elif op == "I":
            rows[key] = (new["v"], new["w"])
        else:
            old_row = rows.pop(key)
            rows[new["id"]] = (old_row[0] if unchanged[0] else new["v"], new["w"])
    return sorted(((key, *v) for key, v in rows.items()), key=repr)
