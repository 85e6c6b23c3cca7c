"""Statements that concern the session itself and need no table or catalog.

BEGIN … ROLLBACK TO, PREPARE TRANSACTION, SET, SHOW, RESET, ALTER SYSTEM, DISCARD, PREPARE, EXECUTE, DEALLOCATE, DECLARE, FETCH, MOVE,
CLOSE, LISTEN, NOTIFY, UNLISTEN, LOCK, CHECKPOINT. `ResultSender` calls `run` for each statement that `handles` accepts. A handler
returns a command tag or a ResultSet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.commands.result import CommandResult
from headgate.commands.table import temporary
from headgate.commands.transaction import lock_table
from headgate.errors import PostgresError
from headgate.server.session import cursor, prepare, transaction_mode, two_phase, variable
from headgate.server.session.transaction_block import BlockState
from headgate.server.session.variable import alter_system
from headgate.sql.parser import ParseNode
from headgate.types.resultset import ResultColumn, ResultSet

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession
    from headgate.sql.parser import Statement

Handler = Callable[["ClientSession", ParseNode, str], "str | ResultSet"]

_ENDS = {"TRANS_STMT_COMMIT", "TRANS_STMT_PREPARE", "TRANS_STMT_ROLLBACK", "TRANS_STMT_ROLLBACK_TO"}


def handles(statement: Statement) -> bool:
    return statement.kind in HANDLERS


def run_in_function(session: ClientSession, node: ParseNode) -> CommandResult | ResultSet:
    """Run a statement of a function that `IN_FUNCTIONS` has. Its effect on settings ends as that of a client's statement does."""
    result = HANDLERS[node.DESCRIPTOR.name](session, node, "")
    return CommandResult(result) if isinstance(result, str) else result


def allowed_when_failed(statement: Statement) -> bool:
    """Return whether the statement is allowed in a failed transaction block."""
    return statement.kind == "TransactionStmt" and transaction_kind(statement.node) in _ENDS


def run(session: ClientSession, statement: Statement) -> str | ResultSet:
    """Run the statement and return its command tag or ResultSet."""
    return HANDLERS[statement.kind](session, statement.node, statement.text)


def columns(session: ClientSession, statement: Statement) -> tuple[ResultColumn, ...] | None:
    if statement.kind == "VariableShowStmt":
        return variable.show_columns(session, statement.node.name)
    if statement.kind == "ExecuteStmt":
        return prepare.find(session, statement.node.name).columns
    if statement.kind == "FetchStmt" and not statement.node.ismove:
        portal = session.portals.get(statement.node.portalname)
        return None if portal is None or portal.rows is None else portal.rows.columns
    return None


def transaction_kind(node: pb.TransactionStmt) -> str:
    """Return the name of TransactionStmt.kind."""
    return str(node.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[node.kind].name)


# ---- transactions ---------------------------------------------------------------------------------------
def _transaction(session: ClientSession, node: pb.TransactionStmt, text: str) -> str:
    kind = transaction_kind(node)
    return _TRANSACTION[kind](session, node)


def _begin(session: ClientSession, node: pb.TransactionStmt) -> str:
    if not session.block.begin():
        session.notices.warning("there is already a transaction in progress", sqlstate="25001")
    transaction_mode.set_modes(session, node.options)
    return "BEGIN"


def _start(session: ClientSession, node: ParseNode) -> str:
    _begin(session, node)
    return "START TRANSACTION"


def _commit(session: ClientSession, node: pb.TransactionStmt) -> str:
    _check_open(session, node, "COMMIT")
    settings = session.settings.remember()
    committed = session.block.commit()
    if node.chain:
        session.block.begin(settings)
    return "COMMIT" if committed else "ROLLBACK"


def _rollback(session: ClientSession, node: pb.TransactionStmt) -> str:
    _check_open(session, node, "ROLLBACK")
    settings = session.settings.remember()
    session.block.rollback()
    if node.chain:
        session.block.begin(settings)
    return "ROLLBACK"


def _check_open(session: ClientSession, node: pb.TransactionStmt, command: str) -> None:
    """Warn if no transaction is open. With AND CHAIN, raise 25P01."""
    if session.block.state is BlockState.IDLE:
        if node.chain:
            raise PostgresError("25P01", f"{command} AND CHAIN can only be used in transaction blocks")
        session.notices.warning("there is no transaction in progress", sqlstate="25P01")


def _savepoint(session: ClientSession, node: pb.TransactionStmt) -> str:
    session.block.savepoint(node.savepoint_name)
    return "SAVEPOINT"


def _release(session: ClientSession, node: pb.TransactionStmt) -> str:
    session.block.release(node.savepoint_name)
    return "RELEASE"


def _rollback_to(session: ClientSession, node: pb.TransactionStmt) -> str:
    session.block.rollback_to(node.savepoint_name)
    return "ROLLBACK"


_TRANSACTION: dict[str, Callable[[ClientSession, pb.TransactionStmt], str]] = {
    "TRANS_STMT_BEGIN": _begin,
    "TRANS_STMT_START": _start,
    "TRANS_STMT_COMMIT": _commit,
    "TRANS_STMT_ROLLBACK": _rollback,
    "TRANS_STMT_SAVEPOINT": _savepoint,
    "TRANS_STMT_RELEASE": _release,
    "TRANS_STMT_ROLLBACK_TO": _rollback_to,
    "TRANS_STMT_PREPARE": two_phase.prepare,
    "TRANS_STMT_COMMIT_PREPARED": two_phase.commit,
    "TRANS_STMT_ROLLBACK_PREPARED": two_phase.rollback,
}


# ---- the rest -------------------------------------------------------------------------------------------
def _discard(session: ClientSession, node: pb.DiscardStmt, text: str) -> str:
    target = str(node.DESCRIPTOR.fields_by_name["target"].enum_type.values_by_number[node.target].name)
    if target == "DISCARD_ALL":
        session.prevent_in_block("DISCARD ALL")
        session.discard_all()
    if target in ("DISCARD_ALL", "DISCARD_TEMP"):
        temporary.discard(session)
    if target in ("DISCARD_ALL", "DISCARD_SEQUENCES"):
        session.context.sequence_values.clear()
        session.context.last_sequence = 0
    return target.replace("_", " ")


def _listen(session: ClientSession, node: pb.ListenStmt, text: str) -> str:
    session.block.touch()
    session.block.pending.actions.append(("LISTEN", node.conditionname))
    return "LISTEN"


def _unlisten(session: ClientSession, node: pb.UnlistenStmt, text: str) -> str:
    """Execute UNLISTEN channel or UNLISTEN *. Like LISTEN, it takes effect at commit."""
    session.block.touch()
    session.block.pending.actions.append(("UNLISTEN", node.conditionname))
    return "UNLISTEN"


def _lock(session: ClientSession, node: pb.LockStmt, text: str) -> str:
    if not session.in_block:
        session.block.require("LOCK TABLE")
    lock_table.lock(node, session)
    return "LOCK TABLE"


def _checkpoint(session: ClientSession, node: ParseNode, text: str) -> str:
    if not session.is_superuser:
        raise PostgresError("42501", "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT")
    with session.cancelling_jobs():
        session.node.checkpointer.checkpoint(session.check_cancel)
    return "CHECKPOINT"


HANDLERS: dict[str, Handler] = {
    "AlterSystemStmt": alter_system,
    "TransactionStmt": _transaction,
    "VariableSetStmt": variable.set_statement,
    "VariableShowStmt": variable.show_statement,
    "DiscardStmt": _discard,
    "PrepareStmt": prepare.prepare,
    "ExecuteStmt": prepare.execute,
    "DeallocateStmt": prepare.deallocate,
    "DeclareCursorStmt": cursor.declare,
    "FetchStmt": cursor.fetch,
    "ClosePortalStmt": cursor.close,
    "ListenStmt": _listen,
    "UnlistenStmt": _unlisten,
    "LockStmt": _lock,
    "CheckPointStmt": _checkpoint,
}


IN_FUNCTIONS = frozenset({"VariableSetStmt", "VariableShowStmt", "LockStmt", "ListenStmt", "UnlistenStmt", "DiscardStmt"})
"""The statements of a session that functions may use too."""
