"""pg_hba.conf: which method authenticates which connection (manual, 21.1).

`HbaFile.read` parses PostgreSQL's format; `HbaFile.match` gives the first line that fits. Called by authentication; read
again at SIGHUP, when a file with errors leaves the old lines in force. What must hold: a file that cannot be parsed
never admits anyone whom the last good file did not.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import PostgresError

_TOKEN = re.compile(r'"((?:[^"]|"")*)"|([^\s,"#]+)')
METHODS = frozenset({"trust", "reject", "password", "md5", "scram-sha-256"})
OTHER_METHODS = frozenset({"gss", "sspi", "ident", "peer", "ldap", "radius", "cert", "pam", "bsd"})


@dataclass(frozen=True)
class Word:
    """A word of a line; a quoted one is never a keyword."""

    text: str
    quoted: bool

    def keyword(self, text: str) -> bool:
        """Whether it is that keyword."""
        return not self.quoted and self.text == text


@dataclass(frozen=True)
class HbaLine:
    """One record of the file."""

    number: int
    kind: str
    databases: tuple[Word, ...]
    users: tuple[Word, ...]
    address: ipaddress.IPv4Network | ipaddress.IPv6Network | str | None
    method: str
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """What a connection asks for."""

    address: str | None
    user: str
    database: str
    replication: bool
    groups: frozenset[str] = frozenset()


class HbaFile:
    """The parsed lines of one pg_hba.conf."""

    def __init__(self, lines: list[HbaLine]) -> None:
        self.lines = lines

    @classmethod
    def read(cls, path: Path) -> HbaFile:
        """Parses the file; F0000 names the line that is wrong."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise PostgresError("F0000", f'could not open file "{path}": {error.strerror}') from error
        lines: list[HbaLine] = []
        for number, line in enumerate(text.replace("\\\n", " ").splitlines(), 1):
            fields = _fields(line, path.parent)
            if fields:
                try:
                    lines.append(_record(number, fields))
                except ValueError as error:
                    raise PostgresError("F0000", str(error), context=f'line {number} of configuration file "{path}"') from error
        return cls(lines)

    def match(self, asked: Asked) -> HbaLine | None:
        """The first line that fits the connection."""
        for line in self.lines:
            if _connection_fits(line, asked) and _database_fits(line, asked) and _user_fits(line, asked):
                return line
        return None


def _fields(line: str, folder: Path) -> list[list[Word]]:
    """The fields of a line, each a comma-separated list of words."""
    fields: list[list[Word]] = []
    at, joined = 0, False
    while at < len(line):
        char = line[at]
        if char == "#":
            break
        if char.isspace():
            at += 1
        elif char == ",":
            joined = True
            at += 1
        else:
            found = _TOKEN.match(line, at)
            if not found:
                break
            at = found.end()
            word = Word(found[1].replace('""', '"'), True) if found[1] is not None else Word(found[2], False)
            words = _included(word, folder)
            if joined and fields:
                fields[-1] += words
            else:
                fields.append(words)
            joined = False
    return fields


def _included(word: Word, folder: Path) -> list[Word]:
    if word.quoted or not word.text.startswith("@") or len(word.text) == 1:
        return [word]
    try:
        text = (folder / word.text[1:]).read_text(encoding="utf-8")
    except OSError:
        return []
    return [found for line in text.splitlines() for words in _fields(line, folder) for found in words]


def _record(number: int, fields: list[list[Word]]) -> HbaLine:
    kind = fields[0][0].text
    if kind not in ("local", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc"):
        raise ValueError(f'invalid connection type "{kind}"')
    wanted = 4 if kind == "local" else 5
    for place, what in enumerate(("connection type", "database", "role", "IP address"), 0):
        if place < wanted - 1 and len(fields) <= place:
            raise ValueError(f"end-of-line before {what} specification")
    address: ipaddress.IPv4Network | ipaddress.IPv6Network | str | None = None
    at = 3
    if kind != "local":
        address, at = _address(fields)
    if len(fields) <= at:
        raise ValueError("end-of-line before authentication method")
    method = fields[at][0].text
    if method in OTHER_METHODS:
        raise ValueError(f'invalid authentication method "{method}": not supported by this build')
    if method not in METHODS:
        raise ValueError(f'invalid authentication method "{method}"')
    options: dict[str, str] = {}
    for words in fields[at + 1 :]:
        for word in words:
            name, equals, value = word.text.partition("=")
            if not equals:
                raise ValueError(f"authentication option not in name=value format: {word.text}")
            options[name] = value
    return HbaLine(number, kind, tuple(fields[1]), tuple(fields[2]), address, method, options)


def _address(fields: list[list[Word]]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network | str, int]:
    if len(fields) <= 3:
        raise ValueError("end-of-line before IP address specification")
    word = fields[3][0]
    if not word.quoted and word.text in ("all", "samehost", "samenet"):
        return word.text, 4
    text = word.text
    try:
        if "/" in text:
            return ipaddress.ip_network(text, strict=False), 4
        ipaddress.ip_address(text)
    except ValueError as error:
        if "/" in text or re.fullmatch(r"[0-9.]+|.*:.*", text):
            raise ValueError(f'invalid IP address "{text}": Name or service not known') from error
        return text, 4
    if len(fields) <= 4:
        raise ValueError("end-of-line before netmask specification")
    try:
        return ipaddress.ip_network(f"{text}/{fields[4][0].text}", strict=False), 5
    except ValueError as error:
        raise ValueError(f'invalid IP mask "{fields[4][0].text}": Name or service not known') from error


def _connection_fits(line: HbaLine, asked: Asked) -> bool:
    if asked.address is None:
        return line.kind == "local"
    if line.kind in ("local", "hostssl", "hostgssenc"):
        return False
    client = ipaddress.ip_address(asked.address.partition("%")[0])
    if line.address == "all":
        return True
    if line.address in ("samehost", "samenet"):
        return client.is_loopback
    if isinstance(line.address, str):
        return _host_fits(line.address, asked.address)
    return line.address is not None and client.version == line.address.version and client in line.address


def _host_fits(name: str, address: str) -> bool:
    try:
        if name.startswith("."):
            return socket.gethostbyaddr(address)[0].lower().endswith(name.lower())
        return any(found[4][0] == address for found in socket.getaddrinfo(name, None))
    except OSError:
        return False


def _database_fits(line: HbaLine, asked: Asked) -> bool:
    for word in line.databases:
        if asked.replication:
            if word.keyword("replication"):
                return True
        elif (
            word.keyword("all")
            or (word.keyword("sameuser") and asked.database == asked.user)
            or ((word.keyword("samerole") or word.keyword("samegroup")) and asked.database in asked.groups)
            or (word.text == asked.database and not word.keyword("replication"))
        ):
            return True
    return False


def _user_fits(line: HbaLine, asked: Asked) -> bool:
    return any(
        word.keyword("all") or word.text == asked.user or (not word.quoted and word.text.startswith("+") and word.text[1:] in asked.groups)
        for word in line.users
    )
