"""Declare FOREIGN KEY constraints: from the parse tree to the catalog, with the checks of PostgreSQL's tablecmds.c.

Called by CREATE TABLE and ALTER TABLE after the tables have been created. `referential_action` enforces the constraints.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import foreign_key
from headgate.catalog.relation.relation import Column, ForeignKey, Index, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.commands import lookup, privilege
from headgate.commands.constraint import reference_key, referential_action
from headgate.commands.partition import partition_foreign_key, partition_index
from headgate.commands.session import Session
from headgate.commands.table.table_definition import ForeignKeyNeed
from headgate.errors import PostgresError
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import SYSTEM_COLUMNS
from headgate.expression.binding.signature import can_coerce
from headgate.sql import names
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry


def use_target(declared: ForeignKeyNeed, session: Session, transaction: Transaction) -> None:
    """Prevent other transactions from dropping or changing the referenced table, if it exists, until the transaction ends."""
    target = lookup.find(transaction.cursor, session.context, declared.node.pktable)
    if target is not None:
        transaction.catalog.use_object("pg_class", target.oid)


def add(declared: ForeignKeyNeed, relation: Relation, session: Session, transaction: Transaction, *, check: bool) -> None:
    """Create the constraint. With `check`, existing rows are checked, unless it is NOT VALID."""
    cursor, context, node = transaction.cursor, session.context, declared.node
    target = lookup.target(cursor, context, node.pktable)
    transaction.catalog.use_object("pg_class", target.oid)
    if target.kind not in TABLE_KINDS:
        raise PostgresError("42809", f'referenced relation "{target.name}" is not a table')
    privilege.refuse_system(target)
    if relation.is_partitioned:
        _check_partitioned(declared, relation, target)
    _check_persistence(relation, target)
    columns = _columns(relation, declared.own or tuple(names.strings(node.fk_attrs)))
    if node.pk_attrs:
        target_columns = _columns(target, tuple(names.strings(node.pk_attrs)))
        index = _index(target, target_columns)
    else:
        index = _primary_key(target)
        target_columns = target.columns_at(index.attnums)
    _check_actions(node, columns)
    if len(columns) != len(target_columns):
        raise PostgresError("42830", "number of referencing and referenced columns for foreign key disagree")
    privilege.check_columns(cursor, context.user, target, "REFERENCES", [target_column.attnum for target_column in target_columns])
    if node.fk_matchtype == "p":
        raise PostgresError("0A000", "MATCH PARTIAL not yet implemented", location=node.location)
    key = ForeignKey(
        node.conname, 0, relation.oid, tuple(own.attnum for own in columns), target.oid, tuple(used.attnum for used in target_columns),
        node.fk_upd_action or "a", node.fk_del_action or "a", node.fk_matchtype or "s", _set_columns(node, relation, columns), index.oid,
        node.deferrable or declared.deferrable or node.initdeferred or declared.deferred, node.initdeferred or declared.deferred,
        not node.skip_validation,
    )  # fmt: skip
    check_types(key, relation, columns, target_columns)
    created = foreign_key.create(cursor, transaction.catalog.next_oid, relation, key)
    partition_foreign_key.clone_for_target_below(transaction, created, target)
    new_keys = [created]
    for child in partition_index.children(cursor, relation):
        new_keys += partition_foreign_key.clone(transaction, relation, created, child.oid)
    if check and created.validated:
        partition_foreign_key.check(session, transaction, new_keys)


def validate(key: ForeignKey, relation: Relation, session: Session, transaction: Transaction) -> None:
    """Execute VALIDATE CONSTRAINT: check the existing rows."""
    referential_action.check_table(session, transaction, relation, key)
    foreign_key.validate(transaction.cursor, relation.database, key.oid)


def _check_partitioned(declared: ForeignKeyNeed, relation: Relation, target: Relation) -> None:
    """Raise 42809 for a constraint that a partitioned table cannot have (ATAddForeignKeyConstraint)."""
    place = f'partitioned table "{relation.name}" referencing relation "{target.name}"'
    if declared.only:
        raise PostgresError("42809", f"cannot use ONLY for foreign key on {place}")
    if declared.node.skip_validation:
        detail = "This feature is not yet supported on partitioned tables."
        raise PostgresError("42809", f"cannot add NOT VALID foreign key on {place}", detail=detail)


def _check_persistence(relation: Relation, target: Relation) -> None:
    if relation.persistence == "p" and target.persistence != "p":
        raise PostgresError("42P16", "constraints on permanent tables may reference only permanent tables")
    if relation.persistence == "u" and target.persistence == "t":
        raise PostgresError("42P16", "constraints on unlogged tables may reference only permanent or unlogged tables")
    if relation.persistence == "t" and target.persistence != "t":
        raise PostgresError("42P16", "constraints on temporary tables may reference only temporary tables")


def _columns(relation: Relation, column_names: Sequence[str]) -> list[Column]:
    columns = []
    for name in column_names:
        column = relation.column(name)
        if column is None:
            if name in SYSTEM_COLUMNS:
                raise PostgresError("0A000", "system columns cannot be used in foreign keys")
            raise PostgresError("42703", f'column "{name}" referenced in foreign key constraint does not exist')
        columns.append(column)
    return columns


def _index(target: Relation, columns: Sequence[Column]) -> Index:
    """Return the unique index over exactly these columns, in any order."""
    attnums = [column.attnum for column in columns]
    if len(set(attnums)) != len(attnums):
        raise PostgresError("42830", "foreign key referenced-columns list must not contain duplicates")
    candidates = [index for index in target.indexes if index.unique and index.plain and sorted(index.attnums) == sorted(attnums)]
    immediate = next((index for index in candidates if index.immediate), None)
    if immediate is not None:
        return immediate
    if candidates:
        raise PostgresError("55000", f'cannot use a deferrable unique constraint for referenced table "{target.name}"')
    raise PostgresError("42830", f'there is no unique constraint matching given keys for referenced table "{target.name}"')


def _primary_key(target: Relation) -> Index:
    primary_key = next((index for index in target.indexes if index.primary), None)
    if primary_key is None:
        raise PostgresError("42704", f'there is no primary key for referenced table "{target.name}"')
    if not primary_key.immediate:
        raise PostgresError("55000", f'cannot use a deferrable primary key for referenced table "{target.name}"')
    return primary_key


def _check_actions(node: pb.Constraint, columns: Sequence[Column]) -> None:
    if any(column.generated is not None for column in columns):
        for event, action, refused in (("ON UPDATE", node.fk_upd_action, "cnd"), ("ON DELETE", node.fk_del_action, "nd")):
            if action and action in refused:
                raise PostgresError("42601", f"invalid {event} action for foreign key constraint containing generated column")


def _set_columns(node: pb.Constraint, relation: Relation, columns: Sequence[Column]) -> tuple[int, ...]:
    attnums = []
    for column in _columns(relation, names.strings(node.fk_del_set_cols)):
        if column not in columns:
            raise PostgresError("42P10", f'column "{column.name}" referenced in ON DELETE SET action must be part of foreign key')
        attnums.append(column.attnum)
    return tuple(dict.fromkeys(attnums))


def check_types(key: ForeignKey, relation: Relation, columns: Sequence[Column], target_columns: Sequence[Column]) -> None:
    """Raise 42804 if the types of two columns cannot be compared."""
    context = BindContext()
    for column, target_column in zip(columns, target_columns, strict=True):
        left, right = context.base_type(column.type_oid), context.base_type(target_column.type_oid)
        if reference_key.are_comparable(left, right) or can_coerce([left], [right], Reach.IMPLICIT, context):
            continue
        name = key.name or "_".join([relation.name, *[key_column.name for key_column in columns], "fkey"])
        type_names = f"{registry.format_type(column.type_oid)} and {registry.format_type(target_column.type_oid)}"
        raise PostgresError(
            "42804",
            f'foreign key constraint "{name}" cannot be implemented',
            detail=f'Key columns "{column.name}" and "{target_column.name}" are of incompatible types: {type_names}.',
        )
