"""A cursor as ``WHERE CURRENT OF`` finds it: what its query was opened on, and the row on which it stands.

The session gives it (`Session.open_cursor`), `commands.dml.current_row` asks it. The row is what the cursor has shown, as text; where it is
in the table is found out when a statement needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.sql.parser import ParseNode
from headgate.storage.transaction.statement_view import StatementView
from headgate.types.resultset import ResultColumn

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class OpenCursor:
    """`view`: None for a portal that DECLARE has not made; `held`: of an earlier transaction.

    `at`: the number of the row on which it stands, None if on none; `row` reads its text form. `chosen`: which one of equal rows a row was
    taken for, by its number.
    """

    query: ParseNode
    columns: tuple[ResultColumn, ...]
    view: StatementView | None
    held: bool
    at: int | None
    row: Callable[[], pa.RecordBatch]
    chosen: dict[int, tuple[str, int]] = field(default_factory=dict)
