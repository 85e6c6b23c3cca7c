"""Partitioned tables: PARTITION BY, PARTITION OF, ATTACH and DETACH PARTITION.

Called by CREATE TABLE and ALTER TABLE (tablecmds.c: transformPartitionSpec, ComputePartitionAttrs, ATExecAttachPartition,
ATExecDetachPartition). What a bound says is `partition_bound`'s, indexes are `partition_index`'s, the texts of the constraints
`partition_constraint`'s. DETACH … CONCURRENTLY is done at once: a statement of a node never waits for readers, which keep their version.
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
from headgate.catalog.relation.relation import Column, PartitionKey, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.partition import partition_bound, partition_constraint, partition_index
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
    """The partition key of a table with these columns."""
    strategy = _STRATEGIES[spec.strategy]
    if strategy is Strategy.LIST and len(spec.part_params) != 1:
        raise PostgresError("42P17", 'cannot use "list" partition strategy with more than one column')
    if len(spec.part_params) > MAX_KEYS:
        raise PostgresError("54011", f"cannot partition using more than {MAX_KEYS} columns")
    chosen = [_key_column(unwrap(each), columns) for each in spec.part_params]
    method = indexes.HASH if strategy is Strategy.HASH else indexes.BTREE
    classes = tuple(_operator_class(cursor, column, strategy, method) for column in chosen)
    collations = tuple(column.collation for column in chosen)
    attnums = tuple(column.attnum for column in chosen)
    return PartitionKey(strategy.value, attnums, key_text(strategy, chosen), classes=classes, collations=collations)


def key_text(strategy: Strategy, columns: Sequence[Column]) -> str:
    """The key as pg_get_partkeydef prints it."""
    return f"{WORDS[strategy].upper()} ({', '.join(quote_ident(column.name) for column in columns)})"


def _key_column(element: pb.PartitionElem, columns: Sequence[Column]) -> Column:
    where = position(element.location)
    if element.HasField("expr"):
        raise not_supported("partition keys that are expressions are not supported", position=where)
    if element.opclass:
        raise not_supported("operator classes of partition keys are not supported", position=where)
    found = next((each for each in columns if each.name == element.name), None)
    if found is None:
        if element.name in SYSTEM_COLUMNS:
            raise PostgresError("42P17", f'cannot use system column "{element.name}" in partition key', position=where)
        raise PostgresError("42703", f'column "{element.name}" named in partition key does not exist', position=where)
    if found.generated is not None:
        detail = f'Column "{found.name}" is a generated column.'
        raise PostgresError("42P17", "cannot use generated column in partition key", detail=detail, position=where)
    return found


def _operator_class(cursor: Cursor, column: Column, strategy: Strategy, method: int) -> int:
    """The operator class; 42704 if the type has none, 0A000 if a node cannot place rows by the type."""
    found = indexes.operator_class(cursor, column.type_oid, method)
    shown = registry.format_type(column.type_oid)
    if not found:
        word, article = ("hash", "a") if strategy is Strategy.HASH else ("btree", "a")
        raise PostgresError(
            "42704", f'data type {shown} has no default operator class for access method "{word}"',
            hint=f"You must specify {article} {word} operator class or define a default {word} operator class for the data type.",
        )  # fmt: skip
    if strategy is Strategy.HASH and column.type_oid not in HASHED:
        raise not_supported(f"partitioning by hash of type {shown} is not supported")
    if strategy is not Strategy.HASH and stored_as_text(column.type_oid, column.typmod):
        order.key_of(column.type_oid)  # 0A000 if its order is not known here
    return found


# ---- PARTITION OF ---------------------------------------------------------------------------------------------------


def parent_of(node: pb.CreateStmt, session: Session, transaction: Transaction) -> Relation:
    """The table that CREATE TABLE … PARTITION OF names."""
    cursor, context = transaction.cursor, session.context
    target = unwrap(node.inh_relations[0])
    parent = lookup.target(cursor, context, target)
    transaction.change_object("pg_class", parent.oid)
    if parent.kind not in TABLE_KINDS | {RelationKind.FOREIGN_TABLE}:
        raise PostgresError("42809", f'inherited relation "{parent.name}" is not a table or foreign table')
    privilege.check_owner(cursor, context.user, parent.owner, "table", parent.name)
    if parent.persistence != "t" and node.relation.relpersistence == "t":
        raise PostgresError("42809", f'cannot create a temporary relation as partition of permanent relation "{parent.name}"')
    return parent


def new_bound(node: pb.PartitionBoundSpec, name: str, parent: Relation, session: Session, transaction: Transaction) -> Bound:
    """The bound of a new partition, which fits beside the others."""
    if not parent.is_partitioned:
        raise PostgresError("42P17", f'"{parent.name}" is not partitioned')
    table = partition.load(transaction.cursor, parent.database, parent.oid)
    bound, places = partition_bound.read(node, table, Planner(session, transaction))
    partition_bound.check(name, table, bound, places)
    return bound


def join(transaction: Transaction, parent: Relation, child: Relation, bound: Bound) -> None:
    """Makes a table that fits a partition: catalog, indexes, constraints; 23514 if rows of the default partition belong into it."""
    cursor = transaction.cursor
    table = partition.load(cursor, parent.database, parent.oid)
    types = [column.type_oid for column in table.key]
    partition.attach(cursor, child, parent, bound, bound.text(types))
    partition_index.inherit(transaction, parent, child)
    triggers.inherit(cursor, transaction.engine.catalog.next_oid, parent, child)
    partition_constraint.rewrite(cursor, parent)
    transaction.catalog_changed()
    if table.default is not None:
        message = 'updated partition constraint for default partition "{}" would be violated by some row'
        _check_rows(transaction, table.default, message)


def _check_rows(transaction: Transaction, branch: Branch, message: str) -> None:
    """23514 if a row of a table lies outside of its partition."""
    for leaf in branch.leaves():
        now = relations.get(transaction.cursor, leaf.database, leaf.oid)
        transaction.lock(now)
        if transaction.state(now).files and Fence(transaction.cursor, now).crossed(transaction.frame(now)):
            raise PostgresError("23514", message.format(leaf.name), schema=leaf.schema, table=leaf.name)


# ---- ATTACH and DETACH ------------------------------------------------------------------------------------------------


def attach(command: pb.AlterTableCmd, parent: Relation, session: Session, transaction: Transaction) -> None:
    """ALTER TABLE … ATTACH PARTITION."""
    cursor, context = transaction.cursor, session.context
    wanted = unwrap(getattr(command, "def"))
    if not parent.is_partitioned:
        raise PostgresError("42P17", f'table "{parent.name}" is not partitioned')
    table = partition.load(cursor, parent.database, parent.oid)
    bound, places = partition_bound.read(wanted.bound, table, Planner(session, transaction))
    child = lookup.target(cursor, context, wanted.name)
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
    _check_columns(parent, child)
    _check_constraints(parent, child)
    if any(each.relation.foreign_keys or each.relation.referenced for each in partition.load(cursor, child.database, child.oid).walk()):
        raise not_supported("foreign keys of partitioned tables are not supported")
    partition_bound.check(child.name, table, bound, places)
    join(transaction, parent, child, bound)
    branch = partition.load(cursor, child.database, child.oid)
    _check_rows(transaction, branch, 'partition constraint of relation "{}" is violated by some row')


def _check_columns(parent: Relation, child: Relation) -> None:
    """42804 unless the tables have the same columns, in any order."""
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
    """42804 unless the child has the parent's CHECK constraints."""
    for check in parent.checks:
        own = next((each for each in child.checks if each.name == check.name), None)
        if own is None:
            raise PostgresError("42804", f'child table is missing constraint "{check.name}"')
        if own.expression != check.expression:
            raise PostgresError("42804", f'child table "{child.name}" has different definition for check constraint "{check.name}"')


def detach(command: pb.AlterTableCmd, parent: Relation, session: Session, transaction: Transaction) -> None:
    """ALTER TABLE … DETACH PARTITION [CONCURRENTLY | FINALIZE]."""
    cursor, context = transaction.cursor, session.context
    wanted = unwrap(getattr(command, "def"))
    finalize = command.subtype == pb.AT_DetachPartitionFinalize
    if not parent.is_partitioned:
        raise PostgresError("42P17", f'table "{parent.name}" is not partitioned')
    table = partition.load(cursor, parent.database, parent.oid)
    if wanted.concurrent:
        session.prevent_in_block("ALTER TABLE ... DETACH CONCURRENTLY")
        if table.default is not None:
            raise PostgresError("55000", "cannot detach partitions concurrently when a default partition exists")
    child = lookup.target(cursor, context, wanted.name)
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
    if wanted.concurrent and constraint is not None and constraint[0] and table.strategy is not Strategy.HASH:
        # what held of the rows by the bound becomes a constraint of the table's own, as PostgreSQL leaves it
        attnums = tuple(each.attnum for column in table.key if (each := child.column(column.name)) is not None)
        alone = relations.get(cursor, child.database, child.oid)
        constraints.add_check(cursor, transaction.engine.catalog.next_oid, alone, NewCheck(str(constraint[0]), None, attnums))
    transaction.catalog_changed()
