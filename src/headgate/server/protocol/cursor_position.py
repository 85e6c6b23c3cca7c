"""The position of a cursor in the rows of its query. It moves as PostgreSQL's portals do (pquery.c).

To scan backward, a position keeps the rows that it has returned: all of them with SCROLL, none with NO SCROLL, otherwise up to
`_KEPT_BYTES`. Large amounts of kept rows are spilled to a file (`row_store`). Used by cursors (`session.cursor`).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.server.protocol.row_source import RowSource
from headgate.storage.row_store import NO_ROWS, RowPart, RowStore

ALL = 2**63 - 1
"""The count of FETCH ALL."""
_KEPT_BYTES = 16 << 20
"""The most bytes of rows that a cursor declared without SCROLL and NO SCROLL keeps."""


class CursorPosition:
    """The position of a cursor: on row `at`, before the first row or after the last row.

    `scroll` is True or False for SCROLL or NO SCROLL. If it is None, the cursor can move backward while its rows are few.
    """

    def __init__(self, new_store: Callable[[], RowStore], *, scroll: bool | None) -> None:
        self.scroll = scroll
        self.at = 0
        self.at_start = True
        self.at_end = False
        self.new_store = new_store
        self._store = new_store()
        self._last = (self._store, 0)
        """The row returned last: its store and its index there."""

    @property
    def on_row(self) -> bool:
        return not self.at_start and not self.at_end

    def row(self) -> pa.RecordBatch:
        store, index = self._last
        [batch] = store.part(index, 1)
        return batch

    def forward(self, source: RowSource, many: int) -> RowPart:
        """Move forward by up to `many` rows and return them."""
        if self.at_end or many <= 0:
            return NO_ROWS
        part = self._next(source, many)
        self.at_start = self.at_start and not part.rows
        self.at_end = part.rows < many
        self.at += part.rows
        return part

    def _next(self, source: RowSource, many: int) -> RowPart:
        first = 0 if self.scroll is False else self.at
        store = self.new_store() if self.scroll is False else self._store
        missing = many - (store.rows - first)
        if missing > 0:
            for batch in source.take(0 if many == ALL else missing):
                store.append(batch)
        part = store.part(first, many)
        if self.scroll is None and store.nbytes > _KEPT_BYTES:
            self.scroll, self._store = False, self.new_store()
        if part.rows:
            self._set_current(store, first + part.rows - 1)
        return part

    def _set_current(self, store: RowStore, index: int) -> None:
        """Record the current row. If the store is not kept, copy the row."""
        if self.scroll is False:
            [row] = store.part(index, 1)
            store, index = self.new_store(), 0
            store.append(row.take(pa.array([0])) if row.num_columns else row)
        self._last = (store, index)

    def backward(self, many: int) -> RowPart:
        """Move backward by up to `many` rows and return them, the nearest first. Raise 55000 if the cursor cannot."""
        self.check_scrolls()
        if self.at_start or many <= 0:
            return NO_ROWS
        last = self.at if self.at_end else self.at - 1
        first = max(last - many, 0)
        part = self._store.part(first, last - first, backward=True)
        self.at_start = last - first < many
        self.at = 0 if self.at_start else first + 1
        self._last = (self._store, first)
        self.at_end = self.at_end and last == first
        return part

    def rewind(self) -> None:
        """Move before the first row."""
        if self.at_start and not self.at_end:
            return
        self.check_scrolls()
        self.at, self.at_start, self.at_end = 0, True, False

    def check_scrolls(self) -> None:
        """Raise 55000 if the cursor can only move forward."""
        if self.scroll is False:
            raise PostgresError("55000", "cursor can only scan forward", hint="Declare it with SCROLL option to enable backward scan.")

    def move(self, source: RowSource, direction: str, many: int, *, fetching: bool) -> tuple[RowPart, int]:
        """Execute FETCH, or MOVE if not `fetching`. Return the rows and their number (DoPortalRunFetch)."""
        if direction == "FETCH_ABSOLUTE":
            part = self._absolute(source, many)
            return part, part.rows
        if direction == "FETCH_RELATIVE" and many:
            if many > 0:
                self.forward(source, many - 1)
                part = self.forward(source, 1)
            else:
                self.backward(-many - 1)
                part = self.backward(1)
            return part, part.rows
        backward = direction != "FETCH_FORWARD"
        if many < 0:
            backward, many = not backward, -many
        if not many:
            if not fetching or not self.on_row:
                return NO_ROWS, int(self.on_row)
            self.backward(1)
            part = self.forward(source, 1)
        elif backward and many == ALL and not fetching:
            passed = self.at if self.at_end else max(self.at - 1, 0)
            self.rewind()
            return NO_ROWS, passed
        else:
            part = self.backward(many) if backward else self.forward(source, many)
        return part, part.rows

    def _absolute(self, source: RowSource, row_number: int) -> RowPart:
        if row_number > 0:
            if row_number - 1 <= self.at // 2:
                self.rewind()
                self.forward(source, row_number - 1)
            else:
                current = self.at + self.at_end
                if row_number <= current:
                    self.backward(current - row_number + 1)
                else:
                    self.forward(source, row_number - current - 1)
            return self.forward(source, 1)
        if row_number < 0:
            self.forward(source, ALL)
            self.backward(-row_number - 1)
            return self.backward(1)
        self.rewind()
        return NO_ROWS
