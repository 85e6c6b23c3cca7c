"""Binds the OVER clause of a window function, and ORDER BY inside calls (PostgreSQL's transformWindowDefinitions).

Called by `function_call`. A named window (``OVER w``, ``OVER (w ORDER BY …)``) is looked up in the WINDOW clause of its query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError, not_supported
from headgate.expression.binding.coercion import coerce, coerce_type
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext, Binder
from headgate.expression.binding.scope import Scope
from headgate.expression.binding.sort_operator import require_order
from headgate.expression.node import Expression, Frame, TypeRef
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

Order = tuple[tuple[Expression, bool, bool], ...]
Offsets = tuple[Expression | None, Expression | None]
_WRITTEN, _ROWS, _GROUPS, _BETWEEN = 0x1, 0x4, 0x8, 0x10
_EXCLUDE = 0x8000 | 0x10000 | 0x20000
_STARTS = {0x20: "unbounded preceding", 0x80: "unbounded following", 0x200: "current", 0x800: "preceding", 0x2000: "following"}
_ENDS = {0x40: "unbounded preceding", 0x100: "unbounded following", 0x400: "current", 0x1000: "preceding", 0x4000: "following"}
"""The bits of frameOptions (parsenodes.h, FRAMEOPTION_…)."""


def bind_order(nodes: Sequence[ParseNode], scope: Scope, context: BindContext, binder: Binder) -> Order:
    """Return (expression, descending, NULLs first) of each item."""
    order = []
    for sort_node in nodes:
        sort = unwrap(sort_node)
        if sort.sortby_dir == pb.SORTBY_USING:
            raise not_supported("ORDER BY ... USING is not supported", location=sort.location)
        bound = _resolve_unknown(binder(sort.node, scope, context), context)
        descending = sort.sortby_dir == pb.SORTBY_DESC
        first = sort.sortby_nulls == pb.SORTBY_NULLS_FIRST or (sort.sortby_nulls != pb.SORTBY_NULLS_LAST and descending)
        require_order(bound, unwrap(sort.node).location)
        order.append((bound, descending, first))
    return tuple(order)


def _resolve_unknown(bound: Expression, context: BindContext) -> Expression:
    return coerce_type(bound, registry.TEXT, Reach.IMPLICIT, context) if bound.type.oid == registry.UNKNOWN else bound


def bind(
    over: pb.WindowDef, scope: Scope, context: BindContext, binder: Binder, windows: Mapping[str, pb.WindowDef]
) -> tuple[tuple[Expression, ...], Order, Frame, Offsets]:
    """Return (partition, order, frame, offsets) of an OVER clause. `windows` are the definitions of the WINDOW clause."""
    if over.name:
        over = _find_window(over.name, over.location, windows, context)
    partition_nodes, order_nodes = list(over.partition_clause), list(over.order_clause)
    if over.refname:
        base = _find_window(over.refname, over.location, windows, context)
        partition_nodes, order_nodes = _inherit(over, base, context)
    partition = tuple(
        _resolve_unknown(binder(partition_node, scope, context.within(construct="window PARTITION BY")), context)
        for partition_node in partition_nodes
    )
    order = bind_order(order_nodes, scope, context.within(construct="window ORDER BY"), binder)
    frame = _frame(over, context)
    start = _offset(over.start_offset, context, binder) if over.HasField("start_offset") else None
    end = _offset(over.end_offset, context, binder) if over.HasField("end_offset") else None
    if frame.mode == "RANGE" and (start or end) and len(order) != 1:
        message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column"
        raise PostgresError("42P20", message, location=over.location)
    return partition, order, frame, (start, end)


def definitions(node: pb.SelectStmt) -> dict[str, pb.WindowDef]:
    """Return the definitions of the WINDOW clause by name. Raise 42P20 if a name has two."""
    windows: dict[str, pb.WindowDef] = {}
    for definition in map(unwrap, node.window_clause):
        if definition.name in windows:
            raise PostgresError("42P20", f'window "{definition.name}" is already defined', location=definition.location)
        windows[definition.name] = definition
    return windows


def _find_window(name: str, location: int, windows: Mapping[str, pb.WindowDef], context: BindContext) -> pb.WindowDef:
    if name not in windows:
        raise PostgresError("42704", f'window "{name}" does not exist', location=location)
    return windows[name]


def _inherit(over: pb.WindowDef, base: pb.WindowDef, context: BindContext) -> tuple[list[ParseNode], list[ParseNode]]:
    location = over.location
    if over.partition_clause:
        raise PostgresError("42P20", f'cannot override PARTITION BY clause of window "{over.refname}"', location=location)
    if over.order_clause and base.order_clause:
        raise PostgresError("42P20", f'cannot override ORDER BY clause of window "{over.refname}"', location=location)
    if base.frame_options & _WRITTEN:
        raise PostgresError("42P20", f'cannot copy window "{over.refname}" because it has a frame clause', location=location)
    return list(base.partition_clause), list(base.order_clause or over.order_clause)


def _frame(over: pb.WindowDef, context: BindContext) -> Frame:
    bits = over.frame_options
    if bits & _GROUPS:
        raise not_supported("GROUPS frames are not supported", location=over.location)
    if bits & _EXCLUDE:
        raise not_supported("frame exclusion is not supported", location=over.location)
    start = next((name for bit, name in _STARTS.items() if bits & bit), "unbounded preceding")
    end = next((name for bit, name in _ENDS.items() if bits & bit), "current")
    return Frame("ROWS" if bits & _ROWS else "RANGE", start, end, bool(bits & _WRITTEN), bool(bits & _BETWEEN))


def _offset(node: ParseNode, context: BindContext, binder: Binder) -> Expression:
    raw = binder(node, Scope(), context.within(construct="window ROWS"))
    done = coerce(raw, TypeRef(registry.INT8), Reach.ASSIGNMENT, context)
    if done is None:
        raise not_supported("window frames by distances other than whole numbers are not supported")
    return done
