"""What log_connections, log_disconnections, log_statement, log_duration and log_min_duration_statement write into the log (manual, 20.8).

Called at a connection's start and end by `startup` and `session`, for statements by the simple and the extended query. What must hold: a
statement that is to be logged is in the log before it runs, and its passwords are hidden.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.server.monitoring.log_line_prefix import ClientSpeaker
from headgate.settings import check, definitions
from headgate.sql import secret
from headgate.sql.parser import ParseNode, unwrap

if TYPE_CHECKING:
    from headgate.server.authentication.authentication import Authenticated
    from headgate.server.monitoring.activity import TlsFacts
    from headgate.server.protocol.portal import BoundParameter, Portal, PreparedStatement
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
"""Statements that neither define nor change anything; what is not named here or in `_MOD` is DDL (GetCommandLogLevel)."""


# ---- connections ----------------------------------------------------------------------------------------
def received(speaker: ClientSpeaker) -> None:
    """log_connections: a client has come."""
    port = "" if speaker.port < 0 else f" port={speaker.port}"
    _log.info("connection received: host=%s%s", speaker.host, port)


def authenticated(found: Authenticated, file: str) -> None:
    """log_connections: who it is has been proved."""
    if found.identity is not None:
        text = 'connection authenticated: identity="%s" method=%s (%s:%d)'
        _log.info(text, found.identity, found.line.method, file, found.line.number)


def authorized(speaker: ClientSpeaker, application_name: str, tls: TlsFacts | None) -> None:
    """log_connections: it may go on."""
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
    """log_disconnections."""
    minutes, seconds = divmod(time.time() - speaker.started, 60)
    hours, minutes = divmod(int(minutes), 60)
    port = "" if speaker.port < 0 else f" port={speaker.port}"
    _log.info(
        "disconnection: session time: %d:%02d:%02d.%03d user=%s database=%s host=%s%s",
        hours, minutes, int(seconds), int(seconds % 1 * 1000), speaker.user, speaker.database or "", speaker.host, port,
    )  # fmt: skip


# ---- statements -----------------------------------------------------------------------------------------
def statements(session: ClientSession, text: str, found: Sequence[Statement]) -> bool:
    """log_statement for a simple query; whether it was logged."""
    if not any(_wanted(session, each.node) for each in found):
        return False
    _log.info("statement: %s", secret.hidden(text), extra={"detail": _prepared_text(session, found)})
    return True


def execution(session: ClientSession, portal: Portal) -> bool:
    """log_statement for a portal that is executed; whether it was logged."""
    statement = portal.prepared.statement
    if statement is None or not _wanted(session, statement.node):
        return False
    _log.info("%s", f"{executed(portal)}: {secret.hidden(portal.prepared.text)}", extra={"detail": _values(session, portal.parameters)})
    return True


def _wanted(session: ClientSession, node: ParseNode) -> bool:
    level = session.settings.text("log_statement")
    return level != "none" and _LEVELS.index(level) >= _LEVELS.index(_level(session, node))


def _level(session: ClientSession, node: ParseNode) -> str:
    """The least log_statement under which a statement is logged."""
    kind = str(node.DESCRIPTOR.name)
    match kind:
        case "SelectStmt":
            return "ddl" if node.into_clause.ByteSize() else "all"
        case "CopyStmt":
            return "mod" if node.is_from else "all"
        case "PrepareStmt":
            return _level(session, unwrap(node.query))
        case "ExplainStmt":
            analyzed = any(unwrap(each).defname == "analyze" for each in node.options)
            return _level(session, unwrap(node.query)) if analyzed else "all"
        case "ExecuteStmt":
            prepared = session.prepared.get(node.name)
            return "all" if prepared is None or prepared.statement is None else _level(session, prepared.statement.node)
        case _:
            return "mod" if kind in _MOD else "all" if kind in _ALL else "ddl"


def _prepared_text(session: ClientSession, found: Sequence[Statement]) -> str | None:
    """What EXECUTE runs."""
    for each in found:
        prepared = session.prepared.get(each.node.name) if each.kind == "ExecuteStmt" else None
        if prepared is not None:
            return f"prepare: {secret.hidden(prepared.text)}"
    return None


def executed(portal: Portal) -> str:
    """What Execute is about to do with a portal."""
    fetch = "execute fetch from" if portal.started else "execute"
    return f"{fetch} {portal.prepared.name or '<unnamed>'}{'/' if portal.name else ''}{portal.name}"


def _values(session: ClientSession, parameters: Sequence[BoundParameter]) -> str | None:
    longest = session.settings.integer("log_parameter_max_length")
    if not parameters or longest == 0:
        return None
    shown = (f"${place} = {_quoted(each.text, longest)}" for place, each in enumerate(parameters, 1))
    return f"parameters: {', '.join(shown)}"


def _quoted(text: str | None, longest: int) -> str:
    if text is None:
        return "NULL"
    cut = text if longest < 0 else text.encode()[:longest].decode(errors="ignore")
    doubled = cut.replace("'", "''")
    return f"'{doubled}'" if cut == text else f"'{doubled}...'"


# ---- durations ------------------------------------------------------------------------------------------
def simple_duration(session: ClientSession, text: str, found: Sequence[Statement], began: float, *, logged: bool) -> None:
    """log_min_duration_statement and its like for a simple query that has run."""
    _duration(session, began, "statement", text, _prepared_text(session, found), logged=logged)


def parse_duration(session: ClientSession, prepared: PreparedStatement, began: float) -> None:
    """The same for Parse."""
    _duration(session, began, f"parse {prepared.name or '<unnamed>'}", prepared.text, None, logged=False)


def bind_duration(session: ClientSession, portal: Portal, began: float) -> None:
    """The same for Bind."""
    what = f"bind {portal.prepared.name or '<unnamed>'}{'/' if portal.name else ''}{portal.name}"
    _duration(session, began, what, portal.prepared.text, _values(session, portal.parameters), logged=False)


def execute_duration(session: ClientSession, what: str, portal: Portal, began: float, *, logged: bool) -> None:
    """The same for Execute; `what` it was when it began."""
    _duration(session, began, what, portal.prepared.text, _values(session, portal.parameters), logged=logged)


def _duration(session: ClientSession, began: float, what: str, text: str, detail: str | None, *, logged: bool) -> None:
    settings = session.settings
    least, sampled = settings.milliseconds("log_min_duration_statement"), settings.milliseconds("log_min_duration_sample")
    always = settings.flag("log_duration")
    if least < 0 and sampled < 0 and not always:
        return
    milliseconds = (time.monotonic() - began) * 1000
    exceeded = 0 <= least <= milliseconds or (0 <= sampled <= milliseconds and random.random() < settings.real("log_statement_sample_rate"))  # noqa: S311
    if exceeded and not logged:
        _log.info("duration: %.3f ms  %s: %s", milliseconds, what, secret.hidden(text), extra={"detail": detail})
    elif exceeded or always:
        _log.info("duration: %.3f ms", milliseconds)
