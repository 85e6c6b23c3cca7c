"""Answer a query that only names columns of ``headgate.changes(…)``: its rows are read while they are sent.

Called by `answer`, and by COPY through `direct`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from headgate.analysis.query import ChangesItem, PlanColumn, Query, Select
from headgate.commands.query.change_scan import ChangeScan, as_stored
from headgate.commands.query.driver import table_rows
from headgate.commands.query.planner import Planner
from headgate.expression.node import ColumnRef
from headgate.types.resultset import ResultSet


def refusal(query: Query, select: Select) -> str | None:
    """Return the reason why the driver does not take a query of headgate.changes, or None if it does."""
    return None if direct(query, select) else "not only columns of published changes"


def answer(planner: Planner, query: Query, select: Select) -> ResultSet:
    """Return the rows of a query that only names columns of headgate.changes. They are read while they are sent."""
    published = direct(query, select)
    assert published is not None
    shown, scanned = published
    places = [place for place, _ in shown]

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in scanned.batches():
            stored = as_stored(batch, scanned.columns)
            yield pa.RecordBatch.from_arrays([stored[place] for place in places], names=[column.key for _, column in shown])

    return table_rows.streamed(tuple(column for _, column in shown), batches(), planner.session)


def direct(query: Query, select: Select) -> tuple[list[tuple[int, PlanColumn]], ChangeScan] | None:
    """Return the selected columns with their places in the scan, or None if the query does more than name columns of headgate.changes."""
    source = select.source
    if not isinstance(source, ChangesItem) or not query.only_projects:
        return None
    places = {column.key: place for place, column in enumerate(source.star)}
    shown = []
    for column, target in zip(query.columns, select.targets, strict=True):
        if not isinstance(target.expression, ColumnRef) or target.expression.key not in places:
            return None
        place = places[target.expression.key]
        shown.append((place, replace(column, attributes=source.star[place].attributes)))
    return shown, source.scan
