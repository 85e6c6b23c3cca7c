"""pg_hba.conf: which method authenticates which connection (manual, 21.1).

`HbaFile.read` reads PostgreSQL's format; `HbaFile.match` gives the first line that fits. Called by the node, which reads it again at
SIGHUP, by authentication and for the view pg_hba_file_rules. What must hold: a file of which any line is wrong is not used; the rules
that were in force stay.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import PostgresError, Severity
from headgate.server.authentication import auth_file
from headgate.server.authentication.auth_file import AuthLine
from headgate.server.authentication.client_host import ClientHost
from headgate.server.authentication.hba_line import HbaLine, LineError, parse
from headgate.server.authentication.ident_map import IdentMap
from headgate.server.authentication.interface import interfaces


@dataclass(frozen=True)
class ConnectionRequest:
    """What a connection asks for."""

    address: str | None
    user: str
    database: str
    replication: bool
    groups: frozenset[str] = frozenset()
    tls: bool = False
    host: ClientHost | None = field(default=None, compare=False)
    """Looks up the client's name."""


@dataclass(frozen=True)
class HbaFile:
    """The records of one pg_hba.conf, and what the log says about it."""

    lines: tuple[HbaLine, ...]
    complaints: tuple[PostgresError, ...]
    usable: bool
    maps: IdentMap = field(default_factory=IdentMap)
    """What its lines name with ``map=``."""

    @classmethod
    def read(cls, path: Path, *, tls: bool = False) -> HbaFile:
        """Reads the file; `tls`: whether the node speaks it."""
        try:
            found = auth_file.read(path)
        except PostgresError as error:
            return cls((), (error,), usable=False)
        lines: list[HbaLine] = []
        complaints: list[PostgresError] = []
        for each in found:
            line, trouble = _parsed(each, tls=tls)
            if line is not None:
                lines.append(line)
            if trouble is not None:
                where = None if each.error else f'line {each.number} of configuration file "{path}"'
                complaints.append(_complaint(trouble.message, trouble.hint, where))
        usable = len(lines) == len(found)
        if usable and not lines:
            complaints.append(_complaint(f'configuration file "{path}" contains no entries', None, None))
        return cls(tuple(lines), tuple(complaints), usable and bool(lines))

    def match(self, asked: ConnectionRequest) -> HbaLine | None:
        """The first line that fits the connection."""
        for line in self.lines:
            if _connection_fits(line, asked) and _database_fits(line, asked) and _user_fits(line, asked):
                return line
        return None


def _never_matches(line: HbaLine, *, tls: bool) -> LineError | None:
    """Why no connection can ever fit the line, though nothing is wrong with it."""
    if line.kind == "hostssl" and not tls:
        return LineError("hostssl record cannot match because SSL is disabled", "Set ssl = on in headgate.conf.")
    if line.kind == "hostgssenc":
        return LineError("hostgssenc record cannot match because GSSAPI is not supported by this build")
    return None


def rules(path: Path, *, tls: bool) -> Iterator[tuple[int, HbaLine | None, str | None]]:
    """The lines as pg_hba_file_rules shows them: number, record, what is wrong; the file's error if it cannot be read."""
    for each in auth_file.read(path):
        line, trouble = _parsed(each, tls=tls)
        yield each.number, line, None if trouble is None else trouble.message


def _parsed(line: AuthLine, *, tls: bool) -> tuple[HbaLine | None, LineError | None]:
    """The record, if the line is one, and what is to be said about it."""
    if line.error is not None:
        return None, LineError(line.error)
    try:
        found = parse(line)
    except LineError as error:
        return None, error
    return found, _never_matches(found, tls=tls)


def _complaint(message: str, hint: str | None, context: str | None) -> PostgresError:
    return PostgresError("F0000", message, hint=hint, context=context, severity=Severity.LOG)


def _connection_fits(line: HbaLine, asked: ConnectionRequest) -> bool:
    if asked.address is None:
        return line.kind == "local"
    if line.kind in {"local", "hostgssenc"} or line.kind == ("hostnossl" if asked.tls else "hostssl"):
        return False
    client = ipaddress.ip_address(asked.address.partition("%")[0])
    if line.host is None:
        return line.covers(client)
    if line.host.keyword("all"):
        return True
    if line.host.keyword("samehost"):
        return any(client == each.ip for each in interfaces())
    if line.host.keyword("samenet"):
        return any(client.version == each.version and client in each.network for each in interfaces())
    return asked.host is not None and asked.host.is_called(line.host.text)


def _database_fits(line: HbaLine, asked: ConnectionRequest) -> bool:
    for word in line.databases:
        if asked.replication:
            if word.keyword("replication"):
                return True
        elif (
            word.keyword("all")
            or (word.keyword("sameuser") and asked.database == asked.user)
            or ((word.keyword("samerole") or word.keyword("samegroup")) and asked.database in asked.groups)
            or (
                word.text == asked.database and not any(word.keyword(each) for each in ("sameuser", "samerole", "samegroup", "replication"))
            )
        ):
            return True
    return False


def _user_fits(line: HbaLine, asked: ConnectionRequest) -> bool:
    return any(
        word.text[1:] in asked.groups if not word.quoted and word.text.startswith("+") else word.keyword("all") or word.text == asked.user
        for word in line.users
    )
