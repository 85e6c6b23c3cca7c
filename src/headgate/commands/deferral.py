"""What a transaction puts off until its end: checks of deferred constraints, deferred triggers, and ON COMMIT of temporary tables.

One `Deferral` belongs to each transaction of a session, which ends it: checks first, then the temporary tables, then the commit. SET
CONSTRAINTS changes its modes (`set_constraints`), foreign keys and unique keys put their checks off (`referential_action`, `uniqueness`),
and constraint triggers the calls of their functions (`trigger.firing`). A replication worker has one for each transaction that it writes.

    waiting   `put_off`: a constraint that is deferred was touched; the check looks at what is there when it runs
    done      `check`: by SET CONSTRAINTS … IMMEDIATE or at the end; an error leaves it to the session to undo the transaction

Checks run in the order in which they were put off. The function of a trigger may put off further ones, which run after those that wait.
ROLLBACK TO brings back the modes and the waiting checks of its savepoint: those put off later are forgotten, and those that were done
since run again, because what satisfied them may be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError

Action = Callable[[], None]

ALL = 0


@dataclass(frozen=True)
class Deferrable:
    """A deferrable constraint: its oid, and whether it was declared INITIALLY DEFERRED."""

    oid: int
    initially: bool


@dataclass(frozen=True)
class Check:
    """A check that waits. `relation`: the table (oid) whose rows were written."""

    constraint: Deferrable
    relation: int
    action: Action


@dataclass(frozen=True)
class Saved:
    """What there was at a savepoint."""

    modes: dict[int, bool]
    checks: tuple[Check, ...]
    endings: dict[int, Action]


class Deferral:
    """See the module."""

    def __init__(self) -> None:
        self._modes: dict[int, bool] = {}
        self._checks: tuple[Check, ...] = ()
        self._endings: dict[int, Action] = {}

    # ---- constraints --------------------------------------------------------------------------------------
    def deferred(self, constraint: Deferrable) -> bool:
        """Whether a constraint is checked at the end: as SET CONSTRAINTS said last, or as it was declared."""
        return self._modes.get(constraint.oid, self._modes.get(ALL, constraint.initially))

    def set_all(self, *, deferred: bool) -> None:
        """SET CONSTRAINTS ALL: what was said of single constraints is forgotten."""
        self._modes = {ALL: deferred}

    def set_some(self, constraints: set[int], *, deferred: bool) -> None:
        """SET CONSTRAINTS a, b, by their oids."""
        self._modes = self._modes | dict.fromkeys(constraints, deferred)

    def put_off(self, constraint: Deferrable, relation: int, check: Action) -> None:
        """Keeps a check of a deferred constraint for the end; `relation`: the table (oid) whose rows were written."""
        self._checks = (*self._checks, Check(constraint, relation, check))

    def refuse_waiting(self, cursor: Cursor, relation: Relation, command: str) -> None:
        """55006 if checks wait for rows of a table, or of a partition of it, that a command changes or drops (CheckTableNotInUse)."""
        waiting = {each.relation for each in self._checks}
        for oid in waiting and [relation.oid, *relations.descendants(cursor, relation.database, relation.oid)]:
            if oid in waiting:
                name = relations.get(cursor, relation.database, oid).name
                raise PostgresError("55006", f'cannot {command} "{name}" because it has pending trigger events')

    def check(self, *, everything: bool = False) -> None:
        """Runs the waiting checks of constraints that are not deferred any more; at the end those of all."""
        while found := next((each for each in self._checks if everything or not self.deferred(each.constraint)), None):
            self._checks = tuple(each for each in self._checks if each is not found)  # its action may call this again
            found.action()

    # ---- ON COMMIT ------------------------------------------------------------------------------------------
    def at_end(self, relation: int, action: Action) -> None:
        """What is done with a temporary table (oid) when the transaction commits; once, however often it is asked for."""
        self._endings.setdefault(relation, action)

    def finish(self) -> None:
        """The transaction is about to commit."""
        self.check(everything=True)
        endings, self._endings = self._endings, {}
        for action in endings.values():
            action()

    # ---- savepoints -----------------------------------------------------------------------------------------
    def saved(self) -> Saved:
        """What there is now, for `restore`."""
        return Saved(dict(self._modes), self._checks, dict(self._endings))

    def restore(self, saved: Saved) -> None:
        """ROLLBACK TO a savepoint."""
        self._modes, self._checks, self._endings = dict(saved.modes), saved.checks, dict(saved.endings)
