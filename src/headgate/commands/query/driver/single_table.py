"""Answer queries of one table in the driver if they need few rows or columns and Arrow gives PostgreSQL's exact answer.

Called by `select` before the planner. The rows come from a key that WHERE fixes (`key_lookup`), from a small table, from the start of a
table with LIMIT, from a scan with a memory limit (`table_scan`), or from no file at all (``count(*)``). Grouping, sorting and the SELECT
list are evaluated column by column (`table_query`). For any other query the answer is None. It is then planned as usual, which also raises
its errors.

All stored rows of a large table are read while they are sent (decision 0009). Spark would write all of them once more, and would send the
first row only after the last row of its task is written.
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
"""Maximum LIMIT, in rows, that the driver answers from the start of a table."""
_PLAIN = frozenset({
    "target_list", "from_clause", "where_clause", "group_clause", "having_clause", "distinct_clause", "sort_clause", "limit_count",
    "limit_offset", "limit_option", "op",
})  # fmt: skip
_WHOLE = frozenset({"target_list", "from_clause", "limit_option", "op"})
_NOT_HERE = frozenset({"SubLink", "SetToDefault"})


def answer(node: pb.SelectStmt, session: Session) -> ResultSet | None:
    """Return the result of the query, or None if the driver cannot answer it."""
    if not _is_plain(node):
        return None
    planner = Planner(session, session.begin_statement())
    try:
        with usual_way_says():
            table = _table(planner, unwrap(node.from_clause[0]))
        if _is_count(node) and (counted := _count(table)) is not None:
            columns, values = _count_column(node), [pa.array([counted], pa.int64())]
        elif (whole := _whole(table, node)) is not None:
            return whole
        else:
            with usual_way_says():
                query = TableQuery.bound(table, node)
            columns, values = query.columns, query.values(_among(table, node, query))
    except NotColumnwise:
        return None
    return table_rows.result(columns, values, session)


def _whole(table: HeldTable, node: pb.SelectStmt) -> ResultSet | None:
    """Return all rows of a table that is not small, if the SELECT list only names columns. Otherwise, return None."""
    planner, relation = table.planner, table.relation
    if _clauses(node) - _WHOLE:
        return None
    if any(descendant.DESCRIPTOR.name == "FuncCall" for descendant in walk(node)):
        return None
    with usual_way_says():
        targets = select_list.resolve_unknown(
            select_list.expand(node.target_list, table.source, table.scope, planner.context), planner.context
        )
        selected = [table.prepared(target.expression) for target in targets]
    if (
        not selected
        or not all(isinstance(expression, ColumnRef) for expression in selected)
        or planner.transaction.held(relation) is not None
    ):
        return None
    by_key = dict(zip([column.key for column in table.star], [column.name for column in relation.columns], strict=True))
    names = [by_key[expression.key] for expression in selected if isinstance(expression, ColumnRef)]
    read = planner.transaction.pieces(relation, list(dict.fromkeys(names)))
    columns, session = table_rows.plan_columns(targets), planner.session

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in read:
            session.check_cancel()
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in names], names=[column.key for column in columns])

    return table_rows.streamed(columns, batches(), session)


def columns(node: pb.SelectStmt, session: Session, known: dict[int, int]) -> tuple[ResultColumn, ...] | None:
    """Return the columns of a query of one table that is only described, or None as in `answer`.

    The parameter types are added to `known`.
    """
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
    """Describe the columns of a bound SELECT list."""
    return rendering.result_columns(table_rows.plan_columns(targets))


def _clauses(node: pb.SelectStmt) -> set[str]:
    return {field.name for field, _ in node.ListFields()}


def _is_plain(node: pb.SelectStmt) -> bool:
    """Return whether the query is a SELECT of one relation, without subqueries, windows, WITH and row locks."""
    if _clauses(node) - _PLAIN or not node.target_list or not from_clause.is_one_relation(node.from_clause):
        return False
    if node.op != pb.SETOP_NONE or node.limit_option not in (pb.LIMIT_OPTION_DEFAULT, pb.LIMIT_OPTION_COUNT):
        return False
    return not any(descendant.DESCRIPTOR.name in _NOT_HERE for descendant in walk(node))


def _is_count(node: pb.SelectStmt) -> bool:
    """Return whether the query is ``SELECT count(*) FROM t``."""
    if _clauses(node) - _WHOLE or len(node.target_list) != 1:
        return False
    call = unwrap(unwrap(node.target_list[0]).val)
    if call.DESCRIPTOR.name != "FuncCall" or not call.agg_star or _is_marked(call):
        return False
    return names.strings(call.funcname) in (["count"], ["pg_catalog", "count"])


def _is_marked(call: pb.FuncCall) -> bool:
    return call.HasField("agg_filter") or call.HasField("over") or bool(call.agg_within_group)


def _table(planner: Planner, range_var: pb.RangeVar) -> HeldTable:
    """Return the table. Raise an error if the role may not read it, and NotColumnwise for transition tables and system relations."""
    cursor = planner.transaction.cursor
    if not range_var.schemaname and range_var.relname in planner.session.transition_tables:
        raise NotColumnwise("a transition table")
    relation = lookup.source(cursor, planner.session.context, range_var)
    if relation.oid < FIRST_USER_OID:
        raise NotColumnwise("a system relation")
    privilege.readable(cursor, planner.role, relation)
    alias = range_var.alias.aliasname
    return HeldTable(planner, relation, alias or relation.name, None if alias else relation.schema, names.strings(range_var.alias.colnames))


def _among(table: HeldTable, node: pb.SelectStmt, query: TableQuery) -> Rows:
    """Return the rows that meet the condition of a query: all of them, or as many as the query needs."""
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
    """Return the number of rows from the file statistics, or None if a file of another writer does not have them."""
    state, pending = table.planner.transaction.shown(table.relation)
    if not all(map(file_action.is_counted, state.files.values())):
        return None
    count: int = state.rows + sum(rows.num_rows for rows in pending)
    return count
