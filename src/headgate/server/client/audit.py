"""The log lines of log_connections, log_disconnections, log_statement, log_duration and log_min_duration_statement (manual, 20.8).

Called by `startup` and `session` at the start and end of a connection, and by the simple and extended query protocol for statements.
Invariant: a statement to be logged is in the log before it runs, and its passwords are hidden.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.server.monitoring.log_line_prefix import ClientSpeaker
from headgate.settings import check
from headgate.settings.table import definitions
from headgate.sql import secret
from headgate.sql.parser import ParseNode, unwrap

if TYPE_CHECKING:
    from headgate.commands.session import Parameter
    from headgate.server.authentication.authentication import Authenticated
    from headgate.server.monitoring.activity import TlsFacts
    from headgate.server.protocol.portal import Portal, PreparedStatement
    from headgate.server.session.session import ClientSession
    from headgate.sql.parser import Statement

_log = logging.getLogger("headgate.server")

_APPLICATION_NAME = definitions()["application_name"]
_LEVELS = ("none", "ddl", "mod", "all")
_MOD = frozenset("InsertStmt UpdateStmt DeleteStmt MergeStmt TruncateStmt".split())
_ALL = frozenset(
    "TransactionStmt DeclareCursorStmt ClosePortalStmt FetchStmt DeallocateStmt DoStmt NotifyStmt ListenStmt UnlistenStmt LoadStmt CallStmt"
    " VacuumStmt VariableSetStmt VariableShowStmt DiscardStmt LockStmt ConstraintsSetStmt CheckPointStmt ReindexStmt".split()
)
"""Statements that neither define nor change anything. Those not listed here or in `_MOD` are DDL (GetCommandLogLevel)."""


# ---- connections ----------------------------------------------------------------------------------------
def received(speaker: ClientSpeaker) -> None:
    """Log a new connection (log_connections)."""
    port = "" if speaker.port < 0 else f" port={speaker.port}"
    _log.info("connection received: host=%s%s", speaker.host, port)


def authenticated(result: Authenticated, file: str) -> None:
    """Log the authenticated identity (log_connections)."""
    if result.identity is not None:
        text = 'connection authenticated: identity="%s" method=%s (%s:%d)'
        _log.info(text, result.identity, result.line.method, file, result.line.number)


def authorized(speaker: ClientSpeaker, application_name: str, tls: TlsFacts | None) -> None:
    """Log the authorization of a connection (log_connections)."""
    words = [
        f"replication connection authorized: user={speaker.user}" if speaker.walsender else f"connection authorized: user={speaker.user}"
    ]
    if not speaker.walsender:
        words.append(f"database={speaker.database}")
    if application_name:
        words.append(f"application_name={check.canonical(_APPLICATION_NAME, application_name)}")
    if tls is not None:
        words.append(f"SSL enabled (protocol={tls.version}, cipher={tls.cipher}, bits={tls.bits})")
    _log.info("%s", " ".join(words))


def disconnected(speaker: ClientSpeaker) -> None:
    """Log the end of a session (log_disconnections)."""
    minutes, seconds = divmod(time.time() - speaker.started, 60)
    hours, minutes = divmod(int(minutes), 60)
    port = "" if speaker.port < 0 else f" port={speaker.port}"
    _log.info(
        "disconnection: session time: %d:%02d:%02d.%03d user=%s database=%s host=%s%s",
        hours, minutes, int(seconds), int(seconds % 1 * 1000), speaker.user, speaker.database or "", speaker.host, port,
    )  # fmt: skip


# ---- statements -----------------------------------------------------------------------------------------
def statements(session: ClientSession, text: str, parsed: Sequence[Statement]) -> bool:
    """Log a simple query if log_statement requires it. Return whether it was logged."""
    if not any(_is_logged(session, statement.node) for statement in parsed):
        return False
    _log.info("statement: %s", secret.hidden(text), extra={"detail": _prepared_text(session, parsed)})
    return True


def execution(session: ClientSession, portal: Portal) -> bool:
    """Log the execution of a portal if log_statement requires it. Return whether it was logged."""
    statement = portal.prepared.statement
    if statement is None or not _is_logged(session, statement.node):
        return False
    _log.info("%s", f"{executed(portal)}: {secret.hidden(portal.prepared.text)}", extra={"detail": _values(session, portal.parameters)})
    return True


def _is_logged(session: ClientSession, node: ParseNode) -> bool:
    level = session.settings.text("log_statement")
    return level != "none" and _LEVELS.index(level) >= _LEVELS.index(_level(session, node))


def _level(session: ClientSession, node: ParseNode) -> str:
    """Return the lowest log_statement level at which a statement is logged."""
    kind = str(node.DESCRIPTOR.name)
    match kind:
        case "SelectStmt":
            return "ddl" if node.into_clause.ByteSize() else "all"
        case "CopyStmt":
            return "mod" if node.is_from else "all"
        case "PrepareStmt":
            return _level(session, unwrap(node.query))
        case "ExplainStmt":
            analyzed = any(unwrap(option).defname == "analyze" for option in node.options)
            return _level(session, unwrap(node.query)) if analyzed else "all"
        case "ExecuteStmt":
            prepared = session.prepared.get(node.name)
            return "all" if prepared is None or prepared.statement is None else _level(session, prepared.statement.node)
        case _:
            return "mod" if kind in _MOD else "all" if kind in _ALL else "ddl"


def _prepared_text(session: ClientSession, parsed: Sequence[Statement]) -> str | None:
    """Return the log detail with the prepared statement that EXECUTE runs, or None."""
    for statement in parsed:
        prepared = session.prepared.get(statement.node.name) if statement.kind == "ExecuteStmt" else None
        if prepared is not None:
            return f"prepare: {secret.hidden(prepared.text)}"
    return None


def executed(portal: Portal) -> str:
    """Return the log's words for the execution of a portal."""
    fetch = "execute fetch from" if portal.started else "execute"
    return f"{fetch} {portal.prepared.name or '<unnamed>'}{'/' if portal.name else ''}{portal.name}"


def _values(session: ClientSession, parameters: Sequence[Parameter]) -> str | None:
    longest = session.settings.integer("log_parameter_max_length")
    if not parameters or longest == 0:
        return None
    shown = (f"${number} = {_quote(parameter.text, longest)}" for number, parameter in enumerate(parameters, 1))
    return f"parameters: {', '.join(shown)}"


def _quote(text: str | None, longest: int) -> str:
    if text is None:
        return "NULL"
    cut = text if longest < 0 else text.encode()[:longest].decode(errors="ignore")
    doubled = cut.replace("'", "''")
    return f"'{doubled}'" if cut == text else f"'{doubled}...'"


# ---- durations ------------------------------------------------------------------------------------------
def simple_duration(session: ClientSession, text: str, statements: Sequence[Statement], began: float, *, logged: bool) -> None:
    """Log the duration of a simple query as log_duration, log_min_duration_statement and log_min_duration_sample require."""
    _duration(session, began, "statement", text, _prepared_text(session, statements), logged=logged)


def parse_duration(session: ClientSession, prepared: PreparedStatement, began: float) -> None:
    """Log the duration of Parse, like `simple_duration`."""
    _duration(session, began, f"parse {prepared.name or '<unnamed>'}", prepared.text, None, logged=False)


def bind_duration(session: ClientSession, portal: Portal, began: float) -> None:
    """Log the duration of Bind, like `simple_duration`."""
    step = f"bind {portal.prepared.name or '<unnamed>'}{'/' if portal.name else ''}{portal.name}"
    _duration(session, began, step, portal.prepared.text, _values(session, portal.parameters), logged=False)


def execute_duration(session: ClientSession, verb: str, portal: Portal, began: float, *, logged: bool) -> None:
    """Log the duration of Execute, like `simple_duration`. `verb` is the result of `executed` when it began."""
    _duration(session, began, verb, portal.prepared.text, _values(session, portal.parameters), logged=logged)


def _duration(session: ClientSession, began: float, verb: str, text: str, detail: str | None, *, logged: bool) -> None:
    settings = session.settings
    least, sampled = settings.milliseconds("log_min_duration_statement"), settings.milliseconds("log_min_duration_sample")
    always = settings.flag("log_duration")
    if least < 0 and sampled < 0 and not always:
        return
    milliseconds = (time.monotonic() - began) * 1000
    exceeded = 0 <= least <= milliseconds or (0 <= sampled <= milliseconds and random.random() < settings.real("log_statement_sample_rate"))  # noqa: S311
    if exceeded and not logged:
        _log.info("duration: %.3f ms  %s: %s", milliseconds, verb, secret.hidden(text), extra={"detail": detail})
    elif exceeded or always:
        _log.info("duration: %.3f ms", milliseconds)
