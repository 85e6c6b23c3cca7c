"""Client authentication: pg_hba.conf, the role, its password, the client's certificate (manual, chapter 21).

`authenticate` runs the exchange for one connection after its StartupMessage; `client.startup` calls it. Each refusal is a FATAL
PostgresError with PostgreSQL's text. The reason why a password was wrong goes only to the log (`log_detail`), never to the client.
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
from headgate.server.authentication.hba import ConnectionRequest, HbaFile
from headgate.server.authentication.hba_line import HbaLine
from headgate.server.authentication.ident_map import IdentMap
from headgate.server.protocol import message as protocol
from headgate.server.protocol.certificate import ClientCertificate
from headgate.server.protocol.connection import Connection, ConnectionBroken

_log = logging.getLogger("headgate.server")


@dataclass(frozen=True)
class StoredRole:
    """The columns of pg_authid that authentication needs."""

    name: str
    password: str | None
    valid_until: float | None
    """When the password expires, in seconds since 1970. None = never."""


@dataclass(frozen=True)
class Authenticated:
    """The matching line of pg_hba.conf and the authenticated identity, which is None for `trust`."""

    line: HbaLine
    identity: str | None


@dataclass
class _Exchange:
    """The exchange of one connection. `reason` is the log's reason for a failure."""

    connection: Connection
    user: str
    stored: str | None
    reason: str | None
    secret: bytes
    deadline: float


def fatal(
    sqlstate: str, message: str, *, detail: str | None = None, hint: str | None = None, log_detail: str | None = None
) -> PostgresError:
    """Return a FATAL error, which ends the connection."""
    return PostgresError(sqlstate, message, detail=detail, hint=hint, severity=Severity.FATAL, log_detail=log_detail)


def authenticate(
    connection: Connection,
    file: HbaFile,
    requested: ConnectionRequest,
    find: Callable[[str], StoredRole | None],
    node_secret: bytes,
    deadline: float,
) -> Authenticated:
    """Run the exchange. The caller sends AuthenticationOk. `asked.replication`: physical walsender."""
    line = file.match(requested)
    if line is not None and "clientcert" in line.options:
        _require_certificate(connection)
    if line is None or line.method == "reject":
        detail = requested.host.detail if line is None and requested.host is not None else None
        raise fatal("28000", _refusal(requested, rejected=line is not None), log_detail=detail)
    stored, reason = _password_of(find(requested.user), requested.user)
    exchange = _Exchange(connection, requested.user, stored, reason, node_secret, deadline)
    succeeded = _METHODS[line.method](exchange)
    if succeeded and line.options.get("clientcert") == "verify-full":
        succeeded = _certificate_names(connection, line, requested.user, file.maps)
    if not succeeded:
        raise _failure(line, exchange)
    return Authenticated(line, _identity(connection, line, requested.user))


def _failure(line: HbaLine, exchange: _Exchange) -> PostgresError:
    matched = f'Connection matched pg_hba.conf line {line.number}: "{line.text}"'
    detail = matched if exchange.reason is None else f"{exchange.reason}\n{matched}"
    if line.method in _BY_PASSWORD:
        return fatal("28P01", f'password authentication failed for user "{exchange.user}"', log_detail=detail)
    kind = "certificate" if line.method == "cert" else f'"{line.method}"'
    return fatal("28000", f'{kind} authentication failed for user "{exchange.user}"', log_detail=detail)


def _refusal(request: ConnectionRequest, *, rejected: bool) -> str:
    host = request.address if request.address is not None else "[local]"
    encryption = "SSL encryption" if request.tls else "no encryption"
    verdict = "pg_hba.conf rejects" if rejected else "no pg_hba.conf entry for"
    if request.replication:
        kind = "replication connection from" if not rejected else "replication connection for"
        return f'{verdict} {kind} host "{host}", user "{request.user}", {encryption}'
    kind = "connection for " if rejected else ""
    return f'{verdict} {kind}host "{host}", user "{request.user}", database "{request.database}", {encryption}'


def _password_of(role: StoredRole | None, user: str) -> tuple[str | None, str | None]:
    """Return the role's stored password, or the log's reason why no password is valid."""
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
    """Return whether the certificate belongs to the user. Log the reason if it does not."""
    name = _certificate_name(connection, line)
    if not name:
        _log.info('certificate authentication failed for user "%s": client certificate contains no user name', user)
        return False
    if "map" in line.options:
        return maps.allows(line.options["map"], user, name)
    if name != user:
        _log.info("provided user name (%s) and authenticated user name (%s) do not match", user, name)
        if line.method != "cert":
            field = line.options.get("clientname", "CN")
            _log.info('certificate validation (clientcert=verify-full) failed for user "%s": %s mismatch', user, field)
        return False
    return True


def _certificate_name(connection: Connection, line: HbaLine) -> str | None:
    certificate = _certificate(connection)
    name = (
        None
        if certificate is None
        else certificate.distinguished_name
        if line.options.get("clientname") == "DN"
        else certificate.common_name
    )
    if name is not None and "\0" in name:
        _log.info("SSL certificate's common name contains embedded null")
        return None
    return name


def _certificate(connection: Connection) -> ClientCertificate | None:
    return None if connection.tls is None else connection.tls.certificate


def _identity(connection: Connection, line: HbaLine, user: str) -> str | None:
    """Return the authenticated identity (system_user of later versions)."""
    if line.method == "cert":
        certificate = _certificate(connection)
        return None if certificate is None else certificate.distinguished_name
    return user if line.method in _BY_PASSWORD else None


# ---- passwords ------------------------------------------------------------------------------------------
def _trust(exchange: _Exchange) -> bool:
    return True


def _password(exchange: _Exchange) -> bool:
    exchange.connection.write(protocol.authentication_cleartext())
    answer = _answer(exchange)
    return _matches(exchange, exchange.stored is not None and password.matches(answer, exchange.stored, exchange.user))


def _md5(exchange: _Exchange) -> bool:
    """Run md5 authentication. With an md5 line in pg_hba.conf a SCRAM password is checked by SCRAM."""
    if exchange.stored is None or password.kind(exchange.stored) is not password.PasswordKind.MD5:
        return _scram(exchange)
    salt = os.urandom(4)
    exchange.connection.write(protocol.authentication_md5(salt))
    return _matches(exchange, scram.md5_answer_matches(_answer(exchange), exchange.stored, salt))


def _matches(exchange: _Exchange, succeeded: bool) -> bool:
    if not succeeded and exchange.stored is not None:
        exchange.reason = f'Password does not match for user "{exchange.user}".'
    return succeeded


def _scram(exchange: _Exchange) -> bool:
    connection = exchange.connection
    end_point = None if connection.tls is None else connection.tls.settings.end_point
    mechanisms = [scram.MECHANISM] if end_point is None else [scram.PLUS, scram.MECHANISM]
    connection.write(protocol.authentication_sasl(mechanisms))
    reader = protocol.FrontendReader(_message(exchange, "SASL"))
    mechanism = reader.string()
    if mechanism not in mechanisms:
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


def _message(exchange: _Exchange, kind: str = "password") -> bytes:
    exchange.connection.flush()
    message = exchange.connection.poll(max(0.0, exchange.deadline - time.monotonic()))
    if message is None:
        raise fatal("57014", "canceling authentication due to timeout")
    if message.kind == "X":
        raise ConnectionBroken("the client has left during authentication")
    if message.kind != "p":
        raise fatal("08P01", f"expected {kind} response, got message type {ord(message.kind)}")
    return message.body


_BY_PASSWORD = frozenset({"password", "md5", "scram-sha-256"})
_METHODS: dict[str, Callable[[_Exchange], bool]] = {
    "trust": _trust,
    "cert": _trust,
    "password": _password,
    "md5": _md5,
    "scram-sha-256": _scram,
}
