"""Answer an analysed query in the driver, without a Spark job.

Called by `select` before Spark plans the query. The FROM clause decides which function answers: the query of constants, of one table, or
of published changes. A function raises NotColumnwise if it does not support the query, or if Arrow's answer would differ from PostgreSQL's
for the data that it has read. Spark then answers the query. Only this module catches the exception for a query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headgate.analysis.query import ChangesItem, FromItem, Query, RelationItem, Select
from headgate.commands.query import change_scan
from headgate.commands.query.driver import constant, single_table
from headgate.commands.query.planner import Planner
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.types.resultset import ResultSet

_BY_SOURCE: Mapping[type[FromItem], Callable[[Planner, Query, Any], ResultSet]] = {
    FromItem: constant.answer,
    RelationItem: single_table.answer,
    ChangesItem: change_scan.answer,
}


def of(planner: Planner, query: Query) -> ResultSet | None:
    """Return the result of the query, or None if Spark has to answer it."""
    answer = _BY_SOURCE.get(type(query.body.source)) if isinstance(query.body, Select) else None
    if answer is None or not query.columns:
        return None
    try:
        return answer(planner, query, query.body)
    except NotColumnwise:
        return None
