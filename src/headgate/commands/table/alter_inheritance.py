"""ALTER TABLE … INHERIT and NO INHERIT (tablecmds.c: ATExecAddInherit, ATExecDropInherit).

Called by `alter_table`. A table that is to inherit must already have the columns and CHECK constraints of the parent.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import inheritance
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.commands import lookup, privilege
from headgate.commands.alteration import Alteration
from headgate.commands.partition import partition
from headgate.commands.table.inheritance import named_parent, refuse_temporary, refuse_whole_row
from headgate.errors import PostgresError, not_supported
from headgate.sql.parser import unwrap


def inherit(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    cursor, child = alteration.cursor, alteration.relation
    if child.parent:
        raise PostgresError("42809", "cannot change inheritance of a partition")
    if child.is_partitioned:
        raise PostgresError("42809", "cannot change inheritance of partitioned table")
    parent = named_parent(unwrap(getattr(command, "def")), alteration.session, alteration.transaction)
    _check_parent(alteration, parent)
    if parent.oid in {child.oid, *(table.oid for table in inheritance.below(cursor, child))}:
        raise PostgresError("42P07", "circular inheritance not allowed", detail=f'"{parent.name}" is already a child of "{child.name}".')
    partition.check_triggers(cursor, child, "an inheritance child", "in inheritance hierarchies")
    if parent.oid in inheritance.parents(cursor, child):
        raise PostgresError("42P07", f'relation "{parent.name}" would be inherited from more than once')
    partition.check_columns(parent, child)
    partition.check_constraints(parent, child)
    inheritance.add_parents(cursor, child, [parent], first=inheritance.next_number(cursor, child))
    _count(alteration, parent, 1)


def disinherit(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    cursor, child = alteration.cursor, alteration.relation
    if child.parent:
        raise PostgresError("42809", "cannot change inheritance of a partition")
    parent = named_parent(unwrap(getattr(command, "def")), alteration.session, alteration.transaction)
    if parent.oid not in inheritance.parents(cursor, child):
        raise PostgresError("42P01", f'relation "{parent.name}" is not a parent of relation "{child.name}"')
    inheritance.remove_parent(cursor, child, parent)
    _count(alteration, parent, -1)


def _check_parent(alteration: Alteration, parent: Relation) -> None:
    if parent.kind not in TABLE_KINDS:
        detail = f"This operation is not supported for {lookup.PLURALS[parent.kind]}."
        raise PostgresError("42809", f'ALTER action INHERIT cannot be performed on relation "{parent.name}"', detail=detail)
    context, child = alteration.session.context, alteration.relation
    privilege.check_owner(alteration.cursor, context.user, parent.owner, "table", parent.name)
    refuse_temporary(parent, alteration.session, is_temporary=child.persistence == "t")
    if parent.is_partitioned:
        raise PostgresError("42809", f'cannot inherit from partitioned table "{parent.name}"')
    if parent.parent:
        raise PostgresError("42809", "cannot inherit from a partition")
    if parent.persistence != "t" and child.persistence == "t":
        raise not_supported("a temporary table that inherits from a permanent one is not supported")


def _count(alteration: Alteration, parent: Relation, change: int) -> None:
    """Add a parent to the origin of the columns and constraints that a table has from it, or remove it."""
    cursor, child = alteration.cursor, alteration.relation
    for column in parent.columns:
        count, is_local = inheritance.column_origin(cursor, child, column.name)
        inheritance.set_column_origin(cursor, child, column.name, (count + change, is_local or count + change == 0))
    for check in parent.checks:
        if not check.no_inherit:
            refuse_whole_row(check, parent)
            count, is_local = inheritance.check_origin(cursor, child, check.name)
            inheritance.set_check_origin(cursor, child, check.name, (count + change, is_local or count + change == 0))
