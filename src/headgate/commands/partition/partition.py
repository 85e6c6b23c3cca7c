"""Partitioned tables: PARTITION BY, PARTITION OF, ATTACH and DETACH PARTITION.

Called by CREATE TABLE and ALTER TABLE (tablecmds.c: transformPartitionSpec, ComputePartitionAttrs, ATExecAttachPartition,
ATExecDetachPartition). `partition_index` handles indexes, `partition_foreign_key` handles foreign keys, and
`partition_constraint` writes the texts of constraints. DETACH … CONCURRENTLY completes at once, because a statement never waits for
readers, which keep their version.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation import constraint as constraints
from headgate.catalog.relation import index as indexes
from headgate.catalog.relation import inheritance, partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.constraint import NewCheck
from headgate.catalog.relation.partition import WORDS, Bound, Branch, Edge, Strategy, edges, infinite
from headgate.catalog.relation.relation import Check, Column, ForeignKey, PartitionKey, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege, stored_expression, temporary_schema
from headgate.commands.partition import partition_constraint, partition_foreign_key, partition_index
from headgate.commands.query.driver import values_list
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.scope import EMPTY, SYSTEM_COLUMNS
from headgate.expression.node import Const, Expression
from headgate.sql.names import quote_ident
from headgate.sql.parser import ParseNode, beginning, position, unwrap, walk
from headgate.storage.partitioned import Fence
from headgate.storage.routing import order_codes
from headgate.storage.transaction.transaction import Transaction
from headgate.types import order, registry
from headgate.types.hashing import HASHED
from headgate.types.storage import arrow_type, stored_as_text
from headgate.types.text.text import read_text, write_text

MAX_KEYS = 32
_STRATEGIES = {
    pb.PARTITION_STRATEGY_LIST: Strategy.LIST,
    pb.PARTITION_STRATEGY_RANGE: Strategy.RANGE,
    pb.PARTITION_STRATEGY_HASH: Strategy.HASH,
}


# ---- PARTITION BY ---------------------------------------------------------------------------------------------------


INVALID_TABLE, INVALID_OBJECT = "42P16", "42P17"
Others = Sequence[tuple[str, Bound]]
Overlap = tuple[str, int] | None


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
    location = element.location
    if element.HasField("expr"):
        raise not_supported("partition keys that are expressions are not supported", location=location)
    if element.opclass:
        raise not_supported("operator classes of partition keys are not supported", location=location)
    column = next((candidate for candidate in columns if candidate.name == element.name), None)
    if column is None:
        if element.name in SYSTEM_COLUMNS:
            raise PostgresError("42P17", f'cannot use system column "{element.name}" in partition key', location=location)
        raise PostgresError("42703", f'column "{element.name}" named in partition key does not exist', location=location)
    if column.generated is not None:
        detail = f'Column "{column.name}" is a generated column.'
        raise PostgresError("42P17", "cannot use generated column in partition key", detail=detail, location=location)
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
    is_temporary = temporary_schema.wanted(node.relation)
    if parent.persistence != "t" and is_temporary:
        raise PostgresError("42809", f'cannot create a temporary relation as partition of permanent relation "{parent.name}"')
    if parent.persistence == "t" and not is_temporary:
        raise PostgresError("42809", f'cannot create a permanent relation as partition of temporary relation "{parent.name}"')
    return parent


def new_bound(node: pb.PartitionBoundSpec, name: str, parent: Relation, session: Session, transaction: Transaction) -> Bound:
    """Return the bound of a new partition, checked against the others."""
    if not parent.is_partitioned:
        raise PostgresError("42P17", f'"{parent.name}" is not partitioned')
    table = partition.load(transaction.cursor, parent.database, parent.oid)
    bound, places = read_bound(node, table, QueryPlanner(session, transaction))
    check_bound(name, table, bound, places)
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
    triggers.inherit(cursor, transaction.catalog.next_oid, parent, child)
    for key in parent.referenced:
        partition_foreign_key.clone_for_target(transaction, key, parent, child.oid)
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
        transaction.lock(current, alone=True)
        if transaction.reader.state(current).files and Fence(transaction.cursor, current).crossed(transaction.reader.frame(current)):
            raise PostgresError("23514", message.format(leaf.name), schema=leaf.schema, table=leaf.name)


# ---- ATTACH and DETACH ------------------------------------------------------------------------------------------------


def attach(command: pb.AlterTableCmd, parent: Relation, session: Session, transaction: Transaction) -> None:
    cursor, context = transaction.cursor, session.context
    partition_command = unwrap(getattr(command, "def"))
    if not parent.is_partitioned:
        raise PostgresError("42P17", f'table "{parent.name}" is not partitioned')
    table = partition.load(cursor, parent.database, parent.oid)
    bound, places = read_bound(partition_command.bound, table, QueryPlanner(session, transaction))
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
    if inheritance.parents(cursor, child):
        raise PostgresError("42809", "cannot attach inheritance child as partition")
    if child.has_children and inheritance.children(cursor, child):
        raise PostgresError("42809", "cannot attach inheritance parent as partition")
    _require_same_persistence(parent, child)
    transaction.own(child)
    _check_references(cursor, parent, child)
    check_triggers(cursor, child, "a partition", "on partitions")
    _refuse_other_columns(parent, child)
    check_columns(parent, child)
    check_constraints(parent, child)
    check_bound(child.name, table, bound, places)
    new_keys = join(transaction, parent, child, bound)
    branch = partition.load(cursor, child.database, child.oid)
    _check_rows(transaction, branch, 'partition constraint of relation "{}" is violated by some row')
    partition_foreign_key.check(session, transaction, new_keys)


def _require_same_persistence(parent: Relation, child: Relation) -> None:
    """Raise 42809 if one of the tables is temporary and the other is not."""
    if (parent.persistence == "t") != (child.persistence == "t"):
        kinds = ("permanent", "temporary") if parent.persistence == "t" else ("temporary", "permanent")
        raise PostgresError("42809", f'cannot attach a {kinds[0]} relation as partition of {kinds[1]} relation "{parent.name}"')


def _check_references(cursor: Cursor, parent: Relation, child: Relation) -> None:
    """Raise an error if the table, or one of its partitions, is referenced by a foreign key of the new parent."""
    for key in parent.foreign_keys:
        if key.target == child.oid:
            message = f'cannot attach table "{child.name}" as a partition because it is referenced by foreign key "{key.name}"'
            raise PostgresError("0A000", message)
        if child.oid in relations.ancestors(cursor, child.database, key.target):
            name = relations.get(cursor, child.database, key.target).name
            raise PostgresError("55006", f'cannot ALTER TABLE "{name}" because it is being used by active queries in this session')


def check_triggers(cursor: Cursor, child: Relation, becoming: str, where: str) -> None:
    """Raise 55000 if a row trigger of the table has transition tables (FindTriggerIncompatibleWithInheritance).

    `becoming` and `where`: the parts of the message for a partition or for a child that inherits.
    """
    for trigger in triggers.of_relation(cursor, child.database, child.oid):
        if trigger.is_row and trigger.has_transition_tables:
            raise PostgresError(
                "0A000", f'trigger "{trigger.name}" prevents table "{child.name}" from becoming {becoming}',
                detail=f"ROW triggers with transition tables are not supported {where}.",
            )  # fmt: skip


def _refuse_other_columns(parent: Relation, child: Relation) -> None:
    """Raise 42804 if a table has a column that the parent does not have."""
    for column in child.columns:
        if parent.column(column.name) is None:
            raise PostgresError(
                "42804", f'table "{child.name}" contains column "{column.name}" not found in parent "{parent.name}"',
                detail="The new partition may contain only the columns present in parent.",
            )  # fmt: skip


def check_columns(parent: Relation, child: Relation) -> None:
    """Raise 42804 or 42P21 unless a table has the parent's columns, in any order (MergeAttributesIntoExisting)."""
    for column in parent.columns:
        own = child.column(column.name)
        if own is None:
            raise PostgresError("42804", f'child table is missing column "{column.name}"')
        check_type(child, own, column)
        if column.not_null and not own.not_null:
            raise PostgresError("42804", f'column "{column.name}" in child table must be marked NOT NULL')
        if column.generated is not None and own.generated is None:
            raise PostgresError("42804", f'column "{column.name}" in child table must be a generated column')
        if column.generated is not None and own.generated != column.generated:
            raise PostgresError("42804", f'column "{column.name}" in child table has a conflicting generation expression')


def check_type(child: Relation, own: Column, column: Column) -> None:
    """Raise 42804 or 42P21 unless a column of a table has the type and the collation of its parent's column."""
    if (own.type_oid, own.typmod) != (column.type_oid, column.typmod):
        raise PostgresError("42804", f'child table "{child.name}" has different type for column "{column.name}"')
    if own.collation != column.collation:
        raise PostgresError("42P21", f'child table "{child.name}" has different collation for column "{column.name}"')


def check_constraints(parent: Relation, child: Relation) -> None:
    """Raise 42804 unless the child has the parent's CHECK constraints, apart from those with NO INHERIT."""
    for check in parent.checks:
        if check.no_inherit:
            continue
        own = child.check(check.name)
        if own is None:
            raise PostgresError("42804", f'child table is missing constraint "{check.name}"')
        if own.expression != check.expression:
            raise PostgresError("42804", f'child table "{child.name}" has different definition for check constraint "{check.name}"')
        refuse_weaker(own, check, f'child table "{child.name}"')


def refuse_weaker(own: Check, check: Check, table: str) -> None:
    """Raise 42P17 if a CHECK constraint of a table is NO INHERIT, or NOT VALID unlike that of its parent. `table`: as messages name it."""
    if own.no_inherit:
        raise PostgresError("42P17", f'constraint "{check.name}" conflicts with non-inherited constraint on {table}')
    if check.validated and not own.validated:
        raise PostgresError("42P17", f'constraint "{check.name}" conflicts with NOT VALID constraint on {table}')


def detach(command: pb.AlterTableCmd, parent: Relation, session: Session, transaction: Transaction) -> None:
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
    partition_foreign_key.detach(transaction, child)
    partition.detach(cursor, child, parent)
    partition_constraint.rewrite(cursor, parent)
    partition_constraint.rewrite(cursor, relations.get(cursor, child.database, child.oid))
    if partition_command.concurrent and constraint is not None and constraint[0] and table.strategy is not Strategy.HASH:
        # As in PostgreSQL, the partition constraint becomes a CHECK constraint of the detached table.
        attnums = tuple(child_column.attnum for column in table.key if (child_column := child.column(column.name)) is not None)
        detached = relations.get(cursor, child.database, child.oid)
        constraints.add_check(cursor, transaction.catalog.next_oid, detached, NewCheck(str(constraint[0]), None, attnums))
    transaction.catalog_changed()


@dataclass(frozen=True)
class Places:
    """The positions of a bound's parts in the statement, for errors: `values` of a list, `lower` and `upper` of a range."""

    whole: int
    values: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()


def read_bound(node: pb.PartitionBoundSpec, table: Branch, planner: QueryPlanner) -> tuple[Bound, Places]:
    """Return the bound for a new partition of `table`, with the positions of its parts (transformPartitionBound of parse_utilcmd.c)."""
    strategy = table.strategy
    if node.is_default:
        if strategy is Strategy.HASH:
            raise PostgresError(INVALID_TABLE, "a hash-partitioned table may not have a default partition")
        return Bound(strategy, default=True), Places(node.location)
    if node.strategy != strategy.value:
        message = f"invalid bound specification for a {WORDS[strategy]} partition"
        raise PostgresError(INVALID_TABLE, message, location=node.location)
    match strategy:
        case Strategy.HASH:
            return _hash(node)
        case Strategy.LIST:
            return _list(node, table.key[0], planner)
        case Strategy.RANGE:
            return _range(node, table.key, planner)


def _hash(node: pb.PartitionBoundSpec) -> tuple[Bound, Places]:
    if node.modulus <= 0:
        raise PostgresError(INVALID_TABLE, "modulus for hash partition must be an integer value greater than zero")
    if node.remainder < 0:
        raise PostgresError(INVALID_TABLE, "remainder for hash partition must be an integer value greater than or equal to zero")
    if node.remainder >= node.modulus:
        raise PostgresError(INVALID_TABLE, "remainder for hash partition must be less than modulus")
    return Bound(Strategy.HASH, modulus=node.modulus, remainder=node.remainder), Places(node.location)


def _list(node: pb.PartitionBoundSpec, column: Column, planner: QueryPlanner) -> tuple[Bound, Places]:
    values: dict[str | None, int] = {}
    for item in node.listdatums:
        values.setdefault(_value(item, column, planner), beginning(item))
    return Bound(Strategy.LIST, values=tuple(values)), Places(node.location, tuple(values.values()))


def _range(node: pb.PartitionBoundSpec, columns: Sequence[Column], planner: QueryPlanner) -> tuple[Bound, Places]:
    for word, datums in (("FROM", node.lowerdatums), ("TO", node.upperdatums)):
        if len(datums) != len(columns):
            raise PostgresError(INVALID_TABLE, f"{word} must specify exactly one value per partitioning column")
    lower, upper = _edges(node.lowerdatums, columns, planner), _edges(node.upperdatums, columns, planner)
    locations = [tuple(beginning(datum) for datum in datums) for datums in (node.lowerdatums, node.upperdatums)]
    return Bound(Strategy.RANGE, lower=lower, upper=upper), Places(node.location, (), locations[0], locations[1])


def _edges(nodes: Sequence[pb.Node], columns: Sequence[Column], planner: QueryPlanner) -> tuple[Edge, ...]:
    edges_read: list[Edge] = []
    for item, column in zip(nodes, columns, strict=True):
        if end := infinite(item):
            edges_read.append(Edge(infinite=end))
            continue
        value = _value(item, column, planner)
        if value is None:
            raise PostgresError(INVALID_OBJECT, "cannot specify NULL in range bound")
        edges_read.append(Edge(value))
    for index, (before, edge) in enumerate(itertools.pairwise(edges_read), 1):
        if before.infinite and edge.infinite != before.infinite:
            word = "MINVALUE" if before.infinite < 0 else "MAXVALUE"
            raise PostgresError("42804", f"every bound following {word} must also be {word}", location=beginning(nodes[index]))
    return tuple(edges_read)


def _value(item: ParseNode, column: Column, planner: QueryPlanner) -> str | None:
    """Return the text of a constant in the column's type (transformPartitionBoundValue)."""
    for part in walk(item):
        if part.DESCRIPTOR.name == "ColumnRef":
            message = "cannot use column reference in partition bound expression"
            raise PostgresError("0A000", message, location=part.location)
    context = planner.context.within(
        construct="partition bound", refuse_subquery="cannot use subquery in partition bound", subquery=None, aggregates=False
    )
    bound = binder.bind_raw(item, EMPTY, context)
    target = stored_expression.type_of(column)
    constant = values_list.folded(bound, target)
    value_expression = constant if constant is not None else coerce(bound, target, Reach.ASSIGNMENT, context)
    if value_expression is None:
        type_text = context.types.format_type(column.type_oid, column.typmod)
        message = f'specified value cannot be cast to type {type_text} for column "{column.name}"'
        raise PostgresError("42804", message, location=beginning(item))
    try:
        return _text(value_expression, column, planner)
    except PostgresError as error:
        if error.position is None:
            error.position = position(beginning(item))
        raise


def _text(value: Expression, column: Column, planner: QueryPlanner) -> str | None:
    if isinstance(value, Const):
        values = read_text(pa.array([value.value], pa.string()), column.type_oid, column.typmod, session=planner.evaluation.context.forms)
    else:
        [values] = values_list.evaluate(planner, [value])
        values = values.cast(arrow_type(column.type_oid, column.typmod))
    text: str | None = write_text(values, column.type_oid)[0].as_py()
    return text


# ---- comparison with the other partitions -----------------------------------------------------------------------------


def check_bound(name: str, table: Branch, bound: Bound, places: Places) -> None:
    """Raise 42P17 if the bound conflicts with the partitions of `table` (check_new_partition_bound of partbounds.c)."""
    if bound.default:
        if table.default is not None:
            default_name = table.default.relation.name
            message = f'partition "{name}" conflicts with existing default partition "{default_name}"'
            raise PostgresError(INVALID_OBJECT, message, location=places.whole)
        return
    others = [(child.relation.name, child.bound) for child in table.children if child.bound is not None and not child.bound.default]
    match table.strategy:
        case Strategy.HASH:
            overlap = _check_hash(bound, others, places)
        case Strategy.LIST:
            overlap = _check_list(table.key[0], bound, others, places)
        case Strategy.RANGE:
            overlap = _check_range(name, table.key, bound, others, places)
    if overlap is not None:
        raise PostgresError(INVALID_OBJECT, f'partition "{name}" would overlap partition "{overlap[0]}"', location=overlap[1])


def _check_hash(bound: Bound, others: Others, places: Places) -> Overlap:
    mine = (bound.modulus, bound.remainder)
    smaller = [((old.modulus, old.remainder), name) for name, old in others if (old.modulus, old.remainder) <= mine]
    larger = [(old.modulus, name) for name, old in others if old.modulus > bound.modulus]
    message = "every hash partition modulus must be a factor of the next larger modulus"
    if smaller:
        (modulus, _), name = max(smaller)
        if bound.modulus % modulus:
            detail = f'The new modulus {bound.modulus} is not divisible by {modulus}, the modulus of existing partition "{name}".'
            raise PostgresError(INVALID_OBJECT, message, detail=detail)
    if larger:
        modulus, name = min(larger, key=lambda candidate: candidate[0])
        if modulus % bound.modulus:
            detail = f'The new modulus {bound.modulus} is not a factor of {modulus}, the modulus of existing partition "{name}".'
            raise PostgresError(INVALID_OBJECT, message, detail=detail)
    for name, other_bound in others:
        if (other_bound.remainder - bound.remainder) % min(other_bound.modulus, bound.modulus) == 0:
            return name, places.whole
    return None


def _check_list(column: Column, bound: Bound, others: Others, places: Places) -> Overlap:
    owners: dict[str | int | None, str] = {}
    other_values = [value for _, old in others for value in old.values if value is not None]
    new_values = [value for value in bound.values if value is not None]
    codes = (
        order_codes([column], [(Edge(value),) for value in [*other_values, *new_values]], []).tolist() if other_values or new_values else []
    )
    numbers = dict(zip([*other_values, *new_values], codes, strict=True))
    for name, other_bound in others:
        owners |= {None if value is None else numbers[value]: name for value in other_bound.values}
    for value, place in zip(bound.values, places.values, strict=True):
        number = None if value is None else numbers[value]
        if number in owners:
            return owners[number], place
    return None


def _compare(columns: Sequence[Column], left: Sequence[Edge], right: Sequence[Edge]) -> tuple[int, int]:
    """Return (-1, 0 or 1, the first column in which they differ)."""
    for index, column in enumerate(columns):
        first, second = order_codes([column], [(left[index],), (right[index],)], []).tolist()
        if first != second:
            return (-1 if first < second else 1), index
        if left[index].infinite:
            return 0, index
    return 0, len(columns) - 1


def _check_range(name: str, columns: Sequence[Column], bound: Bound, others: Others, places: Places) -> Overlap:
    order, column = _compare(columns, bound.lower, bound.upper)
    if order >= 0:
        lower, upper = (edges(edge_list, [column_of_key.type_oid for column_of_key in columns]) for edge_list in (bound.lower, bound.upper))
        detail = f"Specified lower bound {lower} is greater than or equal to upper bound {upper}."
        message = f'empty range bound specified for partition "{name}"'
        raise PostgresError(INVALID_OBJECT, message, detail=detail, location=places.lower[column])
    return _overlap(columns, bound, others, places)


def _overlap(columns: Sequence[Column], bound: Bound, others: Others, places: Places) -> Overlap:
    """Return the overlapping partition, if any (partition_range_bsearch). The position in the message is that of the last comparison."""
    ends: list[tuple[tuple[Edge, ...], str | None]] = [(other_bound.upper, name) for name, other_bound in others]
    ends += [
        (other_bound.lower, None)
        for _, other_bound in others
        if all(_compare(columns, other_bound.lower, old.upper)[0] for _, old in others)
    ]
    codes = order_codes(columns, [end_edges for end_edges, _ in ends], []).tolist() if ends else []
    ends = [ends[index] for index in sorted(range(len(ends)), key=codes.__getitem__)]
    low, high, order, column = -1, len(ends) - 1, -1, 0
    while low < high:
        middle = (low + high + 1) // 2
        middle_edges, owner = ends[middle]
        order, column = _compare(columns, middle_edges, bound.lower)
        if order == 0 and owner is not None:
            order = -1
        if order <= 0:
            low = middle
            if order == 0:
                break
        else:
            high = middle - 1
    if low + 1 >= len(ends):
        return None
    following, owner = ends[low + 1]
    if owner is not None:
        return owner, places.lower[0 if order == 0 else column]
    before, column = _compare(columns, following, bound.upper)
    if before >= 0:
        return None
    owner = next(name for name, other_bound in others if _compare(columns, other_bound.lower, following)[0] == 0)
    return owner, places.upper[column]
