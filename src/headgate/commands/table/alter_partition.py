"""ALTER TABLE of tables with partitions or children: propagate changes to these, and refuse those that only the parent may make.

Called by `alter_table` (tablecmds.c: ATPrepCmd and the checks of the single subcommands). A change of a partitioned table is applied to
each partition below it. A partition cannot undo it or make a different change. With ONLY, the change is refused if partitions exist.

A child of a plain table has the same changes. With ONLY, some of them are possible: a dropped column or constraint stays in the children as
their own. A column or constraint that a child has from several parents, or itself too, is dropped with the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, update
from headgate.catalog.relation import attribute, foreign_key, inheritance, partition, removal
from headgate.catalog.relation import constraint as constraints
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.constraint import NewCheck
from headgate.catalog.relation.relation import Check, Column, Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, TABLE_KINDS, RelationKind
from headgate.commands import lookup, stored_expression
from headgate.commands.partition import partition as partitions
from headgate.commands.partition import partition_constraint, partition_index
from headgate.commands.table import rewrite_table
from headgate.errors import PostgresError
from headgate.sql.parser import unwrap
from headgate.storage.transaction.transaction import Transaction

if TYPE_CHECKING:
    from headgate.commands.alteration import Alteration

INVALID_TABLE = "42P16"
NO_ONLY = "Do not specify the ONLY keyword."


def attach(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    if alteration.relation.kind in INDEX_KINDS:
        _attach_index(alteration, command)
    else:
        partitions.attach(command, alteration.relation, alteration.session, alteration.transaction)


def detach(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    partitions.detach(command, alteration.relation, alteration.session, alteration.transaction)


def _attach_index(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Execute ALTER INDEX … ATTACH PARTITION: attach a partition's index to the index that was created with ON ONLY."""
    cursor, parent = alteration.cursor, alteration.relation
    child = lookup.target(cursor, alteration.session.context, unwrap(getattr(command, "def")).name)
    if parent.kind != RelationKind.PARTITIONED_INDEX:
        raise PostgresError("42809", f'"{parent.name}" is not a partitioned index')
    if child.kind not in INDEX_KINDS:
        raise PostgresError("42809", f'"{child.name}" is not an index')
    if partition.index_parents(cursor, parent.database).get(child.oid) != parent.oid:
        partition.attach_index(cursor, parent.database, child.oid, parent.oid)
        partition_index.validate(cursor, parent.database, parent.oid)


# ---- checks ---------------------------------------------------------------------------------------------------------


def check(alteration: Alteration, command: pb.AlterTableCmd, *, only: bool) -> None:
    """Raise the errors of a subcommand on a table with partitions or children, or on one of these. Other tables are not checked."""
    relation, cursor = alteration.relation, alteration.cursor
    if relation.kind in TABLE_KINDS:
        _check_inherited(cursor, relation, command)
    if relation.parent:
        _check_partition(cursor, relation, command)
    children = inheritance.children(cursor, relation) if only else ()
    if children:
        _check_alone(command)
    if relation.is_partitioned:
        if children:
            _check_only(command, children)
        if command.subtype == pb.AT_SetRelOptions:
            raise PostgresError("22023", f'unrecognized parameter "{unwrap(unwrap(getattr(command, "def")).items[0]).defname}"')
        _check_keys(alteration, command)


_OF_INHERITED_COLUMN = {
    pb.AT_DropColumn: 'cannot drop inherited column "{}"',
    pb.AT_AlterColumnType: 'cannot alter inherited column "{}"',
    pb.AT_DropExpression: "cannot drop generation expression from inherited column",
}


def _check_inherited(cursor: Cursor, relation: Relation, command: pb.AlterTableCmd) -> None:
    """Refuse changes of what a table inherits."""
    name = command.name
    if command.subtype == pb.AT_DropConstraint and name in partition.inherited_constraints(cursor, relation):
        raise PostgresError(INVALID_TABLE, f'cannot drop inherited constraint "{name}" of relation "{relation.name}"')
    column = relation.column(name) if command.subtype in _OF_INHERITED_COLUMN else None
    if column is not None and column.attnum in partition.inherited_columns(cursor, relation):
        raise PostgresError(INVALID_TABLE, _OF_INHERITED_COLUMN[command.subtype].format(name))


def _check_partition(cursor: Cursor, relation: Relation, command: pb.AlterTableCmd) -> None:
    match command.subtype:
        case pb.AT_AddColumn:
            raise PostgresError("42809", "cannot add column to a partition")
        case pb.AT_DropNotNull:
            parent_column = relations.get(cursor, relation.database, relation.parent).column(command.name)
            if parent_column is not None and parent_column.not_null:
                raise PostgresError(INVALID_TABLE, f'column "{command.name}" is marked NOT NULL in parent table')
        case _:
            pass


def _check_alone(command: pb.AlterTableCmd) -> None:
    """Refuse changes with ONLY of a table with partitions or children."""
    match command.subtype:
        case pb.AT_AddColumn:
            raise PostgresError(INVALID_TABLE, "column must be added to child tables too")
        case pb.AT_AlterColumnType:
            raise PostgresError(INVALID_TABLE, f'type of inherited column "{command.name}" must be changed in child tables too')
        case pb.AT_DropExpression:
            raise PostgresError("0A000", "ALTER TABLE / DROP EXPRESSION must be applied to child tables too")
        case _:
            pass


def _check_only(command: pb.AlterTableCmd, children: Sequence[Relation]) -> None:
    """Refuse changes of a partitioned table alone."""
    match command.subtype:
        case pb.AT_DropColumn:
            message = "cannot drop column from only the partitioned table when partitions exist"
            raise PostgresError(INVALID_TABLE, message, hint=NO_ONLY)
        case pb.AT_SetNotNull:
            nullable_child = next(
                (child for child in children if (own := child.column(command.name)) is not None and not own.not_null), None
            )
            if nullable_child is not None:
                detail = f'Column "{command.name}" of relation "{nullable_child.name}" is not already NOT NULL.'
                raise PostgresError(INVALID_TABLE, "constraint must be added to child tables too", detail=detail, hint=NO_ONLY)
        case pb.AT_DropNotNull | pb.AT_DropConstraint:
            message = "cannot remove constraint from only the partitioned table when partitions exist"
            raise PostgresError(INVALID_TABLE, message, hint=NO_ONLY)
        case _:
            pass


def _check_keys(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """Refuse to drop a column of the partition key of a table, or of a partition below it, or to change its type."""
    verb = {pb.AT_DropColumn: "drop", pb.AT_AlterColumnType: "alter"}.get(command.subtype)
    tables = [alteration.relation, *(table.relation for table in alteration.below())] if verb else []
    for table in tables:
        column = table.column(command.name)
        if column is not None and table.partition_key is not None and column.attnum in table.partition_key.attnums:
            message = f'cannot {verb} column "{column.name}" because it is part of the partition key of relation "{table.name}"'
            raise PostgresError(INVALID_TABLE, message)


def check_rename(cursor: Cursor, relation: Relation, column: Column, *, only: bool) -> None:
    """Raise 42P16 for a column that a table inherits or, with ONLY, that other tables inherit."""
    if relation.kind in TABLE_KINDS and column.attnum in partition.inherited_columns(cursor, relation):
        raise PostgresError(INVALID_TABLE, f'cannot rename inherited column "{column.name}"')
    if only and inheritance.children(cursor, relation):
        raise PostgresError(INVALID_TABLE, f'inherited column "{column.name}" must be renamed in child tables too')


def refuse_other_parents(alteration: Alteration, name: str, message: str) -> None:
    """Raise 42P16 if a table below has a column from another parent too. `message`: a format with the column and the table."""
    cursor, below = alteration.cursor, [table.relation for table in alteration.below()]
    changed = {alteration.relation.oid, *(table.oid for table in below)}
    for table in below:
        count, _ = inheritance.column_origin(cursor, table, name)
        if not table.parent and count > len(changed.intersection(inheritance.parents(cursor, table))):
            raise PostgresError(INVALID_TABLE, message.format(name, table.name))


# ---- propagation to the tables below --------------------------------------------------------------------------------


def add_column(alteration: Alteration, column: Column) -> None:
    """Add a column that was added to the parent to the tables below, as the last column of each. A child may have it already."""
    for child in alteration.children():
        child.refresh()  # a child of several tables may have got the column from another one
        before = child.relation
        existing = before.column(column.name)
        if existing is not None and before.parent:
            raise PostgresError("42701", f'column "{column.name}" of relation "{before.name}" already exists')
        if existing is not None:
            _merge_column(child, existing, column)
            continue
        next_oid = child.transaction.catalog.next_oid
        attnum = attribute.add_column(child.cursor, next_oid, before, replace(column, identity=""))
        child.refresh()
        partition.set_column_inherited(child.cursor, child.relation, attnum)
        child.stored_columns_changed(before)
        rewrite_table.fill_added_column(child.session, child.transaction, child.relation, replace(column, attnum=attnum, identity=""))
        add_column(child, column)


def _merge_column(child: Alteration, existing: Column, column: Column) -> None:
    """Let a child inherit a column that it has. Raise 42804 or 42P21 if it has another type or collation."""
    name, table = column.name, child.relation
    partitions.check_type(table, existing, column)
    count, is_local = inheritance.column_origin(child.cursor, table, name)
    inheritance.set_column_origin(child.cursor, table, name, (count + 1, is_local))
    child.session.notices.notice(f'merging definition of column "{name}" for child "{table.name}"')


def create_check(alteration: Alteration, new: NewCheck) -> Check:
    """Add a CHECK constraint to a table. Existing rows must meet it unless it is NOT VALID."""
    oid = constraints.add_check(alteration.cursor, alteration.transaction.catalog.next_oid, alteration.relation, new)
    alteration.refresh()
    check = next(candidate for candidate in alteration.relation.checks if candidate.oid == oid)
    if check.validated:
        rewrite_table.check_rows(alteration.session, alteration.transaction, alteration.relation, check)
    return check


def add_check(alteration: Alteration, check: Check) -> None:
    """Add a CHECK constraint that was added to the parent to the tables below. An existing one with the same name must be equal."""
    if check.no_inherit:
        return
    children = alteration.children(even_only=True)
    if children and alteration.only:
        raise PostgresError(INVALID_TABLE, "constraint must be added to child tables too")
    for child in children:
        child.refresh()
        own = child.relation.check(check.name)
        if own is not None:
            _merge_check(child, own, check)
            continue
        used = stored_expression.columns_of(check.expression, child.relation)
        attnums = tuple(sorted(column.attnum for column in child.relation.columns if column.name in used))
        child_check = create_check(child, NewCheck(check.expression, check.name, attnums, check.validated))
        partition.set_inherited(child.cursor, child.relation.database, child_check.oid)
        add_check(child, child_check)


def merge_own_check(alteration: Alteration, new: NewCheck) -> bool:
    """Let a CHECK constraint that a table only inherits be its own too. Return False if the table does not have it, or already so.

    A partition cannot have it as its own.
    """
    relation = alteration.relation
    existing = relation.check(new.name)
    if existing is None or relation.parent or existing.expression != new.expression:
        return False
    count, is_local = inheritance.check_origin(alteration.cursor, relation, existing.name)
    if is_local:
        return False
    if new.no_inherit:
        raise PostgresError("42P17", f'constraint "{new.name}" conflicts with inherited constraint on relation "{relation.name}"')
    if new.validated and not existing.validated:
        raise PostgresError("42P17", f'constraint "{new.name}" conflicts with NOT VALID constraint on relation "{relation.name}"')
    alteration.session.notices.notice(f'merging constraint "{new.name}" with inherited definition')
    inheritance.set_check_origin(alteration.cursor, relation, existing.name, (count, True))
    return True


def _merge_check(child: Alteration, own: Check, check: Check) -> None:
    """Let a table inherit a CHECK constraint that it has. The tables below have it too (MergeWithExistingConstraint)."""
    relation = child.relation
    if own.expression != check.expression:
        raise PostgresError("42710", f'constraint "{check.name}" for relation "{relation.name}" already exists')
    partitions.refuse_weaker(own, check, f'relation "{relation.name}"')
    child.session.notices.notice(f'merging constraint "{check.name}" with inherited definition')
    count, is_local = inheritance.check_origin(child.cursor, relation, check.name)
    inheritance.set_check_origin(child.cursor, relation, check.name, (1, False) if relation.parent else (count + 1, is_local))


def check_no_nulls(alteration: Alteration, name: str) -> None:
    """Raise 23502 if a row of a table or of the tables below has NULL in a column that becomes part of a primary key."""
    column = alteration.relation.column(name)
    if column is not None:
        rewrite_table.check_no_nulls(alteration.transaction, alteration.relation, column)
    for child in alteration.children():
        check_no_nulls(child, name)


def set_not_null(alteration: Alteration, name: str) -> None:
    """Mark a column that becomes part of a primary key as NOT NULL in the tables below. `check_no_nulls` has checked their rows."""
    for child in alteration.below():
        column = child.column(name)
        attribute.set_not_null(child.cursor, child.relation, column.attnum, not_null=True)


def drop_constraint(alteration: Alteration, name: str) -> bool:
    """Drop a constraint, in the tables below as well if they do not have it otherwise. Return whether it existed."""
    relation, cursor = alteration.relation, alteration.cursor
    index, key, check = relation.key_constraint(name), relation.foreign_key(name), relation.check(name)
    if index is not None:
        partition_index.drop(cursor, relation, index.oid)
    elif key is not None:
        foreign_key.drop(cursor, relation.database, key.oid)
    elif check is not None:
        for child in () if check.no_inherit else alteration.children(even_only=True):
            count, is_local = inheritance.check_origin(cursor, child.relation, name)
            if count == 1 and not is_local and not alteration.only:
                drop_constraint(child, name)
            else:
                inheritance.set_check_origin(cursor, child.relation, name, (count - 1, is_local or alteration.only))
        removal.drop_check(cursor, relation, check.oid)
    else:
        return False
    return True


def renamed(transaction: Transaction, relation: Relation) -> None:
    """Rewrite the texts of partition keys and constraints after a column was renamed."""
    cursor = transaction.cursor
    tree = partition.load(cursor, relation.database, partition.root_of(cursor, relation))
    for branch in tree.walk():
        if branch.relation.is_partitioned:
            update(
                cursor,
                "pg_partitioned_table",
                {"dbid": relation.database, "partrelid": branch.relation.oid},
                partkeydef=partitions.key_text(branch.strategy, branch.key),
            )
    if tree.relation.is_partitioned:
        partition_constraint.rewrite(cursor, relation)
