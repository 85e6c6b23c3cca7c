"""Who may connect: pg_hba.conf, the role, its password, the database (manual, chapter 21).

`authenticate` runs the exchange for one connection after its StartupMessage; the listener's start-up calls it. Every refusal
is a FATAL PostgresError with PostgreSQL's text; the cause of a wrong password goes to the log alone, never to the client.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import PostgresError, Severity
from headgate.server import protocol, scram
from headgate.server.connection import Connection, ConnectionBroken
from headgate.server.hba import Asked, HbaFile, HbaLine

MAX_PASSWORD = 1024


@dataclass(frozen=True)
class StoredRole:
    """What authentication needs of pg_authid."""

    name: str
    password: str | None
    valid_until: float | None
    """Seconds since 1970 after which the password is no longer good; None = for ever."""


def fatal(sqlstate: str, message: str, *, detail: str | None = None, hint: str | None = None) -> PostgresError:
    """A FATAL error: it ends the connection."""
    return PostgresError(sqlstate, message, detail=detail, hint=hint, severity=Severity.FATAL)


def authenticate(
    connection: Connection, file: HbaFile, asked: Asked, find: Callable[[str], StoredRole | None], node_secret: bytes, deadline: float
) -> str:
    """Runs the exchange; returns the method. The caller sends AuthenticationOk. `asked.replication`: physical walsender."""
    line = file.match(asked)
    if line is None or line.method == "reject":
        raise fatal("28000", _refusal(asked, rejected=line is not None))
    role = find(asked.user)
    stored = None if role is None or _expired(role) else role.password
    good = _METHODS[line.method](connection, asked.user, stored, node_secret, deadline)
    if not good:
        raise fatal("28P01", f'password authentication failed for user "{asked.user}"')
    return line.method


def describe(line: HbaLine) -> str:
    """The line's place, for the log."""
    return f"pg_hba.conf line {line.number}: {line.kind} {line.method}"


def _refusal(asked: Asked, *, rejected: bool) -> str:
    host = asked.address if asked.address is not None else "[local]"
    what = "pg_hba.conf rejects" if rejected else "no pg_hba.conf entry for"
    if asked.replication:
        kind = "replication connection from" if not rejected else "replication connection for"
        return f'{what} {kind} host "{host}", user "{asked.user}", no encryption'
    kind = "connection for " if rejected else ""
    return f'{what} {kind}host "{host}", user "{asked.user}", database "{asked.database}", no encryption'


def _expired(role: StoredRole) -> bool:
    return role.valid_until is not None and role.valid_until < time.time()


def _trust(connection: Connection, user: str, stored: str | None, secret: bytes, deadline: float) -> bool:
    return True


def _password(connection: Connection, user: str, stored: str | None, secret: bytes, deadline: float) -> bool:
    connection.write(protocol.authentication_cleartext())
    return scram.password_matches(_answer(connection, deadline), stored, user)


def _md5(connection: Connection, user: str, stored: str | None, secret: bytes, deadline: float) -> bool:
    """The md5 line of pg_hba.conf also lets a SCRAM password in, by SCRAM."""
    if stored is None or not stored.startswith("md5"):
        return _scram(connection, user, stored, secret, deadline)
    salt = os.urandom(4)
    connection.write(protocol.authentication_md5(salt))
    return scram.md5_answer_matches(_answer(connection, deadline), stored, salt)


def _scram(connection: Connection, user: str, stored: str | None, secret: bytes, deadline: float) -> bool:
    exchange = scram.ScramServer(stored, user, secret)
    connection.write(protocol.authentication_sasl([scram.MECHANISM]))
    reader = protocol.FrontendReader(_message(connection, deadline, "SASL"))
    mechanism = reader.string()
    if mechanism != scram.MECHANISM:
        raise fatal("08P01", "client selected an invalid SASL authentication mechanism")
    length = reader.int32()
    first = reader.take(length) if length >= 0 else b""
    reader.end()
    connection.write(protocol.authentication_sasl_continue(exchange.first(first)))
    final = exchange.final(_message(connection, deadline, "SASL"))
    if final is None:
        return False
    connection.write(protocol.authentication_sasl_final(final))
    return True


def _answer(connection: Connection, deadline: float) -> str:
    reader = protocol.FrontendReader(_message(connection, deadline))
    password = reader.string()
    reader.end()
    if not password:
        raise fatal("28P01", "empty password returned by client")
    return password


def _message(connection: Connection, deadline: float, what: str = "password") -> bytes:
    connection.flush()
    found = connection.poll(max(0.0, deadline - time.monotonic()))
    if found is None:
        raise fatal("57014", "canceling authentication due to timeout")
    if found.kind == "X":
        raise ConnectionBroken("the client has left during authentication")
    if found.kind != "p":
        raise fatal("08P01", f"expected {what} response, got message type {ord(found.kind)}")
    return found.body


_METHODS: dict[str, Callable[[Connection, str, str | None, bytes, float], bool]] = {
    "trust": _trust,
    "password": _password,
    "md5": _md5,
    "scram-sha-256": _scram,
}
