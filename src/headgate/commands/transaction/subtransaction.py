"""Statements that replication and `headgate.restore` try: one that fails leaves nothing, and the transaction goes on.

Called where what a publisher or a dump has may be more than a node can have. Conflicts with other transactions, cancels and full disks are
not for whoever tries: they end the transaction as anywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from headgate.commands.session import Session
from headgate.errors import PostgresError, Severity
from headgate.sql.parser import ParseNode
from headgate.storage.transaction.uncommitted import StaleDefinitionError

_NAME = "headgate attempt"
_PASSED_ON = ("40", "53", "57", "58", "XX")
"""Classes of errors that have nothing to do with what is tried."""


def attempt(session: Session, nodes: Sequence[ParseNode], run: Callable[[ParseNode], object] | None = None) -> PostgresError | None:
    """Runs statements, all or none, by `run` where it is given; the error of the one that failed. What they have to say is not said."""
    said = len(session.notices.said)
    try:
        with undone(session):
            for node in nodes:
                (run or (lambda each: session.node.run_statement(each, session)))(node)
    except PostgresError as error:
        if error.sqlstate.startswith(_PASSED_ON) or error.severity is Severity.FATAL or isinstance(error, StaleDefinitionError):
            raise
        return error
    finally:
        del session.notices.said[said:]
    return None


@contextlib.contextmanager
def undone(session: Session) -> Iterator[None]:
    """What is written inside is taken back where it raises."""
    transaction, deferral, pending = session.begin_statement(), session.deferral.saved(), session.pending.saved()
    transaction.savepoint(_NAME)
    try:
        yield
    except PostgresError:
        transaction.rollback_to(_NAME)
        session.deferral.restore(deferral)
        session.pending.restore(pending)
        session.use_types()
        raise
    finally:
        transaction.release(_NAME)
