"""FOR VALUES … and DEFAULT of a new partition: convert the parse tree to a `Bound`, with PostgreSQL's checks.

`read` is transformPartitionBound (parse_utilcmd.c): values are coerced to the types of the partition key. `check` is
check_new_partition_bound (partbounds.c): the bound is compared with those of existing partitions. Called by CREATE TABLE … PARTITION OF
and ATTACH.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.partition import WORDS, Bound, Branch, Edge, Strategy, edges, infinite
from headgate.catalog.relation.relation import Column
from headgate.commands import stored_expression
from headgate.commands.query.driver import values_list
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.scope import EMPTY
from headgate.expression.node import Const, Expression
from headgate.sql.parser import ParseNode, beginning, position, walk
from headgate.storage.routing import order_codes
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text, write_text

INVALID_TABLE, INVALID_OBJECT = "42P16", "42P17"


@dataclass(frozen=True)
class Places:
    """The positions of a bound's parts in the statement, for errors: `values` of a list, `lower` and `upper` of a range."""

    whole: int
    values: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()


def read(node: pb.PartitionBoundSpec, table: Branch, planner: Planner) -> tuple[Bound, Places]:
    """Return the bound of a PartitionBoundSpec for a new partition of `table`, with the positions of its parts."""
    strategy = table.strategy
    if node.is_default:
        if strategy is Strategy.HASH:
            raise PostgresError(INVALID_TABLE, "a hash-partitioned table may not have a default partition")
        return Bound(strategy, default=True), Places(node.location)
    if node.strategy != strategy.value:
        message = f"invalid bound specification for a {WORDS[strategy]} partition"
        raise PostgresError(INVALID_TABLE, message, position=position(node.location))
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


def _list(node: pb.PartitionBoundSpec, column: Column, planner: Planner) -> tuple[Bound, Places]:
    values: dict[str | None, int] = {}
    for item in node.listdatums:
        values.setdefault(_value(item, column, planner), beginning(item))
    return Bound(Strategy.LIST, values=tuple(values)), Places(node.location, tuple(values.values()))


def _range(node: pb.PartitionBoundSpec, columns: Sequence[Column], planner: Planner) -> tuple[Bound, Places]:
    for word, datums in (("FROM", node.lowerdatums), ("TO", node.upperdatums)):
        if len(datums) != len(columns):
            raise PostgresError(INVALID_TABLE, f"{word} must specify exactly one value per partitioning column")
    lower, upper = _edges(node.lowerdatums, columns, planner), _edges(node.upperdatums, columns, planner)
    locations = [tuple(beginning(datum) for datum in datums) for datums in (node.lowerdatums, node.upperdatums)]
    return Bound(Strategy.RANGE, lower=lower, upper=upper), Places(node.location, (), locations[0], locations[1])


def _edges(nodes: Sequence[pb.Node], columns: Sequence[Column], planner: Planner) -> tuple[Edge, ...]:
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
            raise PostgresError("42804", f"every bound following {word} must also be {word}", position=position(beginning(nodes[index])))
    return tuple(edges_read)


def _value(item: ParseNode, column: Column, planner: Planner) -> str | None:
    """Return the text of a constant in the column's type (transformPartitionBoundValue)."""
    for part in walk(item):
        if part.DESCRIPTOR.name == "ColumnRef":
            message = "cannot use column reference in partition bound expression"
            raise PostgresError("0A000", message, position=position(part.location))
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
        raise PostgresError("42804", message, position=position(beginning(item)))
    try:
        return _text(value_expression, column, planner)
    except PostgresError as error:
        if error.position is None:
            error.position = position(beginning(item))
        raise


def _text(value: Expression, column: Column, planner: Planner) -> str | None:
    if isinstance(value, Const):
        values = read_text(pa.array([value.value], pa.string()), column.type_oid, column.typmod, session=planner.evaluation.context.forms)
    else:
        [values] = values_list.evaluate(planner, [value])
        values = values.cast(arrow_type(column.type_oid, column.typmod))
    text: str | None = write_text(values, column.type_oid)[0].as_py()
    return text


# ---- comparison with the other partitions -----------------------------------------------------------------------------


def check(name: str, table: Branch, bound: Bound, places: Places) -> None:
    """Raise 42P17 if the bound conflicts with the partitions of `table`."""
    if bound.default:
        if table.default is not None:
            default_name = table.default.relation.name
            message = f'partition "{name}" conflicts with existing default partition "{default_name}"'
            raise PostgresError(INVALID_OBJECT, message, position=position(places.whole))
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
        raise PostgresError(INVALID_OBJECT, f'partition "{name}" would overlap partition "{overlap[0]}"', position=position(overlap[1]))


Others = Sequence[tuple[str, Bound]]
Overlap = tuple[str, int] | None


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
        raise PostgresError(INVALID_OBJECT, message, detail=detail, position=position(places.lower[column]))
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
