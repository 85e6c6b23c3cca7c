"""Queries of one table that the driver answers by itself: few rows, of which Arrow has PostgreSQL's exact answer.

Called by `select` before the planner. The rows are those of a key that WHERE fixes (`key_lookup`), those of a small table, the first of a
table that LIMIT asks for, or none (``count(*)``). WHERE and the SELECT list are evaluated column by column (`table_rows`). Whatever is not
so simple makes the answer None, and the query goes its usual way, which also says what is wrong with it.

All rows of a large table, as they are stored, are read while they are sent (decision 0009): Spark would write all of them once more, and
the first would be sent when the last of its task is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.commands import lookup, privilege
from headgate.commands.query.clause import from_clause, select_list
from headgate.commands.query.clause.select_list import SelectItem
from headgate.commands.query.driver import key_lookup, table_rows
from headgate.commands.query.driver.table_rows import HeldTable, usual_way_says
from headgate.commands.query.plan import PlanColumn
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.expression.binding import binder
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Const, Expression, TypeRef
from headgate.sql import names
from headgate.sql.parser import unwrap, walk
from headgate.storage.delta import file_action
from headgate.types import registry
from headgate.types.registry import FIRST_USER_OID
from headgate.types.resultset import ResultColumn, ResultSet

MOST = 10_000
"""Rows of a LIMIT that are answered so."""
_PLAIN = frozenset({"target_list", "from_clause", "where_clause", "limit_count", "limit_option", "op"})
_NOT_HERE = frozenset({"SubLink", "SetToDefault", "FuncCall"})


def answer(node: pb.SelectStmt, session: Session) -> ResultSet | None:
    """The rows, or None."""
    counted = _is_count(node)
    if not _is_plain(node) or (not counted and any(each.DESCRIPTOR.name in _NOT_HERE for each in walk(node))):
        return None
    planner = Planner(session, session.begin_statement())
    try:
        with usual_way_says():
            table = _table(planner, unwrap(node.from_clause[0]))
        if counted:
            columns, found = _count(table, node)
        elif (whole := _whole(table, node)) is not None:
            return whole
        else:
            columns, found = _rows(table, node)
    except NotColumnwise:
        return None
    return table_rows.result(columns, found, session)


def _whole(table: HeldTable, node: pb.SelectStmt) -> ResultSet | None:
    """All rows of a table that is not small, where the SELECT list names columns and no more."""
    planner, relation = table.planner, table.relation
    if node.HasField("where_clause") or node.HasField("limit_count"):
        return None
    with usual_way_says():
        targets = select_list.resolve_unknown(
            select_list.expand(node.target_list, table.source, table.scope, planner.context), planner.context
        )
        wanted = [table.prepared(each.expression) for each in targets]
    if not wanted or not all(isinstance(each, ColumnRef) for each in wanted) or planner.transaction.held(relation) is not None:
        return None
    by_key = dict(zip([each.key for each in table.star], [each.name for each in relation.columns], strict=True))
    names = [by_key[each.key] for each in wanted if isinstance(each, ColumnRef)]
    read = planner.transaction.pieces(relation, list(dict.fromkeys(names)))
    columns, session = table_rows.plan_columns(targets), planner.session

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in read:
            session.check_cancel()
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in names], names=[each.key for each in columns])

    return table_rows.streamed(columns, batches(), session)


def columns(node: pb.SelectStmt, session: Session, known: dict[int, int]) -> tuple[ResultColumn, ...] | None:
    """The columns of a query that is only described, of one table; `known` is filled with the types of its parameters. None as `answer`."""
    if not _is_plain(node) or any(each.DESCRIPTOR.name in _NOT_HERE for each in walk(node)) or node.HasField("limit_count"):
        return None
    planner = Planner(session, session.begin_statement(), inferred := dict(known))
    try:
        with usual_way_says():
            table = _table(planner, unwrap(node.from_clause[0]))
            targets = select_list.resolve_unknown(
                select_list.expand(node.target_list, table.source, table.scope, planner.context), planner.context
            )
            if node.HasField("where_clause"):
                context = planner.context.within(construct="WHERE")
                binder.bind_condition(node.where_clause, table.scope, "WHERE", context=context)
    except NotColumnwise:
        return None
    known |= inferred
    return result_columns(targets)


def result_columns(targets: Sequence[SelectItem]) -> tuple[ResultColumn, ...]:
    """The description of a SELECT list that is bound."""
    return table_rows.described(table_rows.plan_columns(targets))


def _is_plain(node: pb.SelectStmt) -> bool:
    """Whether the query has but a SELECT list, one relation, WHERE and LIMIT."""
    if {field.name for field, _ in node.ListFields()} - _PLAIN or not node.target_list or not from_clause.is_one_relation(node.from_clause):
        return False
    return node.op == pb.SETOP_NONE and node.limit_option in (pb.LIMIT_OPTION_DEFAULT, pb.LIMIT_OPTION_COUNT)


def _is_count(node: pb.SelectStmt) -> bool:
    """Whether the query is ``SELECT count(*) FROM t``."""
    if len(node.target_list) != 1 or node.HasField("where_clause") or node.HasField("limit_count"):
        return False
    call = unwrap(unwrap(node.target_list[0]).val)
    if call.DESCRIPTOR.name != "FuncCall" or not call.agg_star or _is_marked(call):
        return False
    return names.strings(call.funcname) in (["count"], ["pg_catalog", "count"])


def _is_marked(call: pb.FuncCall) -> bool:
    return call.HasField("agg_filter") or call.HasField("over") or bool(call.agg_within_group)


def _table(planner: Planner, written: pb.RangeVar) -> HeldTable:
    """The table, which the role may read."""
    cursor = planner.transaction.cursor
    if not written.schemaname and written.relname in planner.session.transition_tables:
        raise NotColumnwise("a transition table")
    relation = lookup.source(cursor, planner.session.context, written)
    if relation.oid < FIRST_USER_OID:
        raise NotColumnwise("a system relation")
    privilege.readable(cursor, planner.role, relation)
    alias = written.alias.aliasname
    return HeldTable(planner, relation, alias or relation.name, None if alias else relation.schema, names.strings(written.alias.colnames))


def _rows(table: HeldTable, node: pb.SelectStmt) -> tuple[tuple[PlanColumn, ...], list[pa.Array]]:
    """The columns of the answer and their values."""
    planner = table.planner
    with usual_way_says():
        targets = select_list.resolve_unknown(
            select_list.expand(node.target_list, table.source, table.scope, planner.context), planner.context
        )
        condition = table.where(node)
        wanted = [table.prepared(each.expression) for each in targets]
        most = _limit(table, node)
    columns = table_rows.plan_columns(targets)
    rows = table.passing(_among(table, node, condition, most), condition)
    return columns, table.values(rows if most is None else rows.slice(0, most), wanted)


def _limit(table: HeldTable, node: pb.SelectStmt) -> int | None:
    if not node.HasField("limit_count"):
        return None
    planner = table.planner
    bound = planner.prepare(binder.bind_raw(node.limit_count, table.scope, planner.context.within(construct="LIMIT")))
    if not isinstance(bound, Const) or bound.value is None or not bound.value.isdigit() or len(bound.value) > 18:
        raise NotColumnwise("LIMIT that is no number")
    return int(bound.value)


def _among(table: HeldTable, node: pb.SelectStmt, condition: Expression | None, most: int | None) -> pa.Table:
    """Rows among which are those that the query means."""
    planner, relation = table.planner, table.relation
    keys = None if condition is None else key_lookup.of_where(planner, relation, node.where_clause, table.scope)
    if keys is not None:
        return key_lookup.rows(planner, relation, keys)
    held = planner.transaction.held(relation)
    if held is None and condition is None and most is not None and most <= MOST:
        held = planner.transaction.first_rows(relation, most)
    if held is None:
        raise NotColumnwise("many rows")
    return held


def _count(table: HeldTable, node: pb.SelectStmt) -> tuple[tuple[PlanColumn, ...], list[pa.Array]]:
    """The number of rows, from the statistics of the files."""
    state, pending = table.planner.transaction.shown(table.relation)
    if not all(map(file_action.is_counted, state.files.values())):
        raise NotColumnwise("a file of another writer's without statistics")
    count = state.rows + sum(each.num_rows for each in pending)
    column = PlanColumn(unwrap(node.target_list[0]).name or "count", TypeRef(registry.INT8), "0")
    return (column,), [pa.array([count], pa.int64())]
