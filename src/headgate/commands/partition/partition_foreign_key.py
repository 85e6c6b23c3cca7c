"""Foreign keys of partitioned tables: declared for the table, and cloned for each partition below it.

Called by ADD FOREIGN KEY and by all commands that make a table a partition (tablecmds.c: addFkRecurseReferencing, CloneFkReferencing,
tryAttachPartitionForeignKey). Rows are checked against the clone of the leaf that stores them, and errors name that leaf. Rows of the
referenced table are checked against the constraint of the partitioned table alone.

A partition's own constraint becomes the clone if it is equal to the parent's, is valid and is not a clone yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headgate.catalog.relation import foreign_key
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Check, ForeignKey, Index, Relation
from headgate.commands.constraint import referential_action
from headgate.commands.partition import partition_index
from headgate.commands.session import Session
from headgate.storage.transaction.transaction import Transaction


def clone(transaction: Transaction, parent: Relation, key: ForeignKey, partition: int) -> Iterator[ForeignKey]:
    """Clone a constraint of `parent` for a partition (oid) and those below it. Yield the new constraints; rows are not checked."""
    cursor = transaction.cursor
    child = relations.get(cursor, parent.database, partition)
    columns = partition_index.corresponding(parent, child, key.columns)
    set_columns = partition_index.corresponding(parent, child, key.set_columns)
    own = replace(key, relation=child.oid, columns=columns, set_columns=set_columns, parent=key.oid)
    existing = next((candidate for candidate in child.foreign_keys if _is_equal(candidate, own)), None)
    if existing is not None:
        foreign_key.attach(cursor, child.database, existing.oid, key.oid)
        return
    constraints: list[ForeignKey | Check | Index] = [*child.foreign_keys, *child.checks]
    constraints += [index for index in child.indexes if index.constraint]
    is_used = any(candidate.name == key.name for candidate in constraints)
    created = foreign_key.create(cursor, transaction.engine.catalog.next_oid, child, replace(own, name="" if is_used else key.name))
    yield created
    for below in partition_index.children(cursor, child):
        yield from clone(transaction, child, created, below.oid)


def _is_equal(existing: ForeignKey, own: ForeignKey) -> bool:
    """Return whether a partition's own constraint can be the clone `own`."""
    return (
        not existing.parent
        and existing.validated
        and replace(existing, name=own.name, oid=own.oid, parent=own.parent, enabled=own.enabled) == own
    )


def check(session: Session, transaction: Transaction, keys: Sequence[ForeignKey]) -> None:
    """Check the rows of partitions against new constraints. Raise 23503."""
    for key in keys:
        referential_action.check_table(session, transaction, relations.get(transaction.cursor, transaction.database, key.relation), key)
