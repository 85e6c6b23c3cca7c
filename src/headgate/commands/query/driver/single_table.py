"""Answer queries of one table in the driver if they need few rows or columns and Arrow gives PostgreSQL's exact answer.

Called by `answer`. The rows come from a key that WHERE fixes (`key_lookup`), from a small
table, from the start of a table with LIMIT, from a scan with a memory limit (`table_scan`), or from no file at all (``count(*)``).
Grouping, sorting and the SELECT list are evaluated column by column (`table_query`).

All stored rows of a large table are read while they are sent (decision 0009). Spark would write all of them once more, and would send the
first row only after the last row of its task is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from headgate.analysis.query import Query, RelationItem, Select
from headgate.commands import privilege
from headgate.commands.query.driver import key_lookup, table_query, table_rows, table_scan
from headgate.commands.query.driver.table_query import TableQuery
from headgate.commands.query.driver.table_rows import HeldTable, usual_way_says
from headgate.commands.query.driver.table_scan import Rows
from headgate.commands.query.planner import Planner
from headgate.expression import builtin
from headgate.expression.node import ColumnRef, conjuncts
from headgate.storage.delta import file_action
from headgate.types.registry import FIRST_USER_OID
from headgate.types.resultset import ResultSet

MOST = 10_000
"""Maximum LIMIT, in rows, that the driver answers from the start of a table."""


def refusal(query: Query, select: Select) -> str | None:
    """Return the reason why the driver does not take a query whose FROM clause is one relation, or None if it does."""
    item = select.source
    if not isinstance(item, RelationItem) or item.relation.oid < FIRST_USER_OID or item.locks:
        return "not a table that is only read"
    return table_query.refusal(query, select)


def answer(planner: Planner, query: Query, select: Select) -> ResultSet:
    """Return the result of a query whose FROM clause is one relation."""
    item = select.source
    assert isinstance(item, RelationItem)
    with usual_way_says():
        privilege.readable(planner.transaction.cursor, planner.role, item.relation)
        table = HeldTable(planner, item.relation, item)
    if _is_count(query, select) and (counted := _count(table)) is not None:
        values = [pa.array([counted], pa.int64())]
    elif (whole := _whole(table, query, select)) is not None:
        return whole
    else:
        with usual_way_says():
            prepared = TableQuery.of(table, query, select)
        values = prepared.values(_among(table, prepared))
    return table_rows.result(query.columns, values, planner.session)


def _whole(table: HeldTable, query: Query, select: Select) -> ResultSet | None:
    """Return all rows of a table that is not small, if the SELECT list only names columns. Otherwise, return None."""
    planner, relation = table.planner, table.relation
    if not query.only_projects or not all(isinstance(target.expression, ColumnRef) for target in select.targets):
        return None
    with usual_way_says():
        selected = [table.prepared(target.expression) for target in select.targets]
    if not all(isinstance(expression, ColumnRef) for expression in selected) or planner.transaction.held(relation) is not None:
        return None
    by_key = dict(zip([column.key for column in table.star], [column.name for column in relation.columns], strict=True))
    names = [by_key[expression.key] for expression in selected if isinstance(expression, ColumnRef)]
    read = planner.transaction.pieces(relation, list(dict.fromkeys(names)))
    columns, session = query.columns, planner.session

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in read:
            session.check_cancel()
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in names], names=[column.key for column in columns])

    return table_rows.streamed(columns, batches(), session)


def _is_count(query: Query, select: Select) -> bool:
    """Return whether the query is ``SELECT count(*) FROM t``."""
    grouped = select.grouped
    if grouped is None or grouped.sets != ((),) or grouped.having is not None or len(grouped.aggregates) != 1 or len(query.columns) != 1:
        return False
    [(aggregate, key)] = grouped.aggregates.items()
    if not aggregate.star or aggregate.filter is not None or builtin.function(aggregate.function).name != "count":
        return False
    target = select.targets[0].expression
    return isinstance(target, ColumnRef) and target.key == key and replace(query, body=replace(select, grouped=None)).only_projects


def _among(table: HeldTable, query: TableQuery) -> Rows:
    """Return the rows that meet the condition of a query: all of them, or as many as the query needs."""
    planner, relation, condition = table.planner, table.relation, query.condition
    keys = None if condition is None else key_lookup.of_terms(planner, relation, table.star, conjuncts(condition))
    most = query.enough
    held = planner.transaction.held(relation) if keys is None else key_lookup.rows(planner, relation, keys)
    if held is None and condition is None and most is not None and most <= MOST:
        held = planner.transaction.first_rows(relation, most)
    if held is None:
        return table_scan.read(table, condition, query.keys, most)
    rows = table.passing(held, condition)
    return Rows(table.by_key(rows), rows.num_rows)


def _count(table: HeldTable) -> int | None:
    """Return the number of rows from the file statistics, or None if a file of another writer does not have them."""
    state, pending = table.planner.transaction.shown(table.relation)
    if not all(map(file_action.is_counted, state.files.values())):
        return None
    count: int = state.rows + sum(rows.num_rows for rows in pending)
    return count
