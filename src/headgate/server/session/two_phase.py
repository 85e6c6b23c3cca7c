"""PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED (manual, VI.1), as commands of the session.

Called by `utility`. `headgate.storage.transaction.prepared` keeps the prepared transactions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.server.session.transaction_block import BlockState
from headgate.storage.transaction.log import OriginProgress
from headgate.storage.transaction.prepared import PreparedXact, check_room
from headgate.subscriber.apply.prepared import commit_by_hand, held, is_held, rollback_by_hand

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession
    from headgate.subscriber.host import Host

GID_LENGTH = 200


def prepare(session: ClientSession, node: pb.TransactionStmt) -> str:
    """Execute PREPARE TRANSACTION 'gid' and return its command tag: ROLLBACK if the block has failed or is not open."""
    block = session.block
    if block.state is BlockState.IDLE:
        session.notices.warning("there is no transaction in progress", sqlstate="25P01")
        block.rollback()
        return "ROLLBACK"
    if block.state is BlockState.FAILED:
        block.rollback()
        return "ROLLBACK"
    try:
        _check(session, node.gid)
    except PostgresError:
        block.rollback()
        raise
    block.prepare(node.gid, session.context.user)
    return "PREPARE TRANSACTION"


def _check(session: ClientSession, gid: str) -> None:
    if len(gid.encode()) >= GID_LENGTH:
        raise PostgresError("22023", f'transaction identifier "{gid}" is too long')
    limit = session.node.settings.integer("max_prepared_transactions")
    if limit and any(xact.gid == gid for xact in session.node.engine.prepared.all()):
        raise PostgresError("42710", f'transaction identifier "{gid}" is already in use')
    check_room(limit, held(session.node.catalog, session.node.engine.prepared))


def commit(session: ClientSession, node: pb.TransactionStmt) -> str:
    """Execute COMMIT PREPARED 'gid'."""
    end_held = functools.partial(commit_by_hand, patience=session.patience())
    return _end(session, node.gid, "COMMIT PREPARED", end_held, session.node.engine.prepared.commit)


def rollback(session: ClientSession, node: pb.TransactionStmt) -> str:
    """Execute ROLLBACK PREPARED 'gid'."""
    return _end(session, node.gid, "ROLLBACK PREPARED", rollback_by_hand, session.node.engine.prepared.rollback)


def _end(
    session: ClientSession,
    gid: str,
    command: str,
    end_held: Callable[[Host, str, int, int | None], None],
    end: Callable[[PreparedXact, OriginProgress | None], Lsn],
) -> str:
    """End a prepared transaction of this node, or one that a subscription holds. Return the command tag."""
    session.prevent_in_block(command)
    context = session.context
    if is_held(session.node.catalog, gid):
        end_held(session.node.workers.host, gid, context.database, None if context.superuser else context.user_oid)
    else:
        prepared = session.node.engine.prepared.take(gid, context.database, None if context.superuser else context.user)
        origin = session.block.origin
        session.block.committed_at = end(prepared, None if origin is None else origin.progress())
    session.block.finish()
    return command
