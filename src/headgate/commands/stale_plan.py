"""Plan a statement again if another transaction has changed a table's definition while the statement waited for the table's lock.

`execute` uses it for the statements of clients, `function.host` for the statements inside functions.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.commands.result import Result
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.storage.transaction.transaction_catalog import StaleDefinitionError

PLANS = 10
"""Maximum number of times that a statement is planned."""


def replaced(session: Session, run: Callable[[], Result]) -> Result:
    """Run a statement with `run`, and again if its plan was stale.

    Raise the error if the statement has written rows, or if its transaction must not see the new definition.
    """
    before, notice_count, first = session.written, len(session.notices.said), session.snapshot is None
    for _ in range(PLANS):
        try:
            return run()
        except PostgresError as error:
            if not isinstance(error, StaleDefinitionError) and not session.shows_old_catalog:
                raise
            if session.written != before or not session.plan_again(first=first):
                raise
            del session.notices.said[notice_count:]
    raise PostgresError("40001", "could not serialize access due to concurrent update")
