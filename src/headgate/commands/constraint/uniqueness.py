"""Enforce PRIMARY KEY and UNIQUE: no two rows of a table have the same key (NULLs are distinct).

`check_new` checks rows that a statement adds, `check_table` checks a table that gets a key. Keys are compared by their types (1.0 and 1.00
are the same key). A statement is checked as a whole, after all its rows are written. So ``UPDATE t SET a = a + 1`` succeeds here, while
PostgreSQL may reject it, depending on the order of the rows. Deferred constraints are not checked then (`judged`), but at the end of the
transaction (`put_off`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Index, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.changes import lookup
from headgate.commands import disclosure, stored_expression
from headgate.commands.constraint import reference_key
from headgate.commands.deferral import Deferrable
from headgate.commands.query import rendering
from headgate.errors import PostgresError
from headgate.expression.node import ColumnRef, Expression, walk
from headgate.expression.spark import compiler
from headgate.sql.names import quote_ident
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.transaction import Transaction
from headgate.types.text.text import write_text

if TYPE_CHECKING:
    from headgate.commands.session import Session

_BROADCAST_KEYS = 200_000
"""Maximum number of keys that are broadcast to all tasks that read a table. They pass through the driver."""


def judged(session: Session, relation: Relation) -> list[Index]:
    """Return the unique indexes that are checked after a statement: all but those of deferred constraints."""
    return [index for index in relation.unique_indexes if not _put_off(session, index)]


def put_off(session: Session, transaction: Transaction, relation: Relation, keys: Callable[[Index], pa.Table] | None = None) -> None:
    """Defer the checks of deferred constraints after rows were written: for the keys that `keys` returns (k0, k1, …), or for all."""
    for index in relation.unique_indexes:
        if _put_off(session, index):
            index_keys = keys(index) if keys is not None and index.plain else None
            deferrable = Deferrable(index.constraint, index.deferred)
            check = functools.partial(_check_again, session, transaction, relation, index.constraint, index_keys)
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
        is_shown = disclosure.tells_key(session, transaction.cursor, relation, index.attnums)
        raise violated(relation, index, reference_key.shown(relation, index.attnums, values) if is_shown else None)


@dataclass(frozen=True)
class KeyPart:
    """One part of a key: the title of a column or index expression in messages, and the expression to evaluate."""

    title: str
    expression: Expression


def parts(relation: Relation, index: Index) -> list[KeyPart]:
    """Return the parts of an index's key, in order."""
    found, texts = [], list(index.expressions)
    for attnum in index.attnums:
        column = relation.numbered(attnum) if attnum else None
        if column is not None:
            reference = ColumnRef(type=stored_expression.type_of(column), name=column.name, attnum=attnum, key=column.name)
            found.append(KeyPart(quote_ident(column.name), reference))
        else:
            text = texts.pop(0)
            found.append(KeyPart(text, stored_expression.indexed(text, relation)))
    return found


def used_columns(relation: Relation, index: Index) -> set[int]:
    """Return the attnums of the columns that an index depends on: those of its key, its expressions and its predicate."""
    found = {attnum for attnum in index.attnums if attnum}
    for text in (*index.expressions, *([index.predicate] if index.predicate is not None else [])):
        found |= {node.attnum for node in walk(stored_expression.indexed(text, relation)) if isinstance(node, ColumnRef)}
    return found


def keyed(relation: Relation, index: Index, rows: DataFrame) -> DataFrame:
    """Return the keys of rows that the index includes: their values v0, v1, …, and their sort keys k0, k1, … for comparison."""
    places = {column.name: F.col(quoted(column.name)) for column in relation.columns}
    if index.predicate is not None:
        rows = rows.where(compiler.condition(stored_expression.indexed(index.predicate, relation), places))
    selected: list[Column] = []
    for place, part in enumerate(parts(relation, index)):
        value = compiler.compile(part.expression, places)
        selected += [value.alias(f"v{place}"), compiler.sort_key(part.expression, places).alias(f"k{place}")]
    keys = rows.select(*selected)
    if not index.nulls_not_distinct:
        for place in range(len(index.attnums)):
            keys = keys.where(F.col(f"v{place}").isNotNull())
    return keys


def check_table(transaction: Transaction, relation: Relation, index: Index) -> None:
    """Raise 23505 `could not create unique index` if the table has a key twice."""
    if relation.kind != RelationKind.TABLE:
        return
    transaction.lock(relation)
    if not any(state.files for state in transaction.states(relation)):
        return  # an empty table, as in CREATE TABLE, needs no Spark job
    found = _twice(keyed(relation, index, transaction.frame(relation)), len(index.attnums))
    if found is not None:
        raise PostgresError(
            "23505", f'could not create unique index "{index.name}"', detail=f"Key {_shown(relation, index, found)} is duplicated.",
            schema=relation.schema, table=relation.name, constraint=index.name,
        )  # fmt: skip


def check_applied(transaction: Transaction, relation: Relation, index: Index, session: Session | None = None) -> None:
    """Raise 23505 `duplicate key value` if the table has a key twice, after a worker or a session has written rows."""
    with transaction.seeing_newest():
        rows = transaction.frame(relation)
    duplicate = _twice(keyed(relation, index, rows), len(index.attnums))
    if duplicate is not None:
        is_shown = session is None or disclosure.tells_key(session, transaction.cursor, relation, index.attnums)
        raise violated(relation, index, _shown(relation, index, duplicate) if is_shown else None)


def _twice(rows: DataFrame, width: int) -> DataFrame | None:
    keys = [f"k{place}" for place in range(width)]
    first = [F.first(f"v{place}").alias(f"v{place}") for place in range(width)]
    double = (
        rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows"), *first).where("rows > 1").select(*[f"v{place}" for place in range(width)])
    )
    duplicate = double.limit(1)
    return duplicate if not duplicate.isEmpty() else None


def check_new(
    session: Session, transaction: Transaction, relation: Relation, rows: DataFrame, existing: DataFrame | None = None,
    *, indexes: Sequence[Index],
) -> None:  # fmt: skip
    """Raise 23505 if new rows (columns by name) have a key twice or a key of `existing` (by default the table)."""
    stored = _stored(transaction, relation) if existing is None else existing
    for index in indexes:
        new = keyed(relation, index, rows)
        duplicate = None if stored is None else _met(keyed(relation, index, stored), new, index, looked_up=existing is None)
        duplicate = _twice(new, len(index.attnums)) if duplicate is None else duplicate
        if duplicate is None:
            continue
        is_shown = disclosure.tells_key(session, transaction.cursor, relation, index.attnums)
        raise violated(relation, index, _shown(relation, index, duplicate) if is_shown else None)


def _stored(transaction: Transaction, relation: Relation) -> DataFrame | None:
    """Return all rows of a table. Return None, without a Spark job, if it has none."""
    with transaction.seeing_newest():
        if not relation.is_partitioned:
            state, pending = transaction.shown(relation)
            if not state.files and not pending:
                return None
        return transaction.frame(relation)


def _met(there: DataFrame, new: DataFrame, index: Index, *, looked_up: bool) -> DataFrame | None:
    """Return a key (v0, v1, …) that both frames have, or None.

    `looked_up`: `there` is a whole table. Up to `_BROADCAST_KEYS` new keys are broadcast to all tasks that read it. More would exhaust the
    driver's Java heap, so they use a merge join. Otherwise both frames belong to one statement, and Spark chooses the join.
    """
    keys = [f"k{place}" for place in range(len(index.attnums))]
    new_keys = new.select(*[F.col(key).alias(f"n_{key}") for key in keys])
    condition = F.lit(True)
    for key in keys:
        condition = condition & (F.col(key).eqNullSafe(F.col(f"n_{key}")) if index.nulls_not_distinct else F.col(key) == F.col(f"n_{key}"))
    if looked_up:
        new_keys = F.broadcast(new_keys) if new_keys.count() <= _BROADCAST_KEYS else new_keys.hint("merge")
    hit = there.join(new_keys, condition, "left_semi").select(*[f"v{place}" for place in range(len(keys))]).limit(1)
    return None if hit.isEmpty() else hit


def violated(relation: Relation, index: Index, shown: str | None = None) -> PostgresError:
    """Return the error 23505 for a key, which the DETAIL shows as ``(a)=(1)``. None: the key is not shown."""
    return PostgresError(
        "23505", f'duplicate key value violates unique constraint "{index.name}"',
        detail=None if shown is None else f"Key {shown} already exists.",
        schema=relation.schema, table=relation.name, constraint=index.name,
    )  # fmt: skip


def _shown(relation: Relation, index: Index, found: DataFrame) -> str:
    table = found.toArrow()
    titles, values = [], []
    for place, part in enumerate(parts(relation, index)):
        titles.append(part.title)
        kind = part.expression.type
        value = write_text(table.column(place).combine_chunks(), kind.oid, kind.typmod)[0].as_py()
        values.append("null" if value is None else str(value))
    return f"({', '.join(titles)})=({', '.join(values)})"
