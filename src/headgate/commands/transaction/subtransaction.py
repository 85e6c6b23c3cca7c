"""Run statements of replication and `headgate.restore` in a subtransaction: a failing one has no effect, and the transaction continues.

Used for statements of a publisher or a dump that headgate may not support. Conflicts with other transactions, cancels and full disks are
raised and abort the transaction as usual.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from headgate.commands.session import Session
from headgate.errors import PostgresError, Severity
from headgate.sql.parser import ParseNode
from headgate.storage.transaction.transaction_catalog import StaleDefinitionError

_NAME = "headgate attempt"
_PASSED_ON = ("40", "53", "57", "58", "XX")
"""SQLSTATE classes of errors that the statement itself does not cause."""


def attempt(session: Session, nodes: Sequence[ParseNode], run: Callable[[ParseNode], object] | None = None) -> PostgresError | None:
    """Run all statements or none, with `run` if it is given. Return the error of the one that failed. Their notices are dropped."""
    notice_count = len(session.notices.said)
    try:
        with undone(session):
            for node in nodes:
                (run or (lambda statement: session.parts.run_statement(statement, session)))(node)
    except PostgresError as error:
        if error.sqlstate.startswith(_PASSED_ON) or error.severity is Severity.FATAL or isinstance(error, StaleDefinitionError):
            raise
        return error
    finally:
        del session.notices.said[notice_count:]
    return None


@contextlib.contextmanager
def undone(session: Session) -> Iterator[None]:
    """Run the block in a subtransaction, which is rolled back if the block raises a PostgresError."""
    transaction, deferral, pending = session.begin_statement(), session.deferral.saved(), session.pending.saved()
    settings = session.settings.remember()
    transaction.savepoint(_NAME)
    try:
        with session.nested():
            yield
    except PostgresError:
        transaction.rollback_to(_NAME)
        session.settings.rollback_to(settings)
        session.deferral.restore(deferral)
        session.pending.restore(pending)
        session.use_types()
        raise
    finally:
        transaction.release(_NAME)
