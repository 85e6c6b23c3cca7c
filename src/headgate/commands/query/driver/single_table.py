"""Queries of one table that the driver answers by itself: of few rows or columns, of which Arrow has PostgreSQL's exact answer.

Called by `select` before the planner. The rows are those of a key that WHERE fixes (`key_lookup`), those of a small table, the first of a
table that LIMIT asks for, those that a bounded reading of its columns finds (`table_scan`), or none (``count(*)``). Grouping, sorting and
the SELECT list are evaluated column by column (`table_query`). Whatever is not so simple makes the answer None, and the query goes its
usual way, which also says what is wrong with it.

All rows of a large table, as they are stored, are read while they are sent (decision 0009): Spark would write all of them once more, and
the first would be sent when the last of its task is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.commands import lookup, privilege
from headgate.commands.query import rendering
from headgate.commands.query.clause import from_clause, select_list
from headgate.commands.query.clause.select_list import SelectItem
from headgate.commands.query.driver import key_lookup, table_rows, table_scan
from headgate.commands.query.driver.table_query import TableQuery
from headgate.commands.query.driver.table_rows import HeldTable, usual_way_says
from headgate.commands.query.driver.table_scan import Rows
from headgate.commands.query.plan import PlanColumn
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, TypeRef
from headgate.sql import names
from headgate.sql.parser import unwrap, walk
from headgate.storage.delta import file_action
from headgate.types import registry
from headgate.types.registry import FIRST_USER_OID
from headgate.types.resultset import ResultColumn, ResultSet

MOST = 10_000
"""Rows of a LIMIT that are answered so."""
_PLAIN = frozenset({
    "target_list", "from_clause", "where_clause", "group_clause", "having_clause", "distinct_clause", "sort_clause", "limit_count",
    "limit_offset", "limit_option", "op",
})  # fmt: skip
_WHOLE = frozenset({"target_list", "from_clause", "limit_option", "op"})
_NOT_HERE = frozenset({"SubLink", "SetToDefault"})


def answer(node: pb.SelectStmt, session: Session) -> ResultSet | None:
    """The rows, or None."""
    if not _is_plain(node):
        return None
    planner = Planner(session, session.begin_statement())
    try:
        with usual_way_says():
            table = _table(planner, unwrap(node.from_clause[0]))
        if _is_count(node) and (counted := _count(table)) is not None:
            columns, found = _count_column(node), [pa.array([counted], pa.int64())]
        elif (whole := _whole(table, node)) is not None:
            return whole
        else:
            with usual_way_says():
                query = TableQuery.bound(table, node)
            columns, found = query.columns, query.values(_among(table, node, query))
    except NotColumnwise:
        return None
    return table_rows.result(columns, found, session)


def _whole(table: HeldTable, node: pb.SelectStmt) -> ResultSet | None:
    """All rows of a table that is not small, where the SELECT list names columns and no more."""
    planner, relation = table.planner, table.relation
    if _clauses(node) - _WHOLE:
        return None
    if any(each.DESCRIPTOR.name == "FuncCall" for each in walk(node)):
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
    if not _is_plain(node):
        return None
    planner = Planner(session, session.begin_statement(), inferred := dict(known))
    try:
        with usual_way_says():
            query = TableQuery.bound(_table(planner, unwrap(node.from_clause[0])), node)
    except NotColumnwise:
        return None
    known |= inferred
    return rendering.result_columns(query.columns)


def result_columns(targets: Sequence[SelectItem]) -> tuple[ResultColumn, ...]:
    """The description of a SELECT list that is bound."""
    return rendering.result_columns(table_rows.plan_columns(targets))


def _clauses(node: pb.SelectStmt) -> set[str]:
    return {field.name for field, _ in node.ListFields()}


def _is_plain(node: pb.SelectStmt) -> bool:
    """Whether the query is a SELECT of one relation, without subqueries, windows, WITH and row locks."""
    if _clauses(node) - _PLAIN or not node.target_list or not from_clause.is_one_relation(node.from_clause):
        return False
    if node.op != pb.SETOP_NONE or node.limit_option not in (pb.LIMIT_OPTION_DEFAULT, pb.LIMIT_OPTION_COUNT):
        return False
    return not any(each.DESCRIPTOR.name in _NOT_HERE for each in walk(node))


def _is_count(node: pb.SelectStmt) -> bool:
    """Whether the query is ``SELECT count(*) FROM t``."""
    if _clauses(node) - _WHOLE or len(node.target_list) != 1:
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


def _among(table: HeldTable, node: pb.SelectStmt, query: TableQuery) -> Rows:
    """Rows that pass the condition of a query: all of them, or as many as it can use."""
    planner, relation, condition = table.planner, table.relation, query.condition
    keys = None if condition is None else key_lookup.of_where(planner, relation, node.where_clause, table.scope)
    most = query.enough
    held = planner.transaction.held(relation) if keys is None else key_lookup.rows(planner, relation, keys)
    if held is None and condition is None and most is not None and most <= MOST:
        held = planner.transaction.first_rows(relation, most)
    if held is None:
        return table_scan.read(table, condition, query.keys, most)
    rows = table.passing(held, condition)
    return Rows(table.by_key(rows), rows.num_rows)


def _count_column(node: pb.SelectStmt) -> tuple[PlanColumn, ...]:
    return (PlanColumn(unwrap(node.target_list[0]).name or "count", TypeRef(registry.INT8), "0"),)


def _count(table: HeldTable) -> int | None:
    """The number of rows, from the statistics of the files; None if a file of another writer has none."""
    state, pending = table.planner.transaction.shown(table.relation)
    if not all(map(file_action.is_counted, state.files.values())):
        return None
    count: int = state.rows + sum(each.num_rows for each in pending)
    return count
