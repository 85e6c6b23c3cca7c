"""A cursor for ``WHERE CURRENT OF``: its query and its current row.

The session provides it (`Session.open_cursor`) to `commands.dml.current_row`. The row is the text that the cursor has returned. Its place
in the table is looked up when a statement needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.sql.parser import ParseNode
from headgate.storage.transaction.statement_view import StatementView
from headgate.types.resultset import ResultColumn


@dataclass(frozen=True)
class OpenCursor:
    """An open cursor.

    `view`: the statement's view, or None for a portal that DECLARE did not create. `held`: the cursor is from an earlier transaction.
    `at`: the number of the current row, or None. `row` reads its text form. `chosen`: the stored row that was chosen among equal ones,
    by row number.
    """

    query: ParseNode
    columns: tuple[ResultColumn, ...]
    view: StatementView | None
    held: bool
    at: int | None
    row: Callable[[], pa.RecordBatch]
    chosen: dict[int, tuple[str, int]] = field(default_factory=dict)
