"""The calls of triggers and the checks of foreign keys that wait for the end of a statement.

A planner has one object, which the planners of the data-modifying statements in its WITH clause share. `trigger.statement` fills it. As in
PostgreSQL, everything waits until the whole statement has written its rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class StatementTriggers:
    """The triggers of a statement that have fired, and those that wait for its end."""

    def __init__(self) -> None:
        """Create the object for a statement that has not begun."""
        self.later: list[Callable[[], None]] = []
        """The callbacks to run after all rows are written."""
        self.firings: dict[int, Any] = {}
        """The triggers that fire, by table (`trigger.statement.of_statement`)."""
        self.begun: set[tuple[int, int]] = set()
        """The tables and events whose BEFORE STATEMENT triggers have fired."""
        self.acted_on: dict[tuple[int, int], set[str] | None] = {}
        """Those of them that ON DELETE and ON UPDATE have begun (`trigger.statement.change_by_action`), with the columns of an UPDATE."""
        self._ends: dict[tuple[int, int], object] = {}
        self._running = 0

    @contextlib.contextmanager
    def statement(self) -> Iterator[bool]:
        """Run a statement or a part of it. Run the callbacks after the outermost one. Yield whether it is a part of another one."""
        self._running += 1
        try:
            yield self._running > 1
            while self._running == 1 and self.later:
                self.later.pop(0)()
                self.end_actions()
        finally:
            self._running -= 1
            for firing in self.firings.values() if not self._running else ():
                if firing is not None:
                    firing.close()

    def at_end(self, relation: int, event: int, columns: set[str] | None) -> None:
        """Fire the AFTER STATEMENT triggers of a table and an event. Only the last part of the statement that does so fires them."""
        firing, key = self.firings[relation], (relation, event)
        token = self._ends[key] = object()
        if firing is not None:
            self.later.append(lambda: firing.statement(event, before=False, columns=columns) if self._ends[key] is token else None)

    def end_actions(self) -> None:
        """Fire the AFTER STATEMENT triggers of the tables that ON DELETE and ON UPDATE have changed."""
        acted_on, self.acted_on = self.acted_on, {}
        for (relation, event), columns in acted_on.items():
            self.at_end(relation, event, columns)
