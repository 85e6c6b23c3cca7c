"""Partitioned tables: PARTITION BY, PARTITION OF, ATTACH and DETACH PARTITION.

Called by CREATE TABLE and ALTER TABLE (tablecmds.c: transformPartitionSpec, ComputePartitionAttrs, ATExecAttachPartition,
ATExecDetachPartition). `partition_bound` reads bounds, `partition_index` handles indexes, `partition_foreign_key` handles foreign keys, and
`partition_constraint` writes the texts of constraints. DETACH … CONCURRENTLY completes at once, because a statement never waits for
readers, which keep their version.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation import constraint as constraints
from headgate.catalog.relation import index as indexes
from headgate.catalog.relation import partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.constraint import NewCheck
from headgate.catalog.relation.partition import WORDS, Bound, Branch, Strategy
from headgate.catalog.relation.relation import Column, ForeignKey, PartitionKey, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.partition import partition_bound, partition_constraint, partition_foreign_key, partition_index
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding.scope import SYSTEM_COLUMNS
from headgate.sql.names import quote_ident
from headgate.sql.parser import position, unwrap
from headgate.storage.partitioned import Fence
from headgate.storage.transaction.transaction import Transaction
from headgate.types import order, registry
from headgate.types.hashing import HASHED
from headgate.types.storage import stored_as_text

MAX_KEYS = 32
_STRATEGIES = {
    pb.PARTITION_STRATEGY_LIST: Strategy.LIST,
    pb.PARTITION_STRATEGY_RANGE: Strategy.RANGE,
    pb.PARTITION_STRATEGY_HASH: Strategy.HASH,
}


# ---- PARTITION BY ---------------------------------------------------------------------------------------------------


def key(spec: pb.PartitionSpec, columns: Sequence[Column], cursor: Cursor) -> PartitionKey:
    strategy = _STRATEGIES[spec.strategy]
    if strategy is Strategy.LIST and len(spec.part_params) != 1:
        raise PostgresError("42P17", 'cannot use "list" partition strategy with more than one column')
    if len(spec.part_params) > MAX_KEYS:
        raise PostgresError("54011", f"cannot partition using more than {MAX_KEYS} columns")
    chosen = [_key_column(unwrap(element), columns) for element in spec.part_params]
    method = indexes.HASH if strategy is Strategy.HASH else indexes.BTREE
    classes = tuple(_operator_class(cursor, column, strategy, method) for column in chosen)
    collations = tuple(column.collation for column in chosen)
    attnums = tuple(column.attnum for column in chosen)
    return PartitionKey(strategy.value, attnums, key_text(strategy, chosen), classes=classes, collations=collations)


def key_text(strategy: Strategy, columns: Sequence[Column]) -> str:
    """Return the key as pg_get_partkeydef prints it."""
    return f"{WORDS[strategy].upper()} ({', '.join(quote_ident(column.name) for column in columns)})"


def _key_column(element: pb.PartitionElem, columns: Sequence[Column]) -> Column:
    where = position(element.location)
    if element.HasField("expr"):
        raise not_supported("partition keys that are expressions are not supported", position=where)
    if element.opclass:
        raise not_supported("operator classes of partition keys are not supported", position=where)
    column = next((candidate for candidate in columns if candidate.name == element.name), None)
    if column is None:
        if element.name in SYSTEM_COLUMNS:
            raise PostgresError("42P17", f'cannot use system column "{element.name}" in partition key', position=where)
        raise PostgresError("42703", f'column "{element.name}" named in partition key does not exist', position=where)
    if column.generated is not None:
        detail = f'Column "{column.name}" is a generated column.'
        raise PostgresError("42P17", "cannot use generated column in partition key", detail=detail, position=where)
    return column


def _operator_class(cursor: Cursor, column: Column, strategy: Strategy, method: int) -> int:
    """Return the operator class. Raise 42704 if the type has none, 0A000 if a node cannot route rows by the type."""
    operator_class = indexes.operator_class(cursor, column.type_oid, method)
    type_text = registry.format_type(column.type_oid)
    if not operator_class:
        word, article = ("hash", "a") if strategy is Strategy.HASH else ("btree", "a")
        raise PostgresError(
            "42704", f'data type {type_text} has no default operator class for access method "{word}"',
            hint=f"You must specify {article} {word} operator class or define a default {word} operator class for the data type.",
        )  # fmt: skip
    if strategy is Strategy.HASH and column.type_oid not in HASHED:
        raise not_supported(f"partitioning by hash of type {type_text} is not supported")
    if strategy is not Strategy.HASH and stored_as_text(column.type_oid, column.typmod):
        order.key_of(column.type_oid)  # raises 0A000 if its order is not implemented
    return operator_class


# ---- PARTITION OF ---------------------------------------------------------------------------------------------------


def parent_of(node: pb.CreateStmt, session: Session, transaction: Transaction) -> Relation:
    """Return the table that CREATE TABLE … PARTITION OF names."""
    cursor, context = transaction.cursor, session.context
    target = unwrap(node.inh_relations[0])
    parent = lookup.target(cursor, context, target)
    transaction.catalog.change_object("pg_class", parent.oid)
    if parent.kind not in TABLE_KINDS | {RelationKind.FOREIGN_TABLE}:
        raise PostgresError("42809", f'inherited relation "{parent.name}" is not a table or foreign table')
    privilege.check_owner(cursor, context.user, parent.owner, "table", parent.name)
    if parent.persistence != "t" and node.relation.relpersistence == "t":
        raise PostgresError("42809", f'cannot create a temporary relation as partition of permanent relation "{parent.name}"')
    return parent


def new_bound(node: pb.PartitionBoundSpec, name: str, parent: Relation, session: Session, transaction: Transaction) -> Bound:
    """Return the bound of a new partition, checked against the others."""
    if not parent.is_partitioned:
        raise PostgresError("42P17", f'"{parent.name}" is not partitioned')
    table = partition.load(transaction.cursor, parent.database, parent.oid)
    bound, places = partition_bound.read(node, table, Planner(session, transaction))
    partition_bound.check(name, table, bound, places)
    return bound


def join(transaction: Transaction, parent: Relation, child: Relation, bound: Bound) -> list[ForeignKey]:
    """Make a matching table a partition: catalog, indexes, constraints. Return the new foreign keys, whose rows are not checked yet.

    Raise 23514 if the default partition has rows that belong to the new one.
    """
    cursor = transaction.cursor
    table = partition.load(cursor, parent.database, parent.oid)
    types = [column.type_oid for column in table.key]
    partition.attach(cursor, child, parent, bound, bound.text(types))
    partition_index.inherit(transaction, parent, child)
    triggers.inherit(cursor, transaction.engine.catalog.next_oid, parent, child)
    new_keys = [new for key in parent.foreign_keys for new in partition_foreign_key.clone(transaction, parent, key, child.oid)]
    partition_constraint.rewrite(cursor, parent)
    transaction.catalog_changed()
    if table.default is not None:
        message = 'updated partition constraint for default partition "{}" would be violated by some row'
        _check_rows(transaction, table.default, message)
    return new_keys


def _check_rows(transaction: Transaction, branch: Branch, message: str) -> None:
    """Raise 23514 if a row of a table lies outside its partition."""
    for leaf in branch.leaves():
        current = relations.get(transaction.cursor, leaf.database, leaf.oid)
        transaction.lock(current)
        if transaction.state(current).files and Fence(transaction.cursor, current).crossed(transaction.frame(current)):
            raise PostgresError("23514", message.format(leaf.name), schema=leaf.schema, table=leaf.name)


# ---- ATTACH and DETACH ------------------------------------------------------------------------------------------------


def attach(command: pb.AlterTableCmd, parent: Relation, session: Session, transaction: Transaction) -> None:
    """Execute ALTER TABLE … ATTACH PARTITION."""
    cursor, context = transaction.cursor, session.context
    partition_command = unwrap(getattr(command, "def"))
    if not parent.is_partitioned:
        raise PostgresError("42P17", f'table "{parent.name}" is not partitioned')
    table = partition.load(cursor, parent.database, parent.oid)
    bound, places = partition_bound.read(partition_command.bound, table, Planner(session, transaction))
    child = lookup.target(cursor, context, partition_command.name)
    if child.kind not in TABLE_KINDS:
        raise PostgresError(
            "42809", f'ALTER action ATTACH PARTITION cannot be performed on relation "{child.name}"',
            detail=f"This operation is not supported for {lookup.PLURALS[child.kind]}.",
        )  # fmt: skip
    privilege.check_owner(cursor, context.user, child.owner, "table", child.name)
    if child.parent:
        raise PostgresError("42809", f'"{child.name}" is already a partition')
    if child.oid == parent.oid or child.oid in relations.ancestors(cursor, parent.database, parent.oid):
        raise PostgresError("42P07", "circular inheritance not allowed", detail=f'"{parent.name}" is already a child of "{child.name}".')
    transaction.own(child)
    _check_triggers(cursor, child)
    _check_columns(parent, child)
    _check_constraints(parent, child)
    if any(branch.relation.referenced for branch in partition.load(cursor, child.database, child.oid).walk()):
        raise not_supported("foreign keys that reference partitions are not supported")
    partition_bound.check(child.name, table, bound, places)
    new_keys = join(transaction, parent, child, bound)
    branch = partition.load(cursor, child.database, child.oid)
    _check_rows(transaction, branch, 'partition constraint of relation "{}" is violated by some row')
    partition_foreign_key.check(session, transaction, new_keys)


def _check_triggers(cursor: Cursor, child: Relation) -> None:
    """Raise 55000 if a row trigger of the table has transition tables (FindTriggerIncompatibleWithInheritance)."""
    for trigger in triggers.of_relation(cursor, child.database, child.oid):
        if trigger.is_row and trigger.has_transition_tables:
            raise PostgresError(
                "55000", f'trigger "{trigger.name}" prevents table "{child.name}" from becoming a partition',
                detail="ROW triggers with transition tables are not supported on partitions.",
            )  # fmt: skip


def _check_columns(parent: Relation, child: Relation) -> None:
    """Raise 42804 unless the tables have the same columns, in any order."""
    for column in child.columns:
        if parent.column(column.name) is None:
            raise PostgresError(
                "42804", f'table "{child.name}" contains column "{column.name}" not found in parent "{parent.name}"',
                detail="The new partition may contain only the columns present in parent.",
            )  # fmt: skip
    for column in parent.columns:
        own = child.column(column.name)
        if own is None:
            raise PostgresError("42804", f'child table is missing column "{column.name}"')
        if (own.type_oid, own.typmod) != (column.type_oid, column.typmod):
            raise PostgresError("42804", f'child table "{child.name}" has different type for column "{column.name}"')
        if own.collation != column.collation:
            raise PostgresError("42P21", f'child table "{child.name}" has different collation for column "{column.name}"')
        if column.not_null and not own.not_null:
            raise PostgresError("42804", f'column "{column.name}" in child table must be marked NOT NULL')
        if column.generated is not None and own.generated is None:
            raise PostgresError("42804", f'column "{column.name}" in child table must be a generated column')


def _check_constraints(parent: Relation, child: Relation) -> None:
    """Raise 42804 unless the child has the parent's CHECK constraints."""
    for check in parent.checks:
        own = next((candidate for candidate in child.checks if candidate.name == check.name), None)
        if own is None:
            raise PostgresError("42804", f'child table is missing constraint "{check.name}"')
        if own.expression != check.expression:
            raise PostgresError("42804", f'child table "{child.name}" has different definition for check constraint "{check.name}"')
        if own.no_inherit:
            message = f'constraint "{check.name}" conflicts with non-inherited constraint on child table "{child.name}"'
            raise PostgresError("42P17", message)


def detach(command: pb.AlterTableCmd, parent: Relation, session: Session, transaction: Transaction) -> None:
    """Execute ALTER TABLE … DETACH PARTITION [CONCURRENTLY | FINALIZE]."""
    cursor, context = transaction.cursor, session.context
    partition_command = unwrap(getattr(command, "def"))
    finalize = command.subtype == pb.AT_DetachPartitionFinalize
    if not parent.is_partitioned:
        raise PostgresError("42P17", f'table "{parent.name}" is not partitioned')
    table = partition.load(cursor, parent.database, parent.oid)
    if partition_command.concurrent:
        session.prevent_in_block("ALTER TABLE ... DETACH CONCURRENTLY")
        if table.default is not None:
            raise PostgresError("55000", "cannot detach partitions concurrently when a default partition exists")
    child = lookup.target(cursor, context, partition_command.name)
    if child.parent != parent.oid:
        raise PostgresError("42P01", f'relation "{child.name}" is not a partition of relation "{parent.name}"')
    if finalize:
        detail = "There's no pending concurrent detach."
        raise PostgresError("55000", f'cannot complete detaching partition "{child.name}"', detail=detail)
    constraint = one(cursor, "SELECT relpartconstraint FROM hg.pg_class WHERE dbid = ? AND oid = ?", [child.database, child.oid])
    triggers.disinherit(cursor, child)
    partition.detach(cursor, child, parent)
    partition_constraint.rewrite(cursor, parent)
    partition_constraint.rewrite(cursor, relations.get(cursor, child.database, child.oid))
    if partition_command.concurrent and constraint is not None and constraint[0] and table.strategy is not Strategy.HASH:
        # As in PostgreSQL, the partition constraint becomes a CHECK constraint of the detached table.
        attnums = tuple(child_column.attnum for column in table.key if (child_column := child.column(column.name)) is not None)
        detached = relations.get(cursor, child.database, child.oid)
        constraints.add_check(cursor, transaction.engine.catalog.next_oid, detached, NewCheck(str(constraint[0]), None, attnums))
    transaction.catalog_changed()
