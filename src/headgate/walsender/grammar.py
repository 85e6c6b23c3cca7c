"""The replication grammar: text → command (PostgreSQL's repl_scanner.l and repl_gram.y, release 15, and additions of 17).

Called by `commands` with each query string of a replication connection. `parse` returns None for ordinary SQL: a string whose first word is
not the keyword of a command. Keywords are only recognized in upper case; other words are identifiers, folded to lower case unless quoted.
All errors are 42601 ``syntax error`` without a position, as in PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate import interruption
from headgate.errors import Notices, PostgresError
from headgate.lsn import Lsn

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<lsn>[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})
    | (?P<quoted>"[^"]*(?:""[^"]*)*")
    | (?P<string>'[^']*(?:''[^']*)*')
    | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
    | (?P<number>\d+)
    | (?P<other>[(),.;])
    )""",
    re.X | re.S,
)
_SPACE = re.compile(r"\s*\Z")
_COMMANDS = {
    "IDENTIFY_SYSTEM",
    "BASE_BACKUP",
    "START_REPLICATION",
    "CREATE_REPLICATION_SLOT",
    "DROP_REPLICATION_SLOT",
    "ALTER_REPLICATION_SLOT",
    "READ_REPLICATION_SLOT",
    "TIMELINE_HISTORY",
    "SHOW",
    "CHECK_NODE",
    "BACKUP_CATALOG",
    "LIST_TABLES",
}
_OTHERS = {
    "SLOT",
    "LOGICAL",
    "PHYSICAL",
    "TEMPORARY",
    "TIMELINE",
    "WAIT",
    "EXPORT_SNAPSHOT",
    "NOEXPORT_SNAPSHOT",
    "USE_SNAPSHOT",
    "RESERVE_WAL",
    "TWO_PHASE",
}
_LEGACY = {
    "EXPORT_SNAPSHOT": ("snapshot", "export"),
    "NOEXPORT_SNAPSHOT": ("snapshot", "nothing"),
    "USE_SNAPSHOT": ("snapshot", "use"),
    "RESERVE_WAL": ("reserve_wal", "true"),
    "TWO_PHASE": ("two_phase", "true"),
}
NAME_LENGTH = 63
_DIGITS = 1000
"""The digits of a number that are read. The last ones are sufficient for a number of 32 bits."""

Option = tuple[str, str | None]


@dataclass(frozen=True)
class IdentifySystem:
    """IDENTIFY_SYSTEM."""


@dataclass(frozen=True)
class Show:
    """SHOW name."""

    name: str


@dataclass(frozen=True)
class TimelineHistory:
    """TIMELINE_HISTORY n."""

    timeline: int


@dataclass(frozen=True)
class ReadReplicationSlot:
    """READ_REPLICATION_SLOT name."""

    slot: str


@dataclass(frozen=True)
class CreateReplicationSlot:
    """CREATE_REPLICATION_SLOT. `plugin` is None for a physical slot."""

    slot: str
    temporary: bool
    plugin: str | None
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class DropReplicationSlot:
    """DROP_REPLICATION_SLOT name [WAIT]."""

    slot: str
    wait: bool


@dataclass(frozen=True)
class AlterReplicationSlot:
    """ALTER_REPLICATION_SLOT name (option, …), from PostgreSQL 17."""

    slot: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class StartReplication:
    """START_REPLICATION. `options` are the plugin's (name, value)."""

    slot: str | None
    logical: bool
    start: Lsn
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class CheckNode:
    """CHECK_NODE ['database'], only on a node, for ``headgate check --online``."""

    database: str | None


@dataclass(frozen=True)
class BackupCatalog:
    """BACKUP_CATALOG 'folder', only on a node, for ``headgate backup``."""

    folder: str


@dataclass(frozen=True)
class ListTables:
    """LIST_TABLES ['database'], only on a node, for ``headgate tables``."""

    database: str | None


@dataclass(frozen=True)
class BaseBackup:
    """BASE_BACKUP, which a node does not support."""


Command = (
    IdentifySystem
    | Show
    | TimelineHistory
    | ReadReplicationSlot
    | CreateReplicationSlot
    | DropReplicationSlot
    | AlterReplicationSlot
    | StartReplication
    | BaseBackup
    | CheckNode
    | BackupCatalog
    | ListTables
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


@dataclass
class _Parser:
    """A cursor over the tokens."""

    tokens: list[_Token]
    notices: Notices
    at: int = field(default=0)

    def peek(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token("end", "")

    def take(self, kind: str, text: str | None = None) -> str:
        token = self.peek()
        if token.kind != kind or (text is not None and token.text != text):
            raise syntax_error()
        self.at += 1
        return token.text

    def accept(self, kind: str, text: str | None = None) -> bool:
        token = self.peek()
        if token.kind == kind and (text is None or token.text == text):
            self.at += 1
            return True
        return False

    def name(self) -> str:
        """Return an identifier, truncated to 63 bytes with a notice."""
        name = self.take("name")
        encoded = name.encode()
        if len(encoded) <= NAME_LENGTH:
            return name
        cut = encoded[:NAME_LENGTH].decode("utf-8", "ignore")
        self.notices.notice(f'identifier "{name}" will be truncated to "{cut}"', sqlstate="42622")
        return cut


def syntax_error() -> PostgresError:
    """Return PostgreSQL's error for all malformed replication commands."""
    return PostgresError("42601", "syntax error")


def parse(text: str, notices: Notices) -> Command | None:
    """Return the command, or None if the text is SQL. Raise 42601."""
    first = re.match(r"\s*([A-Za-z_]+)", text)
    if first is None or first[1] not in _COMMANDS:
        return None
    parser = _Parser(_tokens(text), notices)
    command = _PARSERS[parser.take("keyword")](parser)
    parser.accept("other", ";")
    if parser.peek().kind != "end":
        raise syntax_error()
    return command


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    index = 0
    while not _SPACE.match(text, index):
        interruption.check()
        match = _TOKEN.match(text, index)
        if not match:
            raise syntax_error()
        index = match.end()
        tokens.append(_token(str(match.lastgroup), match[str(match.lastgroup)]))
    return tokens


def _token(kind: str, text: str) -> _Token:
    if kind == "quoted":
        if len(text) == 2:
            return _Token("name", "")
        return _Token("name", text[1:-1].replace('""', '"'))
    if kind == "string":
        return _Token("string", text[1:-1].replace("''", "'"))
    if kind == "word":
        if text in _COMMANDS or text in _OTHERS:
            return _Token("keyword", text)
        return _Token("name", "".join(char.lower() if char.isascii() else char for char in text))
    return _Token(kind, text)


def _identify(parser: _Parser) -> Command:
    return IdentifySystem()


def _base_backup(parser: _Parser) -> Command:
    parser.at = len(parser.tokens)
    return BaseBackup()


def _variable(parser: _Parser) -> str:
    name = parser.name()
    while parser.accept("other", "."):
        name += "." + parser.name()
    return name


def _show(parser: _Parser) -> Command:
    return Show(_variable(parser))


def _timeline(parser: _Parser) -> Command:
    timeline = int(parser.take("number")[-_DIGITS:]) % 2**32
    if not timeline:
        raise PostgresError("42601", "invalid timeline 0")
    return TimelineHistory(timeline)


def _create(parser: _Parser) -> Command:
    name = parser.name()
    temporary = parser.accept("keyword", "TEMPORARY")
    plugin = None
    if not parser.accept("keyword", "PHYSICAL"):
        parser.take("keyword", "LOGICAL")
        plugin = parser.name()
    options: list[Option] = []
    if parser.peek() == _Token("other", "("):
        options += _options(parser)
    else:
        while parser.peek().kind == "keyword" and parser.peek().text in _LEGACY:
            options.append(_LEGACY[parser.take("keyword")])
    return CreateReplicationSlot(name, temporary, plugin, tuple(options))


def _options(parser: _Parser) -> list[Option]:
    parser.take("other", "(")
    options = [_option(parser)]
    while parser.accept("other", ","):
        options.append(_option(parser))
    parser.take("other", ")")
    return options


def _option(parser: _Parser) -> Option:
    """Parse a name, which may be a keyword, and an optional value."""
    token = parser.peek()
    name = parser.take("keyword").lower() if token.kind == "keyword" else parser.name()
    value = parser.peek()
    if value.kind in ("string", "number"):
        parser.at += 1
        return name, value.text
    if value.kind == "name":
        return name, parser.name()
    return name, None


def _drop(parser: _Parser) -> Command:
    name = parser.name()
    return DropReplicationSlot(name, parser.accept("keyword", "WAIT"))


def _alter(parser: _Parser) -> Command:
    return AlterReplicationSlot(parser.name(), tuple(_options(parser)))


def _start(parser: _Parser) -> Command:
    slot = parser.name() if parser.accept("keyword", "SLOT") else None
    if slot is not None and parser.accept("keyword", "LOGICAL"):
        start = Lsn.parse(parser.take("lsn"))
        options: list[Option] = []
        if parser.accept("other", "("):
            options.append(_plugin_option(parser))
            while parser.accept("other", ","):
                options.append(_plugin_option(parser))
            parser.take("other", ")")
        return StartReplication(slot, True, start, tuple(options))
    parser.accept("keyword", "PHYSICAL")
    start = Lsn.parse(parser.take("lsn"))
    if parser.accept("keyword", "TIMELINE"):
        parser.take("number")
    return StartReplication(slot, False, start)


def _plugin_option(parser: _Parser) -> Option:
    name = parser.name()
    return (name, parser.take("string")) if parser.peek().kind == "string" else (name, None)


_PARSERS: dict[str, Callable[[_Parser], Command]] = {
    "IDENTIFY_SYSTEM": _identify,
    "BASE_BACKUP": _base_backup,
    "SHOW": _show,
    "TIMELINE_HISTORY": _timeline,
    "READ_REPLICATION_SLOT": lambda parser: ReadReplicationSlot(_variable(parser)),
    "CREATE_REPLICATION_SLOT": _create,
    "DROP_REPLICATION_SLOT": _drop,
    "ALTER_REPLICATION_SLOT": _alter,
    "START_REPLICATION": _start,
    "CHECK_NODE": lambda parser: CheckNode(parser.take("string") if parser.peek().kind == "string" else None),
    "BACKUP_CATALOG": lambda parser: BackupCatalog(parser.take("string")),
    "LIST_TABLES": lambda parser: ListTables(parser.take("string") if parser.peek().kind == "string" else None),
}
