"""Actions that a transaction defers to its end: checks of deferred constraints, deferred triggers, ON COMMIT of temporary tables.

Each transaction of a session has one `Deferral`. At its end, the session runs the checks, then the ON COMMIT actions, then commits. SET
CONSTRAINTS changes the modes (`set_constraints`). Foreign keys and unique keys defer their checks (`referential_action`, `uniqueness`), and
constraint triggers the calls of their functions (`trigger.firing`). A replication worker has one for each transaction that it writes.

    waiting   `put_off`: a deferred constraint is concerned; the check reads the rows as they are when it runs
    done      `check`: by SET CONSTRAINTS … IMMEDIATE or at the end; after an error, the session aborts the transaction

Checks run in the order in which they were deferred. The function of a trigger may defer further ones, which run after the waiting ones.
ROLLBACK TO restores the modes and the waiting checks of its savepoint. Checks that were deferred later are dropped. Checks that have run
since are waiting again, because the rows that satisfied them may be rolled back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headgate.sql.parser import ParseNode

Action = Callable[[], None]

ALL = 0


@dataclass(frozen=True)
class Deferrable:
    """A deferrable constraint: its oid, and whether it was declared INITIALLY DEFERRED."""

    oid: int
    initially: bool


@dataclass(frozen=True)
class Check:
    """A waiting check. `relation`: the oid of the table whose rows were written."""

    constraint: Deferrable
    relation: int
    action: Action


@dataclass(frozen=True)
class Saved:
    """The state at a savepoint."""

    modes: dict[int, bool]
    put_off: int
    """The number of checks that had been deferred."""
    ran: int
    """The number of checks that had run since the first savepoint."""
    endings: dict[int, Action]


class Deferral:
    """The deferred actions of one transaction."""

    def __init__(self) -> None:
        self._modes: dict[int, bool] = {}
        self._waiting: dict[int, Check] = {}
        """The waiting checks by their number, in the order in which they were deferred."""
        self._put_off = 0
        self._ran: list[tuple[int, Check]] | None = None
        """The checks that have run since the first savepoint, in that order. None if there has been no savepoint."""
        self._endings: dict[int, Action] = {}
        self.tables_in_use: list[int] = []
        """The tables (oids) that running statements change, the outermost first."""
        self.queries_in_use: list[ParseNode] = []
        """The queries over whose rows functions loop, the outermost first."""
        self.postponed: list[Action] | None = None
        """In a statement of WITH, the actions at the end of the whole statement. It gets the checks that are not deferred."""

    @contextlib.contextmanager
    def postponing(self, actions: list[Action] | None) -> Iterator[None]:
        """Let the checks in the block wait in a list, or run at once."""
        outer, self.postponed = self.postponed, actions
        try:
            yield
        finally:
            self.postponed = outer

    # ---- constraints --------------------------------------------------------------------------------------
    def deferred(self, constraint: Deferrable) -> bool:
        """Return whether a constraint is checked at the end, according to the last SET CONSTRAINTS or its declaration."""
        return self._modes.get(constraint.oid, self._modes.get(ALL, constraint.initially))

    def set_all(self, *, deferred: bool) -> None:
        """SET CONSTRAINTS ALL. The modes of single constraints are dropped."""
        self._modes = {ALL: deferred}

    def set_some(self, constraints: set[int], *, deferred: bool) -> None:
        self._modes = self._modes | dict.fromkeys(constraints, deferred)

    def put_off(self, constraint: Deferrable, relation: int, check: Action) -> None:
        """Defer a check of a deferred constraint to the end. `relation`: the oid of the table whose rows were written."""
        self._waiting[self._put_off] = Check(constraint, relation, check)
        self._put_off += 1

    @property
    def waiting(self) -> set[int]:
        """The tables (oids) for whose rows checks wait."""
        return {check.relation for check in self._waiting.values()}

    def check(self, *, everything: bool = False) -> None:
        """Run the waiting checks of constraints that are no longer deferred, or with `everything` all waiting checks."""
        while numbers := [number for number in self._waiting if everything or self._is_due(number)]:
            for number in numbers:
                if number in self._waiting and (everything or self._is_due(number)):  # the action of another check may have changed that
                    self._run(number)

    def _is_due(self, number: int) -> bool:
        return not self.deferred(self._waiting[number].constraint)

    def _run(self, number: int) -> None:
        check = self._waiting.pop(number)  # remove it first, because its action may call `check` again
        if self._ran is not None:
            self._ran.append((number, check))
        check.action()

    # ---- ON COMMIT ------------------------------------------------------------------------------------------
    def at_end(self, relation: int, action: Action) -> None:
        """Register the action for a temporary table (oid) when the transaction commits. Only the first registration of a table counts."""
        self._endings.setdefault(relation, action)

    def finish(self) -> None:
        """Run all waiting checks, then the ON COMMIT actions. Called just before the commit."""
        self.check(everything=True)
        endings, self._endings = self._endings, {}
        for action in endings.values():
            action()

    # ---- savepoints -----------------------------------------------------------------------------------------
    def saved(self) -> Saved:
        """Return the current state, for `restore`."""
        self._ran = [] if self._ran is None else self._ran
        return Saved(dict(self._modes), self._put_off, len(self._ran), dict(self._endings))

    def restore(self, saved: Saved) -> None:
        """Restore the state of a savepoint (ROLLBACK TO)."""
        self._modes, self._endings = dict(saved.modes), dict(saved.endings)
        while self._waiting and next(reversed(self._waiting)) >= saved.put_off:
            self._waiting.popitem()
        if self._ran is not None and len(self._ran) > saved.ran:
            ran = [(number, check) for number, check in self._ran[saved.ran :] if number < saved.put_off]
            del self._ran[saved.ran :]
            self._waiting = dict(sorted([*self._waiting.items(), *ran], key=lambda item: item[0]))
