"""Reject the change of a row that a BEFORE trigger of the same statement has changed itself (TM_SelfModified of heap_update).

`Firing` and `RoutedFiring` ask before and after they call the triggers of a row. A row has changed if its position in the files, where the
statement has found it, no longer holds a live row.
"""

from __future__ import annotations

import pyarrow as pa

from headgate.catalog.relation.relation import Relation
from headgate.changes.succession import is_live
from headgate.commands.session import Session
from headgate.errors import PostgresError

_HINT = "Consider using an AFTER trigger instead of a BEFORE trigger to propagate changes to other rows."


def changed(verb: str) -> PostgresError:
    """Return the error 27000. `verb`: the change of the statement, such as "updated"."""
    message = f"tuple to be {verb} was already modified by an operation triggered by the current command"
    return PostgresError("27000", message, hint=_HINT)


class OwnChanges:
    """The rows that a statement is about to change in one table, as they were before its triggers were called."""

    def __init__(self, session: Session, relation: Relation, changed: pa.Table) -> None:
        """Remember the table's files. `changed` has the columns `file` and `row`, except for rows that move to another partition."""
        self._transaction, self._relation = session.begin_statement(), relation
        self._changed = changed
        self._states = self._transaction.reader.newest_files(relation) if "file" in changed.column_names else []

    def refuse(self, place: int, verb: str) -> None:
        """Raise 27000 if a trigger has changed or deleted a row. `place`: its number. `verb`: the change of the statement."""
        for before, now in zip(self._states, self._transaction.reader.newest_files(self._relation) if self._states else (), strict=True):
            if now is before:
                continue
            at = self._changed["file"][place].as_py(), self._changed["row"][place].as_py()
            was_live, is_still = (is_live(self._transaction, self._relation, state, at) for state in (before, now))
            if was_live and not is_still:
                raise changed(verb)
