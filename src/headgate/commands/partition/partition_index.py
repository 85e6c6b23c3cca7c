"""Indexes and keys of partitioned tables: created for the table, and for each partition below it as a part of that index.

Called by CREATE TABLE, CREATE INDEX, ALTER TABLE ADD … and by all commands that make a table a partition (tablecmds.c:
AttachPartitionEnsureIndexes; indexcmds.c: DefineIndex). A partition's existing index is used if it matches and has no parent yet.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import index as indexes
from headgate.catalog.relation import inheritance, object_name, partition, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.index import IndexKey
from headgate.catalog.relation.relation import Column, Index, Relation
from headgate.commands.constraint import uniqueness
from headgate.errors import PostgresError
from headgate.storage.transaction.transaction import Transaction


def require_partition_columns(relation: Relation, key: IndexKey) -> None:
    """Raise 0A000 for a unique key of a partitioned table that lacks a partition column, because no leaf could enforce it."""
    if not relation.is_partitioned or not key.unique or relation.partition_key is None:
        return
    word = "PRIMARY KEY" if key.primary else "UNIQUE"
    for attnum in relation.partition_key.attnums:
        if attnum not in key.attnums:
            column = relation.numbered(attnum)
            raise PostgresError(
                "0A000", "unique constraint on partitioned table must include all partitioning columns",
                detail=f'{word} constraint on table "{relation.name}" lacks column "{column.name if column else ""}"'
                " which is part of the partition key.",
            )  # fmt: skip


def add(transaction: Transaction, relation: Relation, key: IndexKey, *, only: bool = False) -> int:
    """Create an index or key, also for the partitions unless `only`. A unique one checks the rows. Return the index's oid."""
    require_partition_columns(relation, key)
    if key.unique:
        uniqueness.check_table(transaction, relation, key.index(key.name or _choose_name(transaction.cursor, relation, key)))
    oid = indexes.add_key(transaction.cursor, transaction.catalog.next_oid, relation, key)
    below = children(transaction.cursor, relation)
    if only and below:
        indexes.set_valid(transaction.cursor, relation.database, oid, valid=False)
        return oid
    for child in below:
        _follow(transaction, relation, child, key, oid)
    return oid


def inherit(transaction: Transaction, parent: Relation, child: Relation) -> None:
    for index in parent.indexes:
        current = relations.get(transaction.cursor, child.database, child.oid)
        _follow(transaction, parent, current, _key_of(transaction.cursor, parent, index), index.oid)


def _key_of(cursor: Cursor, relation: Relation, index: Index) -> IndexKey:
    scope = [relation.database, index.oid]
    sql = (
        "SELECT i.indoption, i.indclass, c.relam, k.condeferred FROM hg.pg_index i JOIN hg.pg_class c ON c.oid = i.indexrelid"
        " AND c.dbid = i.dbid LEFT JOIN hg.pg_constraint k ON k.conindid = i.indexrelid AND k.dbid = i.dbid AND k.contype IN ('p', 'u')"
        " WHERE i.dbid = ? AND i.indexrelid = ?"
    )
    [(options, classes, method, deferred)] = rows(cursor, sql, scope)
    sql = "SELECT attnum, attname, atttypid, atttypmod, attcollation FROM hg.pg_attribute WHERE dbid = ? AND attrelid = ? ORDER BY attnum"
    own = {attnum: Column(attnum, name, oid, typmod, collation=of) for attnum, name, oid, typmod, of in rows(cursor, sql, scope)}
    return IndexKey(
        index.attnums, primary=index.primary, unique=index.unique, constraint=bool(index.constraint), deferrable=index.deferrable,
        deferred=bool(deferred), included=index.included, expressions=index.expressions, predicate=index.predicate,
        expression_columns=tuple(own[place] for place, attnum in enumerate(index.attnums, 1) if not attnum),
        nulls_not_distinct=index.nulls_not_distinct, options=tuple(options), classes=tuple(classes), method=method,
    )  # fmt: skip


def _follow(transaction: Transaction, parent: Relation, child: Relation, key: IndexKey, above: int) -> None:
    """Create or attach the index of a partition that corresponds to one of its parent."""
    cursor = transaction.cursor
    own = replace(key, attnums=corresponding(parent, child, key.attnums), included=corresponding(parent, child, key.included), name=None)
    existing = _free(cursor, child, own)
    oid = add(transaction, child, own) if existing is None else existing.oid
    partition.attach_index(cursor, child.database, oid, above)


def _free(cursor: Cursor, child: Relation, key: IndexKey) -> Index | None:
    """Return an index of the partition that matches and is not part of another index, or None."""
    attached = partition.index_parents(cursor, child.database)
    model = key.index("")
    for index in child.indexes:
        expected = replace(
            model, name=index.name, oid=index.oid, primary=key.primary, replident=index.replident, constraint=index.constraint,
            immediate=index.immediate, deferrable=key.deferrable, deferred=key.deferred,
        )  # fmt: skip
        if expected == index and index.oid not in attached and (not key.constraint or index.constraint):
            return index
    return None


def corresponding(parent: Relation, child: Relation, attnums: tuple[int, ...]) -> tuple[int, ...]:
    """Return a partition's attnums of its parent's columns. 0 (an expression) stays 0."""
    names = [column.name if (column := parent.numbered(attnum)) else "" for attnum in attnums]
    return tuple(column.attnum if (column := child.column(name)) else 0 for name in names)


def _choose_name(cursor: Cursor, relation: Relation, key: IndexKey) -> str:
    column_names = "_".join(column.name for column in relation.columns_at(key.attnums))
    label = "pkey" if key.primary else "key" if key.constraint else "idx"
    middle = None if key.primary else column_names
    place = relation.database, relation.namespace_oid
    return object_name.choose_name(cursor, *place, relation.name, middle, label, constraint=key.constraint)


def children(cursor: Cursor, relation: Relation) -> list[Relation]:
    """Return the partitions directly below a table. A table that is not partitioned has none."""
    return inheritance.children(cursor, relation) if relation.is_partitioned else []


def drop(cursor: Cursor, relation: Relation, index: int) -> None:
    """Remove an index of a table, and the partitions' indexes that belong to it."""
    below = [child for child, parent in partition.index_parents(cursor, relation.database).items() if parent == index]
    for child in below:
        owner = rows(cursor, "SELECT indrelid FROM hg.pg_index WHERE dbid = ? AND indexrelid = ?", [relation.database, child])
        drop(cursor, relations.get(cursor, relation.database, int(owner[0][0])), child)
    removal.drop_index(cursor, relations.get(cursor, relation.database, relation.oid), index)


def validate(cursor: Cursor, database: int, index: int) -> None:
    """Mark an index of a partitioned table as valid if each partition has its part."""
    table = rows(cursor, "SELECT indrelid FROM hg.pg_index WHERE dbid = ? AND indexrelid = ?", [database, index])[0][0]
    parts = [child for child, parent in partition.index_parents(cursor, database).items() if parent == index]
    if len(parts) >= len(children(cursor, relations.get(cursor, database, table))):
        indexes.set_valid(cursor, database, index, valid=True)
