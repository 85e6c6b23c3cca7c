"""A catalog transaction that can roll back to a savepoint.

DuckDB has no savepoints. So the writing statements are recorded, and ROLLBACK TO rolls back the whole DuckDB transaction and repeats those
before the savepoint. Catalog transactions are a handful of small statements. Used by `transaction` only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import duckdb
import pyarrow as pa

from headgate.catalog.catalog import Catalog
from headgate.catalog.cursor import CatalogCursor, Rows, is_read
from headgate.catalog.unique import CatalogKey

CatalogWrite = tuple[str, str, object]
"""A write: a method of the cursor, the statement or name, and its parameters."""
_FEW = 1000
"""A transaction with fewer writes replays them for each statement after a commit of others: some 0.2 s."""
_PAUSE = 4
"""Minimum time until the next replay, as a multiple of the last one's."""


class RecordedCursor:
    """A DuckDB cursor that records its writes. `claim` serves `catalog.unique`, `use` `catalog.hold`, `newest` `security.rights`."""

    def __init__(
        self,
        cursor: CatalogCursor,
        claim: Callable[[CatalogKey], None],
        use: Callable[[str, int], None],
        newest: Callable[[str], CatalogCursor],
    ) -> None:
        self._cursor = cursor
        self._newest = newest
        self.claim, self.use = claim, use
        self.written: list[CatalogWrite] = []

    def newest(self, sql: str) -> CatalogCursor:
        """Return a cursor whose query sees all committed changes and the transaction's own, at any isolation level."""
        return self._newest(sql)

    def execute(self, query: str, parameters: Sequence[object] | None = None) -> duckdb.DuckDBPyConnection:
        """Execute as DuckDB's cursor does, and record a write."""
        if not is_read(query):
            self.written.append(("execute", query, parameters))
        return self._cursor.execute(query, parameters)

    def rows(self, query: str, parameters: Sequence[object] | None = None) -> Rows:
        """Execute as the catalog's cursor does, and record a write, which returns the number of rows that it affected."""
        if not is_read(query):
            self.written.append(("rows", query, parameters))
        return self._cursor.rows(query, parameters)

    def register(self, name: str, table: pa.Table) -> duckdb.DuckDBPyConnection:
        """Register an Arrow table as DuckDB's cursor does, so that statements can read it under the name."""
        self.written.append(("register", name, table))
        return self._cursor.register(name, table)

    def unregister(self, name: str) -> None:
        """Unregister a table as DuckDB's cursor does. Nothing is recorded for a table that only a query has read."""
        if self.written and self.written[-1][:2] == ("register", name):
            del self.written[-1]
        else:
            self.written.append(("unregister", name, None))
        self._cursor.unregister(name)

    def repeat(self, cursor: CatalogCursor, count: int) -> None:
        """Switch to a new cursor and repeat the first `count` writes on it."""
        self._cursor = cursor
        del self.written[count:]
        repeat(cursor, self.written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def repeat(cursor: CatalogCursor, statements: Iterable[CatalogWrite]) -> None:
    for method, query, parameters in statements:
        if parameters is None:
            getattr(cursor, method)(query)
        else:
            getattr(cursor, method)(query, parameters)


class RecordedCatalog:
    """A `catalog.CatalogTransaction` with savepoints."""

    def __init__(
        self,
        catalog: Catalog,
        claim: Callable[[CatalogKey], None],
        use: Callable[[str, int], None],
        newest: Callable[[str], CatalogCursor],
    ) -> None:
        self._catalog = catalog
        self._transaction = catalog.begin()
        self._beside: CatalogCursor | None = None
        self._replay_from = 0.0
        """The time (of `time.monotonic`) from which on the writes may be replayed again."""
        self.failed = False
        """Whether a statement may have failed, after which DuckDB rejects all others in this transaction."""
        self.cursor = RecordedCursor(self._transaction.cursor, claim, use, newest)

    @property
    def as_cursor(self) -> CatalogCursor:
        """Return the recording cursor as the cursor whose methods it passes on."""
        return cast("CatalogCursor", self.cursor)

    @property
    def place(self) -> int:
        """A savepoint: the number of recorded writes."""
        return len(self.cursor.written)

    def rollback_to(self, place: int) -> None:
        """Undo the writes after a savepoint."""
        self.failed = True
        if place != self.place:
            self.renew(place)

    def renew(self, place: int) -> None:
        """Begin again on the newest committed catalog, with the first `place` of its own writes."""
        if place == self.place and not self.failed and self._transaction.cursor.is_newest:
            return
        began = time.monotonic()
        self.failed = False
        self._transaction.rollback()
        self._transaction = self._catalog.begin()
        self.cursor.repeat(self._transaction.cursor, place)
        self._replay_from = (ended := time.monotonic()) + _PAUSE * (ended - began)

    @property
    def may_replay(self) -> bool:
        """Return whether a replay is cheap, or the last one is long enough ago."""
        return self.place < _FEW or time.monotonic() >= self._replay_from

    @property
    def committed(self) -> CatalogCursor:
        """Return a cursor in autocommit, which sees what is committed when it is used."""
        if self._beside is None:
            self._beside = self._catalog.cursor()
        return self._beside

    def commit(self) -> None:
        self._close_beside()
        self._transaction.commit()

    def rollback(self) -> None:
        self._close_beside()
        self._transaction.rollback()

    def _close_beside(self) -> None:
        if self._beside is not None:
            self._beside.close()
            self._beside = None
