"""pg_hba.conf: selects the authentication method of a connection (manual, 21.1).

`HbaFile.read` reads PostgreSQL's format; `HbaFile.match` returns the first line that matches. Called by the node, which reloads the file at
SIGHUP, by authentication, and for the view pg_hba_file_rules. Invariant: a file with any invalid line is not used. The previous rules stay
in force.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import PostgresError, Severity
from headgate.server.authentication import auth_file
from headgate.server.authentication.auth_file import AuthLine
from headgate.server.authentication.client_host import ClientHost
from headgate.server.authentication.hba_line import HbaLine, LineError, parse
from headgate.server.authentication.ident_map import IdentMap

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True)
class ConnectionRequest:
    """The properties of a connection that pg_hba.conf matches."""

    address: str | None
    user: str
    database: str
    replication: bool
    groups: frozenset[str] = frozenset()
    tls: bool = False
    host: ClientHost | None = field(default=None, compare=False)
    """Resolves the client's host name."""


@dataclass(frozen=True)
class HbaFile:
    """The lines of one pg_hba.conf, and the log messages about it."""

    lines: tuple[HbaLine, ...]
    complaints: tuple[PostgresError, ...]
    usable: bool
    maps: IdentMap = field(default_factory=IdentMap)
    """The user name maps of its ``map=`` options."""

    @classmethod
    def read(cls, path: Path, *, tls: bool = False) -> HbaFile:
        """Read the file. `tls`: whether the node accepts TLS."""
        try:
            file_lines = auth_file.read(path)
        except PostgresError as error:
            return cls((), (error,), usable=False)
        lines: list[HbaLine] = []
        complaints: list[PostgresError] = []
        for file_line in file_lines:
            line, problem = _parse(file_line, tls=tls)
            if line is not None:
                lines.append(line)
            if problem is not None:
                context = None if file_line.error else f'line {file_line.number} of configuration file "{path}"'
                complaints.append(_complaint(problem.message, problem.hint, context))
        usable = len(lines) == len(file_lines)
        if usable and not lines:
            complaints.append(_complaint(f'configuration file "{path}" contains no entries', None, None))
        return cls(tuple(lines), tuple(complaints), usable and bool(lines))

    def match(self, request: ConnectionRequest) -> HbaLine | None:
        for line in self.lines:
            if _connection_fits(line, request) and _database_fits(line, request) and _user_fits(line, request):
                return line
        return None


def _never_matches(line: HbaLine, *, tls: bool) -> LineError | None:
    """Return the reason why a valid line can never match, or None."""
    if line.kind == "hostssl" and not tls:
        return LineError("hostssl record cannot match because SSL is disabled", "Set ssl = on in headgate.conf.")
    if line.kind == "hostgssenc":
        return LineError("hostgssenc record cannot match because GSSAPI is not supported by this build")
    return None


def rules(path: Path, *, tls: bool) -> Iterator[tuple[int, HbaLine | None, str | None]]:
    """Yield number, parsed line and error of each line for pg_hba_file_rules. Raise the file's error if it cannot be read."""
    for file_line in auth_file.read(path):
        line, problem = _parse(file_line, tls=tls)
        yield file_line.number, line, None if problem is None else problem.message


def _parse(line: AuthLine, *, tls: bool) -> tuple[HbaLine | None, LineError | None]:
    """Return the parsed line and the problem to report; either may be None."""
    if line.error is not None:
        return None, LineError(line.error)
    try:
        parsed = parse(line)
    except LineError as error:
        return None, error
    return parsed, _never_matches(parsed, tls=tls)


def _complaint(message: str, hint: str | None, context: str | None) -> PostgresError:
    return PostgresError("F0000", message, hint=hint, context=context, severity=Severity.LOG)


def _connection_fits(line: HbaLine, request: ConnectionRequest) -> bool:
    if request.address is None:
        return line.kind == "local"
    if line.kind in {"local", "hostgssenc"} or line.kind == ("hostnossl" if request.tls else "hostssl"):
        return False
    client = ipaddress.ip_address(request.address.partition("%")[0])
    if line.host is None:
        return line.covers(client)
    if line.host.keyword("all"):
        return True
    if line.host.keyword("samehost"):
        return any(client == interface.ip for interface in interfaces())
    if line.host.keyword("samenet"):
        return any(client.version == interface.version and client in interface.network for interface in interfaces())
    return request.host is not None and request.host.is_called(line.host.text)


def _database_fits(line: HbaLine, request: ConnectionRequest) -> bool:
    for word in line.databases:
        if request.replication:
            if word.keyword("replication"):
                return True
        elif (
            word.keyword("all")
            or (word.keyword("sameuser") and request.database == request.user)
            or ((word.keyword("samerole") or word.keyword("samegroup")) and request.database in request.groups)
            or (
                word.text == request.database
                and not any(word.keyword(keyword) for keyword in ("sameuser", "samerole", "samegroup", "replication"))
            )
        ):
            return True
    return False


def _user_fits(line: HbaLine, request: ConnectionRequest) -> bool:
    return any(
        word.text[1:] in request.groups
        if not word.quoted and word.text.startswith("+")
        else word.keyword("all") or word.text == request.user
        for word in line.users
    )


class _Entry(ctypes.Structure):
    pass


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("netmask", ctypes.c_void_p),
]


def interfaces() -> list[Interface]:
    """Return each current address with its network; an empty list if the system does not report them."""
    library = ctypes.CDLL(None)
    first = ctypes.POINTER(_Entry)()
    if library.getifaddrs(ctypes.byref(first)):
        return []
    try:
        return list(_all(first))
    finally:
        library.freeifaddrs(first)


def _all(entry: ctypes._Pointer[_Entry]) -> Iterator[Interface]:
    while True:
        try:
            interface = entry.contents
        except ValueError:  # the null pointer after the last entry
            return
        address, netmask = _address(interface.address), _address(interface.netmask)
        if address is not None and netmask is not None:
            ones = int(netmask).bit_count()
            yield ipaddress.ip_interface(f"{address}/{ones}")
        entry = interface.next


def _address(pointer: int | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in a sockaddr, or None for other families."""
    if not pointer:
        return None
    (family,) = struct.unpack("=H", ctypes.string_at(pointer, 2))
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(ctypes.string_at(pointer + 4, 4))
    if family == socket.AF_INET6:
        return ipaddress.IPv6Address(ctypes.string_at(pointer + 8, 16))
    return None
