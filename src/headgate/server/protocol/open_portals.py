"""The open portals of a session by name, and their lifetime (portalmem.c).

A portal ends with its transaction, or with the rollback to a savepoint made before it. A cursor WITH HOLD continues after its transaction
has committed. Bind and DECLARE open portals; the session's transaction block ends them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from headgate.commands.open_cursor import OpenCursor
from headgate.errors import not_supported
from headgate.server.protocol.cursor_position import CursorPosition
from headgate.server.protocol.portal import Portal
from headgate.server.protocol.statement_memory import Kept
from headgate.sql.parser import ParseNode
from headgate.storage.row_store import RowStore


class OpenPortals(Kept[Portal]):
    """The open portals. `depth` is the number of open savepoints."""

    depth = 0

    def open(self, portal: Portal) -> None:
        """Add a portal to the current (sub)transaction."""
        portal.depth = self.depth
        self.keep(portal.name, portal)

    def cursor(self, name: str, new_store: Callable[[], RowStore]) -> OpenCursor | None:
        """Return the cursor or portal of that name for ``WHERE CURRENT OF``, or None."""
        portal = self.get(name)
        if portal is None or portal.prepared.statement is None:
            return None
        position = portal.buffered or CursorPosition(new_store, scroll=False)
        at = position.at if position.on_row else None
        columns = portal.prepared.columns or ()
        return OpenCursor(portal.prepared.statement.node, columns, portal.view, not portal.fresh, at, position.row, portal.chosen)

    def queries(self) -> list[ParseNode]:
        """Return the queries of the portals that the transaction has opened."""
        statements = [portal.prepared.statement for portal in self.values() if portal.fresh]
        return [statement.node for statement in statements if statement is not None and statement.kind == "SelectStmt"]

    def close(self, name: str) -> None:
        portal = self.remove(name)
        if portal is not None:
            portal.close()

    def close_all(self) -> None:
        self._close(lambda portal: True)

    def commit(self) -> None:
        """Prepare for the commit: close portals, and compute the remaining rows of cursors WITH HOLD, whose errors are raised."""
        self._close(lambda portal: portal.fresh and (portal.failed or not portal.hold))
        for portal in self.values():
            if portal.fresh:
                portal.keep()

    def roll_back(self) -> None:
        """Close the portals of the transaction after its end."""
        self._close(lambda portal: portal.fresh)

    def check_prepare(self) -> None:
        """Raise 0A000 if the transaction has created a cursor WITH HOLD, which PREPARE TRANSACTION cannot keep."""
        if any(portal.fresh and portal.hold for portal in self.values()):
            raise not_supported("cannot PREPARE a transaction that has created a cursor WITH HOLD")

    def fail(self) -> None:
        """End the portals of a transaction that has failed. Their names stay until it is rolled back (AtAbort_Portals)."""
        for portal in self.values():
            if portal.fresh:
                portal.failed = True
                with contextlib.suppress(Exception):
                    portal.close()

    def roll_back_to(self, depth: int) -> None:
        """Close portals for ROLLBACK TO the savepoint with `depth` others before it."""
        self._close(lambda portal: portal.fresh and portal.depth > depth)
        self.depth = depth + 1

    def release(self, depth: int) -> None:
        """Move portals to the outer level for RELEASE of the savepoint with `depth` others before it."""
        for portal in self.values():
            portal.depth = min(portal.depth, depth)
        self.depth = depth

    def _close(self, which: Callable[[Portal], bool]) -> None:
        for name in [name for name, portal in self.items() if which(portal)]:
            with contextlib.suppress(Exception):
                self.close(name)
