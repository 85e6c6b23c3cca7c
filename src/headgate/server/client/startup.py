"""The startup of a connection: TLS requests, CancelRequest, the StartupMessage, authentication (manual, 55.2.1).

`serve` runs in the connection's own thread from accept to the end. Invariants: invalid bytes end at most this one connection. The number
of connections is checked before anything expensive.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.catalog import database as databases
from headgate.catalog.security import role as roles
from headgate.catalog.security import stored_setting
from headgate.catalog.security.role import Role
from headgate.catalog.session import SessionContext
from headgate.commands import privilege
from headgate.errors import PostgresError, Severity
from headgate.server.authentication.authentication import StoredRole, authenticate, fatal
from headgate.server.authentication.client_host import ClientHost
from headgate.server.authentication.hba import ConnectionRequest
from headgate.server.client import audit
from headgate.server.client.message_loop import MessageLoop
from headgate.server.monitoring import log
from headgate.server.monitoring.activity import Backend, TlsFacts
from headgate.server.monitoring.log_line_prefix import ClientSpeaker, begin
from headgate.server.protocol import message
from headgate.server.protocol.connection import Connection, ConnectionBroken
from headgate.server.protocol.failure import as_postgres_error
from headgate.server.session import session_role
from headgate.server.session.session import ClientSession, Computed
from headgate.settings.definition import read_bool
from headgate.settings.session import SessionSettings

if TYPE_CHECKING:
    from headgate.catalog.database import Database
    from headgate.catalog.system_view import Provider
    from headgate.server.node_state import NodeState

_log = logging.getLogger("headgate.server")
_OWN = {"user", "database", "replication", "options"}


def serve(node: NodeState, connection: Connection) -> None:
    backend: Backend | None = None
    host, speaker = _identify_client(node, connection)
    try:
        deadline = time.monotonic() + node.settings.seconds("authentication_timeout")
        parameters = _startup_packet(node, connection, deadline)
        if parameters is None:
            return
        speaker.user, speaker.database = parameters.get("user") or None, parameters.get("database") or parameters.get("user") or None
        backend = node.admit(parameters.get("replication", "") not in ("", "false", "off", "0", "no"), speaker.pid)
        speaker.pid = backend.pid
        backend.wake, backend.is_client_gone = connection.interrupt, connection.client_gone
        session = _open(node, connection, backend, parameters, Stranger(host, speaker, deadline))
    except (ConnectionBroken, TimeoutError):
        _end_with_error(node, connection, backend)
        return
    except Exception as error:  # noqa: BLE001 - the edge of a connection
        _refuse(node, connection, as_postgres_error(error))
        _end_with_error(node, connection, backend)
        return
    MessageLoop(session).run()


def _identify_client(node: NodeState, connection: Connection) -> tuple[ClientHost | None, ClientSpeaker]:
    """Identify the client's address for pg_hba.conf and for the log."""
    address, port = connection.peer
    host = None if address is None else ClientHost(address)
    name = host.look_up() if host is not None and node.settings.flag("log_hostname") else None
    speaker = ClientSpeaker(node.activity.reserve(), host=name or address or "[local]", port=port)
    begin(speaker)
    if node.settings.flag("log_connections"):
        audit.received(speaker)
    return host, speaker


def _end_with_error(node: NodeState, connection: Connection, backend: Backend | None) -> None:
    connection.close()
    if backend is not None:
        node.activity.leave(backend.pid)


def _refuse(node: NodeState, connection: Connection, error: PostgresError) -> None:
    log.log_sent_error(error, "", node.settings)
    with contextlib.suppress(ConnectionBroken):
        connection.write(message.error_response(error, severity=Severity.FATAL))
        connection.flush()


# ---- the packets ----------------------------------------------------------------------------------------
def _startup_packet(node: NodeState, connection: Connection, deadline: float) -> dict[str, str] | None:
    """Return the parameters of the StartupMessage, or None after a CancelRequest or an invalid packet, when the connection is closed."""
    requests = set()
    while True:
        length = struct.unpack("!i", connection.exactly(4, deadline))[0]
        if not 8 <= length <= message.MAX_STARTUP_LENGTH:
            _log.info("invalid length of startup packet")
            connection.close()
            return None
        body = connection.exactly(length - 4, deadline)
        version = struct.unpack("!i", body[:4])[0]
        if version == message.CANCEL_REQUEST:
            if len(body) == 12:
                pid, secret = struct.unpack("!iI", body[4:])
                node.activity.cancel(pid, secret)
            connection.close()
            return None
        if version in (message.SSL_REQUEST, message.GSSENC_REQUEST) and version not in requests:
            requests.add(version)
            if _encrypt(node, connection, version, deadline):
                requests.add(message.GSSENC_REQUEST)
            continue
        return _parameters(connection, version, body[4:])


def _encrypt(node: NodeState, connection: Connection, version: int, deadline: float) -> bool:
    """Answer a request for encryption: TLS if it is enabled, but not on a Unix socket. Return whether the connection uses TLS now."""
    tls = node.access.tls if version == message.SSL_REQUEST and connection.peer[0] is not None else None
    connection.write(b"N" if tls is None else b"S")
    connection.flush()
    injected = connection.unread
    if tls is not None:
        connection.start_tls(tls, deadline)
    if injected:
        protocol = "SSL" if version == message.SSL_REQUEST else "GSSAPI encryption"
        detail = "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack."
        raise fatal("08P01", f"received unencrypted data after {protocol} request", detail=detail)
    return tls is not None


def _parameters(connection: Connection, version: int, body: bytes) -> dict[str, str] | None:
    major, minor = version >> 16 & 0xFFFF, version & 0xFFFF
    if major != message.PROTOCOL_3:
        text = f"unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
        if major < message.PROTOCOL_3:
            connection.write(message.old_error(f"FATAL:  {text}\n"))
            connection.flush()
            connection.close()
            return None
        raise fatal("0A000", text)
    parameters = message.startup_parameters(body)
    unknown = [name for name in parameters if name.startswith("_pq_.")]
    if minor or unknown:
        connection.write(message.negotiate_protocol_version(unknown))
    return {name: value for name, value in parameters.items() if not name.startswith("_pq_.")}


# ---- the session ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stranger:
    """A connection before its client is authenticated."""

    host: ClientHost | None
    speaker: ClientSpeaker
    deadline: float


def _open(node: NodeState, connection: Connection, backend: Backend, parameters: dict[str, str], stranger: Stranger) -> ClientSession:
    user = parameters.get("user", "")
    if not user:
        raise fatal("28000", "no PostgreSQL user name specified in startup packet")
    speaker = stranger.speaker
    physical, logical = _replication(parameters.get("replication", ""))
    name = parameters.get("database") or user
    speaker.walsender = physical or logical
    speaker.database = None if physical else name
    speaker.application_name = lambda: backend.application_name
    address, port = connection.peer
    request = ConnectionRequest(address, user, name, physical, _groups(node, user), connection.tls is not None, stranger.host)
    authenticated = authenticate(
        connection, node.access.hba, request, lambda role: _find_role(node, role), node.mock_nonce, stranger.deadline
    )
    backend.tls = TlsFacts.of(connection.tls)
    if node.settings.flag("log_connections"):
        audit.authenticated(authenticated, node.settings.text("hba_file"))
        audit.authorized(speaker, parameters.get("application_name", ""), backend.tls)
    with contextlib.closing(node.catalog.cursor()) as cursor:
        role = roles.lookup(cursor, user)
        if role is None:
            raise fatal("28000", f'role "{user}" does not exist')
        database = _database(node, backend, role, "postgres" if physical else name)
    if (physical or logical) and not (role.superuser or role.replication):
        raise fatal("42501", "must be superuser or replication role to start walsender")
    backend.database, backend.database_name = (None, None) if physical else (database.oid, database.name)
    backend.role, backend.role_name = role.oid, role.name
    backend.client_addr, backend.client_port = address, port
    if stranger.host is not None and stranger.host.name is not None:
        backend.client_hostname = stranger.host.name
    session = _session(node, connection, backend, parameters, role, database)
    session.speaker = speaker
    speaker.xid = lambda: _xid(session)
    if physical or logical:
        from headgate.server.client import replication

        session.walsender = replication.walsender(session, physical=physical)
    connection.write(message.authentication_ok())
    connection.authenticated = True
    return session


def _xid(session: ClientSession) -> int:
    storage = session.block.storage
    return storage.xid if storage is not None and storage.has_writes else 0


def _replication(text: str) -> tuple[bool, bool]:
    """Return (physical, logical) for the parameter `replication`. Raise 22023 for an invalid value."""
    if text == "database":
        return False, True
    if not text:
        return False, False
    value = read_bool(text)
    if value is None:
        hint = 'Valid values are: "false", 0, "true", 1, "database".'
        raise fatal("22023", f'invalid value for parameter "replication": "{text}"', hint=hint)
    return value, False


def _groups(node: NodeState, user: str) -> frozenset[str]:
    with contextlib.closing(node.catalog.cursor()) as cursor:
        role = roles.lookup(cursor, user)
        if role is None:
            return frozenset()
        groups = (roles.find(cursor, oid) for oid in roles.memberships(cursor, role.oid))
        return frozenset(group.name for group in groups if group is not None)


def _find_role(node: NodeState, name: str) -> StoredRole | None:
    with contextlib.closing(node.catalog.cursor()) as cursor:
        role = roles.lookup(cursor, name)
    if role is None:
        return None
    until = None if role.valid_until is None else role.valid_until.timestamp()
    return StoredRole(role.name, role.verifier, until)


def _database(node: NodeState, backend: Backend, role: Role, name: str) -> Database:
    with contextlib.closing(node.catalog.cursor()) as cursor:
        if not role.can_login:
            raise fatal("28000", f'role "{role.name}" is not permitted to log in')
        database = databases.lookup(cursor, name)
    if database is None:
        raise fatal("3D000", f'database "{name}" does not exist')
    if not database.allow_connections:
        raise fatal("55000", f'database "{name}" is not currently accepting connections')
    if not role.superuser:
        if backend.kind == "client backend" and not node.has_place_for_all():
            raise fatal("53300", "remaining connection slots are reserved for non-replication superuser connections")
        _check_connect(node, role, database)
        others = [peer for peer in node.activity.all() if peer.pid != backend.pid]
        if role.connection_limit >= 0 and sum(peer.role == role.oid for peer in others) >= role.connection_limit:
            raise fatal("53300", f'too many connections for role "{role.name}"')
        if database.connection_limit >= 0 and sum(peer.database == database.oid for peer in others) >= database.connection_limit:
            raise fatal("53300", f'too many connections for database "{name}"')
    return database


def _check_connect(node: NodeState, role: Role, database: Database) -> None:
    with contextlib.closing(node.catalog.cursor()) as cursor:
        if not privilege.may_on_database(cursor, role.name, database.oid, "CONNECT"):
            detail = "User does not have CONNECT privilege."
            raise PostgresError("42501", f'permission denied for database "{database.name}"', detail=detail, severity=Severity.FATAL)


def _session(
    node: NodeState, connection: Connection, backend: Backend, parameters: dict[str, str], role: Role, database: Database
) -> ClientSession:
    settings = SessionSettings(node.settings)
    settings.override("is_superuser", "on" if role.superuser else "off")
    settings.override("session_authorization", role.name)
    _apply_stored(node, settings, role, database)
    startup_settings = _startup_settings(parameters)
    for name, value in startup_settings:
        if name.lower() not in session_role.NAMES:
            settings.set_initial(name, value, "client", superuser=role.superuser)
    backend.application_name = settings.text("application_name")
    local = connection.socket.getsockname() if connection.peer[0] is not None else (None, None)
    context = SessionContext(
        database=database.oid,
        database_name=database.name,
        user=role.name,
        session_user=role.name,
        user_oid=role.oid,
        superuser=role.superuser,
        pid=backend.pid,
        search_path=settings.words("search_path"),
        settings=settings,
        application_name=backend.application_name,
        client_addr=backend.client_addr,
        client_port=backend.client_port,
        server_addr=local[0],
        server_port=local[1],
    )
    session = ClientSession(node, connection, backend, context, settings, role, Computed(_functions, _relations))
    for name, value in startup_settings:
        if name.lower() in session_role.NAMES:
            session.role.begin_with(name, value)
    return session


# Both import when a session first needs them, so that a start does not wait for these modules.


def _functions(session: ClientSession) -> Mapping[str, Callable[..., object]]:
    from headgate.server.function.functions import functions

    return functions(session)


def _relations(session: ClientSession) -> Mapping[str, Provider]:
    from headgate.server.report.system_view import providers

    return providers(session.node, session)


def _apply_stored(node: NodeState, settings: SessionSettings, role: Role, database: Database) -> None:
    """Apply the settings of ALTER ROLE and ALTER DATABASE with the rights of a superuser. Log and skip values that are no longer valid."""
    with contextlib.closing(node.catalog.cursor()) as cursor:
        for source, name, value in stored_setting.in_force(cursor, database.oid, role.oid):
            try:
                settings.set_initial(name, value, source, superuser=True)
            except PostgresError as error:
                _log.warning("%s", error.message)


def _startup_settings(parameters: dict[str, str]) -> list[tuple[str, str]]:
    """Return the settings in the startup packet: first those of `options`, then the packet's own parameters."""
    settings: list[tuple[str, str]] = []
    words = _split_options(parameters.get("options", ""))
    index = 0
    while index < len(words):
        word, option = words[index], "-c "
        if word == "-c" and index + 1 < len(words):
            index += 1
            word = words[index]
        elif word.startswith("-c"):
            word = word[2:]
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = "--"
            word = name.replace("-", "_") + equals + value
        else:
            hint = 'Try "postgres --help" for more information.'
            raise fatal("42601", f"invalid command-line argument for server process: {word}", hint=hint)
        name, equals, value = word.partition("=")
        if not equals:
            raise fatal("42601", f"{option}{name} requires a value")
        settings.append((name, value))
        index += 1
    return settings + [(name, value) for name, value in parameters.items() if name not in _OWN]


def _split_options(text: str) -> list[str]:
    """Split `options` at white space; a backslash escapes the next character (pg_split_opts)."""
    words: list[str] = []
    word: list[str] = []
    inside = False
    index = 0
    while index < len(text):
        char = text[index]
        if char.isspace():
            if inside:
                words.append("".join(word))
            word, inside = [], False
        else:
            if char == "\\" and index + 1 < len(text):
                index += 1
                char = text[index]
            word.append(char)
            inside = True
        index += 1
    return [*words, "".join(word)] if inside else words
