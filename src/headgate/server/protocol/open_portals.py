"""The portals of a session by name, and how long they live (portalmem.c).

A portal ends with its transaction, or with the savepoint behind which it was opened; a cursor WITH HOLD goes on once its transaction has
committed. Opened by Bind and DECLARE, ended by the session's transaction block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from headgate.errors import not_supported
from headgate.server.protocol.portal import Portal
from headgate.server.protocol.statement_memory import Kept


class OpenPortals(Kept[Portal]):
    """What is open; `depth`: how many savepoints are."""

    depth = 0

    def open(self, portal: Portal) -> None:
        """Takes a portal in, of the present (sub)transaction."""
        portal.depth = self.depth
        self.keep(portal.name, portal)

    def close(self, name: str) -> None:
        """Forgets a portal; not an error if there is none."""
        portal = self.let_go(name)
        if portal is not None:
            portal.close()

    def close_all(self) -> None:
        """Forgets all portals."""
        self._close(lambda portal: True)

    def commit(self) -> None:
        """The transaction is about to commit: raises what computing the rest of a cursor WITH HOLD raises."""
        self._close(lambda portal: portal.fresh and (portal.failed or not portal.hold))
        for portal in self.values():
            if portal.fresh:
                portal.keep()

    def roll_back(self) -> None:
        """The transaction has ended otherwise."""
        self._close(lambda portal: portal.fresh)

    def check_prepare(self) -> None:
        """0A000 where PREPARE TRANSACTION would have to keep a cursor."""
        if any(portal.fresh and portal.hold for portal in self.values()):
            raise not_supported("cannot PREPARE a transaction that has created a cursor WITH HOLD")

    def roll_back_to(self, depth: int) -> None:
        """ROLLBACK TO the savepoint before which there were `depth` others."""
        self._close(lambda portal: portal.fresh and portal.depth > depth)
        self.depth = depth + 1

    def release(self, depth: int) -> None:
        """RELEASE of the savepoint before which there were `depth` others."""
        for portal in self.values():
            portal.depth = min(portal.depth, depth)
        self.depth = depth

    def _close(self, which: Callable[[Portal], bool]) -> None:
        for name in [name for name, portal in self.items() if which(portal)]:
            with contextlib.suppress(Exception):
                self.close(name)
