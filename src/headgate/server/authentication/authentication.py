"""Who may connect: pg_hba.conf, the role, its password, the client's certificate (manual, chapter 21).

`authenticate` runs the exchange for one connection after its StartupMessage; the listener's start-up calls it. Every refusal
is a FATAL PostgresError with PostgreSQL's text; why a password was wrong goes to the log alone (`log_detail`), never to the client.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from headgate.catalog.security import password
from headgate.errors import PostgresError, Severity
from headgate.server.authentication import scram
from headgate.server.authentication.certificate import ClientCertificate
from headgate.server.authentication.hba import ConnectionRequest, HbaFile
from headgate.server.authentication.hba_line import HbaLine
from headgate.server.authentication.ident_map import IdentMap
from headgate.server.protocol import message as protocol
from headgate.server.protocol.connection import Connection, ConnectionBroken

_log = logging.getLogger("headgate.server")


@dataclass(frozen=True)
class StoredRole:
    """What authentication needs of pg_authid."""

    name: str
    password: str | None
    valid_until: float | None
    """Seconds since 1970 after which the password is no longer good; None = for ever."""


@dataclass(frozen=True)
class Authenticated:
    """By which line of pg_hba.conf, and as whom; `trust` proves nobody's identity."""

    line: HbaLine
    identity: str | None


@dataclass
class _Exchange:
    """One connection's: `reason` tells the log what was wrong."""

    connection: Connection
    user: str
    stored: str | None
    reason: str | None
    secret: bytes
    deadline: float


def fatal(
    sqlstate: str, message: str, *, detail: str | None = None, hint: str | None = None, log_detail: str | None = None
) -> PostgresError:
    """A FATAL error: it ends the connection."""
    return PostgresError(sqlstate, message, detail=detail, hint=hint, severity=Severity.FATAL, log_detail=log_detail)


def authenticate(
    connection: Connection,
    file: HbaFile,
    asked: ConnectionRequest,
    find: Callable[[str], StoredRole | None],
    node_secret: bytes,
    deadline: float,
) -> Authenticated:
    """Runs the exchange. The caller sends AuthenticationOk. `asked.replication`: physical walsender."""
    line = file.match(asked)
    if line is not None and "clientcert" in line.options:
        _require_certificate(connection)
    if line is None or line.method == "reject":
        detail = asked.host.detail if line is None and asked.host is not None else None
        raise fatal("28000", _refusal(asked, rejected=line is not None), log_detail=detail)
    stored, reason = _password_of(find(asked.user), asked.user)
    exchange = _Exchange(connection, asked.user, stored, reason, node_secret, deadline)
    good = _METHODS[line.method](exchange)
    if good and line.options.get("clientcert") == "verify-full":
        good = _certificate_names(connection, line, asked.user, file.maps)
    if not good:
        raise _failed(line, exchange)
    return Authenticated(line, _identity(connection, line, asked.user))


def _failed(line: HbaLine, exchange: _Exchange) -> PostgresError:
    matched = f'Connection matched pg_hba.conf line {line.number}: "{line.text}"'
    detail = matched if exchange.reason is None else f"{exchange.reason}\n{matched}"
    if line.method in _BY_PASSWORD:
        return fatal("28P01", f'password authentication failed for user "{exchange.user}"', log_detail=detail)
    kind = "certificate" if line.method == "cert" else f'"{line.method}"'
    return fatal("28000", f'{kind} authentication failed for user "{exchange.user}"', log_detail=detail)


def _refusal(asked: ConnectionRequest, *, rejected: bool) -> str:
    host = asked.address if asked.address is not None else "[local]"
    encryption = "SSL encryption" if asked.tls else "no encryption"
    what = "pg_hba.conf rejects" if rejected else "no pg_hba.conf entry for"
    if asked.replication:
        kind = "replication connection from" if not rejected else "replication connection for"
        return f'{what} {kind} host "{host}", user "{asked.user}", {encryption}'
    kind = "connection for " if rejected else ""
    return f'{what} {kind}host "{host}", user "{asked.user}", database "{asked.database}", {encryption}'


def _password_of(role: StoredRole | None, user: str) -> tuple[str | None, str | None]:
    """What is stored of the role's password; or why none is good, for the log."""
    if role is None:
        return None, f'Role "{user}" does not exist.'
    if role.password is None:
        return None, f'User "{user}" has no password assigned.'
    if role.valid_until is not None and role.valid_until < time.time():
        return None, f'User "{user}" has an expired password.'
    return role.password, None


# ---- certificates ---------------------------------------------------------------------------------------
def _require_certificate(connection: Connection) -> None:
    tls = connection.tls
    if tls is None or not tls.settings.verifies:
        raise fatal("F0000", "client certificates can only be checked if a root certificate store is available")
    if tls.certificate is None:
        raise fatal("28000", "connection requires a valid client certificate")


def _certificate_names(connection: Connection, line: HbaLine, user: str, maps: IdentMap) -> bool:
    """Whether the certificate is the user's; the log tells why it is not."""
    name = _certificate_name(connection, line)
    if not name:
        _log.info('certificate authentication failed for user "%s": client certificate contains no user name', user)
        return False
    if "map" in line.options:
        return maps.allows(line.options["map"], user, name)
    if name != user:
        _log.info("provided user name (%s) and authenticated user name (%s) do not match", user, name)
        if line.method != "cert":
            what = line.options.get("clientname", "CN")
            _log.info('certificate validation (clientcert=verify-full) failed for user "%s": %s mismatch', user, what)
        return False
    return True


def _certificate_name(connection: Connection, line: HbaLine) -> str | None:
    found = _certificate(connection)
    name = None if found is None else found.distinguished_name if line.options.get("clientname") == "DN" else found.common_name
    if name is not None and "\0" in name:
        _log.info("SSL certificate's common name contains embedded null")
        return None
    return name


def _certificate(connection: Connection) -> ClientCertificate | None:
    return None if connection.tls is None else connection.tls.certificate


def _identity(connection: Connection, line: HbaLine, user: str) -> str | None:
    """Who has been proved to be there (system_user of later versions)."""
    if line.method == "cert":
        found = _certificate(connection)
        return None if found is None else found.distinguished_name
    return user if line.method in _BY_PASSWORD else None


# ---- passwords ------------------------------------------------------------------------------------------
def _trust(exchange: _Exchange) -> bool:
    return True


def _password(exchange: _Exchange) -> bool:
    exchange.connection.write(protocol.authentication_cleartext())
    answer = _answer(exchange)
    return _matches(exchange, exchange.stored is not None and password.matches(answer, exchange.stored, exchange.user))


def _md5(exchange: _Exchange) -> bool:
    """The md5 line of pg_hba.conf also lets a SCRAM password in, by SCRAM."""
    if exchange.stored is None or password.kind(exchange.stored) is not password.PasswordKind.MD5:
        return _scram(exchange)
    salt = os.urandom(4)
    exchange.connection.write(protocol.authentication_md5(salt))
    return _matches(exchange, scram.md5_answer_matches(_answer(exchange), exchange.stored, salt))


def _matches(exchange: _Exchange, good: bool) -> bool:
    if not good and exchange.stored is not None:
        exchange.reason = f'Password does not match for user "{exchange.user}".'
    return good


def _scram(exchange: _Exchange) -> bool:
    connection = exchange.connection
    end_point = None if connection.tls is None else connection.tls.settings.end_point
    offered = [scram.MECHANISM] if end_point is None else [scram.PLUS, scram.MECHANISM]
    connection.write(protocol.authentication_sasl(offered))
    reader = protocol.FrontendReader(_message(exchange, "SASL"))
    mechanism = reader.string()
    if mechanism not in offered:
        raise fatal("08P01", "client selected an invalid SASL authentication mechanism")
    server = scram.ScramServer(exchange.stored, exchange.user, exchange.secret, end_point, plus=mechanism == scram.PLUS)
    if server.doomed and exchange.reason is None:
        exchange.reason = f'User "{exchange.user}" does not have a valid SCRAM secret.'
    length = reader.int32()
    first = reader.take(length) if length >= 0 else b""
    reader.end()
    connection.write(protocol.authentication_sasl_continue(server.first(first)))
    final = server.final(_message(exchange, "SASL"))
    if final is None:
        return False
    connection.write(protocol.authentication_sasl_final(final))
    return True


def _answer(exchange: _Exchange) -> str:
    reader = protocol.FrontendReader(_message(exchange))
    answer = reader.raw_string().decode("utf-8", "surrogateescape")
    reader.end()
    if not answer:
        raise fatal("28P01", "empty password returned by client")
    return answer


def _message(exchange: _Exchange, what: str = "password") -> bytes:
    exchange.connection.flush()
    found = exchange.connection.poll(max(0.0, exchange.deadline - time.monotonic()))
    if found is None:
        raise fatal("57014", "canceling authentication due to timeout")
    if found.kind == "X":
        raise ConnectionBroken("the client has left during authentication")
    if found.kind != "p":
        raise fatal("08P01", f"expected {what} response, got message type {ord(found.kind)}")
    return found.body


_BY_PASSWORD = frozenset({"password", "md5", "scram-sha-256"})
_METHODS: dict[str, Callable[[_Exchange], bool]] = {
    "trust": _trust,
    "cert": _trust,
    "password": _password,
    "md5": _md5,
    "scram-sha-256": _scram,
}
