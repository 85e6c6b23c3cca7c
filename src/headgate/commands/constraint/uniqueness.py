"""Enforce PRIMARY KEY and UNIQUE: no two rows of a table have the same key (NULLs are distinct).

`refuse_clash` checks rows that a statement writes, `check_table` checks a table that gets a key. Keys are compared by their types (1.0 and
1.00 are the same key). A statement is checked as a whole, after all its rows are written. So ``UPDATE t SET a = a + 1`` succeeds here,
while PostgreSQL may reject it, depending on the order of the rows. Deferred constraints are not checked then (`judged`), but at the end of
the transaction (`put_off`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Index, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.changes import lookup
from headgate.commands import disclosure
from headgate.commands.constraint import index_key, reference_key, row_key
from headgate.commands.deferral import Deferrable
from headgate.commands.query import rendering
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.row_set import Rows
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers
from headgate.types.text.text import write_text
from headgate.types.text_column import PLAIN

_BROADCAST_KEYS = 200_000
"""Maximum number of keys that are broadcast to all tasks that read a table. They pass through the driver."""


def judged(session: Session, relation: Relation) -> list[Index]:
    """Return the unique indexes that are checked after a statement: all but those of deferred constraints."""
    return [index for index in relation.unique_indexes if not _put_off(session, index)]


def put_off(session: Session, transaction: Transaction, relation: Relation, rows: Rows) -> None:
    """Defer the checks of deferred constraints after these rows were written: for the keys of a few rows, or for the whole table."""
    for index in relation.unique_indexes:
        if _put_off(session, index):
            keys = row_key.distinct(transaction, relation, index, rows)[0] if isinstance(rows, pa.Table) and index.plain else None
            deferrable = Deferrable(index.constraint, index.deferred)
            check = functools.partial(_check_again, session, transaction, relation, index.constraint, keys)
            session.deferral.put_off(deferrable, relation.oid, check)


def _put_off(session: Session, index: Index) -> bool:
    return index.deferrable and bool(session.deferral.deferred(Deferrable(index.constraint, index.deferred)))


def _check_again(session: Session, transaction: Transaction, before: Relation, constraint: int, keys: pa.Table | None) -> None:
    """Run a deferred check. Raise 23505 if the table has one of the keys twice."""
    relation = relations.find(transaction.cursor, before.database, before.oid)
    index = None if relation is None else next((candidate for candidate in relation.indexes if candidate.constraint == constraint), None)
    if relation is None or index is None:
        return
    if keys is None:
        with rendering.running(session, transaction):
            check_applied(transaction, relation, index, session)
        return
    matches = lookup.find(transaction, relation, lookup.key_of(relation, index.attnums), keys)
    counted = matches.group_by("i", use_threads=False).aggregate([("row", "count")])
    duplicates = counted.filter(pc.greater(counted["row_count"], 1))
    if duplicates.num_rows:
        first = matches.filter(pc.equal(matches["i"], duplicates["i"][0])).slice(0, 1)
        values = reference_key.of_struct(first, "old", reference_key.column_names(relation, index.attnums))
        assert isinstance(values, pa.Table)
        raise _duplicate_error(session, transaction, relation, index, values)


def check_table(transaction: Transaction, relation: Relation, index: Index) -> None:
    """Raise 23505 `could not create unique index` if the table has a key twice."""
    if relation.kind != RelationKind.TABLE:
        return
    transaction.lock(relation, alone=True)
    if not any(state.files for state in transaction.reader.states(relation)):
        return  # an empty table, as in CREATE TABLE, needs no Spark job
    duplicate = _twice(index_key.keyed(relation, index, transaction.reader.frame(relation)), len(index.attnums))
    if duplicate is not None:
        raise PostgresError(
            "23505", f'could not create unique index "{index.name}"',
            detail=f"Key {_key_text(relation, index, duplicate.toArrow())} is duplicated.",
            schema=relation.schema, table=relation.name, constraint=index.name,
        )  # fmt: skip


def check_applied(transaction: Transaction, relation: Relation, index: Index, session: Session | None = None) -> None:
    """Raise 23505 `duplicate key value` if the table has a key twice, after a worker or a session has written rows."""
    with transaction.snapshot.seeing_newest():
        rows = transaction.reader.frame(relation)
    duplicate = _twice(index_key.keyed(relation, index, rows), len(index.attnums))
    if duplicate is not None:
        raise _duplicate_error(session, transaction, relation, index, duplicate.toArrow())


def _twice(rows: DataFrame, width: int) -> DataFrame | None:
    keys = [f"k{place}" for place in range(width)]
    first = [F.first(f"v{place}").alias(f"v{place}") for place in range(width)]
    double = (
        rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows"), *first).where("rows > 1").select(*[f"v{place}" for place in range(width)])
    )
    duplicate = double.limit(1)
    return duplicate if not duplicate.isEmpty() else None


def refuse_clash(
    session: Session, transaction: Transaction, relation: Relation, rows: Rows, *, leaving: Rows | None = None,
    without: Sequence[Index] = (),
) -> None:  # fmt: skip
    """Raise 23505 if a row of a statement (columns by name) has the key of another one, or of a stored row that is not `leaving`.

    `leaving`: positions (`file`, `row`) of the rows that the statement replaces or deletes. `without`: indexes that need no check, because
    the caller holds the table's lock and has found that no row has these keys.
    """
    _refuse(session, transaction, relation, rows, [index for index in judged(session, relation) if index not in without], leaving)


def check_rows(transaction: Transaction, relation: Relation, indexes: Sequence[Index], rows: pa.Table, replaced: pa.Table) -> None:
    """Raise 23505 if a row that a worker writes has the key of another one, or of a stored row that is not `replaced` (`file`, `row`)."""
    _refuse(None, transaction, relation, rows, indexes, replaced)


def _refuse(
    session: Session | None, transaction: Transaction, relation: Relation, rows: Rows, indexes: Sequence[Index], leaving: Rows | None
) -> None:
    if not indexes:
        return
    if isinstance(rows, pa.Table):
        _refuse_few(session, transaction, relation, rows, indexes, leaving)
    else:
        _refuse_many(session, transaction, relation, rows, indexes, leaving)


def _refuse_few(
    session: Session | None, transaction: Transaction, relation: Relation, rows: pa.Table, indexes: Sequence[Index], leaving: Rows | None
) -> None:
    """Raise the error of the first row. A lookup in the files takes 0.01 to 0.1 s, where a Spark job takes over a second (`lookup`)."""
    clashes = []
    for number, index in enumerate(indexes):
        stored = row_key.stored(transaction, relation, index, rows)
        if leaving is not None:
            stored = stored.filter(pa.array(~_are_among(stored, leaving)))
        clashes += [(row, number) for row in (*stored["place"].to_pylist(), *row_key.repeated(transaction, relation, index, rows))]
    if clashes:
        row, number = min(clashes)
        values = row_key.shown(transaction, relation, indexes[number], rows.slice(row, 1))
        raise _duplicate_error(session, transaction, relation, indexes[number], values)


def _refuse_many(
    session: Session | None, transaction: Transaction, relation: Relation, rows: DataFrame, indexes: Sequence[Index], leaving: Rows | None
) -> None:
    stored = _stored_rows(transaction, relation) if leaving is None else _remaining(transaction, relation, leaving)
    for index in indexes:
        new = index_key.keyed(relation, index, rows)
        duplicate = None if stored is None else _met(index_key.keyed(relation, index, stored), new, index, looked_up=leaving is None)
        duplicate = _twice(new, len(index.attnums)) if duplicate is None else duplicate
        if duplicate is not None:
            raise _duplicate_error(session, transaction, relation, index, duplicate.toArrow())


def _are_among(stored: pa.Table, leaving: Rows) -> NDArray[np.bool_]:
    """Return which of the stored rows (`file`, `row`) are leaving."""
    positions = leaving if isinstance(leaving, pa.Table) else leaving.select("file", "row").toArrow()
    files = pc.unique(positions["file"])

    def numbered(rows: pa.Table) -> NDArray[np.int64]:
        file: NDArray[np.int64] = np.asarray(pc.fill_null(pc.index_in(rows["file"], files), -1)).astype(np.int64)
        places: NDArray[np.int64] = (file << 40) | rows["row"].to_numpy()
        return places

    is_leaving: NDArray[np.bool_] = np.isin(numbered(stored), numbered(positions))
    return is_leaving


def _remaining(transaction: Transaction, relation: Relation, leaving: Rows) -> DataFrame:
    """Return the rows of a table that are not leaving, including those that the snapshot does not show, because their keys are in use."""
    if isinstance(leaving, pa.Table):
        leaving = local_frame(transaction.storage.spark, leaving.select(["file", "row"]))
    with transaction.snapshot.seeing_newest():
        rows = transaction.reader.positions(relation)
    return rows.join(leaving.select(F.col("file").alias(FILE), F.col("row").alias(ROW)), [FILE, ROW], "left_anti")


def _stored_rows(transaction: Transaction, relation: Relation) -> DataFrame | None:
    """Return all rows of a table. Return None, without a Spark job, if it has none."""
    with transaction.snapshot.seeing_newest():
        if not relation.is_partitioned:
            state, pending = transaction.reader.shown(relation)
            if not state.files and not pending:
                return None
        return transaction.reader.frame(relation)


def _met(there: DataFrame, new: DataFrame, index: Index, *, looked_up: bool) -> DataFrame | None:
    """Return a key (v0, v1, …) that both frames have, or None.

    `looked_up`: `there` is a whole table. Up to `_BROADCAST_KEYS` new keys are broadcast to all tasks that read it. More would exhaust the
    driver's Java heap, so they use a merge join. Otherwise both frames belong to one statement, and Spark chooses the join.
    """
    keys = [f"k{place}" for place in range(len(index.attnums))]
    new_keys = new.select(*[F.col(key).alias(f"n_{key}") for key in keys])
    condition = index_key.is_same(index, [F.col(key) for key in keys], [F.col(f"n_{key}") for key in keys])
    if looked_up:
        new_keys = F.broadcast(new_keys) if new_keys.count() <= _BROADCAST_KEYS else new_keys.hint("merge")
    hit = there.join(new_keys, condition, "left_semi").select(*[f"v{place}" for place in range(len(keys))]).limit(1)
    return None if hit.isEmpty() else hit


def _duplicate_error(
    session: Session | None, transaction: Transaction, relation: Relation, index: Index, values: pa.Table
) -> PostgresError:
    """Return the error 23505 for a key (v0, v1, …), which the DETAIL shows if the user may see it. A worker has no session.

    A serializable transaction gets 40001 if it has read the table, and others have changed the table since.
    """
    not_in_series = transaction.snapshot.not_in_series((relation.database, relation.oid))
    if not_in_series is not None:
        return not_in_series
    is_shown = session is None or disclosure.tells_key(session, transaction.cursor, relation, index.attnums)
    return PostgresError(
        "23505", f'duplicate key value violates unique constraint "{index.name}"',
        detail=f"Key {_key_text(relation, index, values, session)} already exists." if is_shown else None,
        schema=relation.schema, table=relation.name, constraint=index.name,
    )  # fmt: skip


def _key_text(relation: Relation, index: Index, values: pa.Table, session: Session | None = None) -> str:
    """Return a key as messages show it: ``(a, b)=(1, 2)``."""
    forms = PLAIN if session is None else session.context.forms
    titles, texts = [], []
    for place, part in enumerate(index_key.parts(relation, index)):
        titles.append(part.title)
        kind = part.expression.type
        text = write_text(buffers.whole(values.column(place)), kind.oid, session=forms)[0].as_py()
        texts.append("null" if text is None else str(text))
    return f"({', '.join(titles)})=({', '.join(texts)})"
