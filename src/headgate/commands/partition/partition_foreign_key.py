"""Foreign keys of partitioned tables, and those that reference them: declared for the table, and cloned for each partition below it.

Called by ADD FOREIGN KEY and by all commands that make a table a partition or end that (tablecmds.c: addFkRecurseReferenced,
addFkRecurseReferencing, CloneFkReferenced, CloneFkReferencing, tryAttachPartitionForeignKey, ATDetachCheckNoForeignKeyRefs).

    referencing partition    its rows are checked against its clone, and errors name it
    referenced partition     its clone has the actions for its rows, and errors name it. The parent has the checks, which look for a key in
                             all partitions

A partition's own constraint becomes the clone if it is equal to the parent's, is valid and is not a clone yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headgate.catalog.relation import foreign_key, foreign_key_trigger
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.constraint import used_names
from headgate.catalog.relation.partition import index_parents
from headgate.catalog.relation.relation import ForeignKey, Relation
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
        foreign_key.attach(cursor, child, existing.oid, key.oid)
        return
    is_used = key.name in used_names(cursor, child)
    created = foreign_key.create(cursor, transaction.catalog.next_oid, child, replace(own, name="" if is_used else key.name))
    yield created
    for below in partition_index.children(cursor, child):
        yield from clone(transaction, child, created, below.oid)


def clone_for_target(transaction: Transaction, key: ForeignKey, target: Relation, partition: int) -> None:
    """Clone a constraint that references `target` for a partition (oid) of it and those below."""
    cursor = transaction.cursor
    child = relations.get(cursor, target.database, partition)
    parents = index_parents(cursor, child.database)
    index = next((index.oid for index in child.indexes if parents.get(index.oid) == key.index), 0)
    columns = partition_index.corresponding(target, child, key.target_columns)
    referencing = relations.get(cursor, child.database, key.relation)
    own = replace(key, target=child.oid, target_columns=columns, index=index, parent=key.oid)
    created = foreign_key.create_for_target(cursor, transaction.catalog.next_oid, referencing, own)
    clone_for_target_below(transaction, created, child)


def clone_for_target_below(transaction: Transaction, key: ForeignKey, target: Relation) -> None:
    """Clone a constraint for the partitions of the table that it references."""
    for below in partition_index.children(transaction.cursor, target):
        clone_for_target(transaction, key, target, below.oid)


def detach(transaction: Transaction, partition: Relation) -> None:
    """Make the clones of a partition that becomes a table of its own constraints of its own. Drop those that reference it.

    Raise 23503 if a row references one of its rows through such a constraint.
    """
    cursor, database, oids = transaction.cursor, partition.database, transaction.catalog.next_oid
    for key in partition.referenced:
        if key.parent:
            referential_action.check_removal(transaction, partition, key)
            foreign_key.drop(cursor, database, key.oid)
    for key in partition.foreign_keys:
        if key.parent:
            foreign_key_trigger.detach(cursor, oids, database, key)
            clone_for_target_below(transaction, key, relations.get(cursor, database, key.target))


def _is_equal(existing: ForeignKey, own: ForeignKey) -> bool:
    """Return whether a partition's own constraint can be the clone `own`."""
    return (
        not existing.parent
        and existing.validated
        and replace(existing, name=own.name, oid=own.oid, parent=own.parent, enabled=own.enabled) == own
    )


def check_with_clones(session: Session, transaction: Transaction, key: ForeignKey) -> None:
    """Check the rows of the referencing table and of its partitions. Raise 23503."""
    relation = relations.get(transaction.cursor, transaction.database, key.relation)
    clones = [clone for child in partition_index.children(transaction.cursor, relation) for clone in child.foreign_keys]
    check(session, transaction, [key])
    for clone in clones:
        if clone.parent == key.oid:
            check_with_clones(session, transaction, clone)


def check(session: Session, transaction: Transaction, keys: Sequence[ForeignKey]) -> None:
    """Check the rows of partitions against new constraints. Raise 23503."""
    for key in keys:
        referential_action.check_table(session, transaction, relations.get(transaction.cursor, transaction.database, key.relation), key)
