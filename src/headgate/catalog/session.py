"""The properties of a session that catalog queries and commands depend on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from headgate.settings.table import VERSION_NUMBER
from headgate.types import text_column

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class SessionContext:
    """One session. The server creates it, keeps it for the whole session, and updates it for SET commands.

    `database` is an oid. `search_path` is the setting split into names (``$user`` unresolved, pg_catalog only if listed).
    `settings` maps the names of the settings that the session has to their texts as SHOW prints them.
    """

    database: int
    database_name: str
    user: str
    session_user: str = ""
    user_oid: int = 10
    superuser: bool = True
    acts_as_other: bool = False
    """Whether the current user is not that of the settings, as in a SECURITY DEFINER function, which cannot set the role."""
    pid: int = 0
    search_path: list[str] = field(default_factory=lambda: ["$user", "public"])
    settings: Mapping[str, str] = field(default_factory=dict)
    application_name: str = ""
    client_addr: str | None = None
    client_port: int | None = None
    server_addr: str | None = None
    server_port: int | None = None
    temp_schema: str | None = None
    """The schema of the session's temporary tables, if it has been created. It is then in `search_path` too."""
    sequence_values: dict[int, int] = field(default_factory=dict)
    """The last value of nextval, by sequence (oid). `last_sequence` is the sequence of the last call."""
    last_sequence: int = 0
    emptied_at_commit: set[int] = field(default_factory=set)
    """Temporary tables (oids) with ON COMMIT DELETE ROWS."""

    function_depth: int = 0
    """The nesting depth of function calls."""
    only_reads: bool = False
    """Whether the running function is not VOLATILE, so that its statements must not change anything."""
    may_end_transaction: bool = False
    """Whether the running procedure or DO may use COMMIT and ROLLBACK: a client has called it outside a transaction block."""
    subtransactions: int = 0
    """The number of EXCEPTION clauses whose blocks are running."""
    callers: list[Callable[[], str]] = field(default_factory=list)
    """Functions that return the lines of context of the functions and statements that run, the outermost first."""
    trigger_depth: int = 0
    """The nesting depth of triggers (pg_trigger_depth())."""
    action_depth: int = -1
    """The depth of the innermost ON DELETE or ON UPDATE that runs, -1 if none runs."""

    transaction_start: datetime | None = None
    """The value of now(). None without a server; now() is then the current time."""
    statement_start: datetime | None = None
    """The value of statement_timestamp()."""

    def __post_init__(self) -> None:
        self.session_user = self.session_user or self.user

    def setting(self, name: str) -> str | None:
        return self.settings.get(name)

    def moment(self, function: str) -> datetime:
        """Return the value of now(), transaction_timestamp(), statement_timestamp() or clock_timestamp() (manual, 9.9.5)."""
        moments = {"clock_timestamp": None, "timeofday": None, "statement_timestamp": self.statement_start}
        return moments.get(function, self.transaction_start) or datetime.now(UTC)

    @contextlib.contextmanager
    def at_trigger_depth(self, depth: int | None) -> Iterator[None]:
        """Run the block at a nesting depth of triggers. None: the current one."""
        outer, self.trigger_depth = self.trigger_depth, self.trigger_depth if depth is None else depth
        try:
            yield
        finally:
            self.trigger_depth = outer

    @contextlib.contextmanager
    def acting_on_rows(self) -> Iterator[None]:
        """Run ON DELETE or ON UPDATE, which is a trigger in PostgreSQL. It fires further ones after the statement, at the same depth."""
        outer = self.action_depth
        self.action_depth = self.trigger_depth if self.trigger_depth == outer else self.trigger_depth + 1
        try:
            with self.at_trigger_depth(self.action_depth):
                yield
        finally:
            self.action_depth = outer

    def search(self, schemas: list[str]) -> None:
        """Search the schemas of the setting search_path, and first that of temporary tables if it is not among them."""
        temp = self.temp_schema
        path = [temp or schema if schema == "pg_temp" else schema for schema in schemas]
        self.search_path = path if temp is None or temp in path else [temp, *path]

    @property
    def announced(self) -> int:
        """The major release of PostgreSQL that the node announces."""
        return int(self.settings.get("server_version_num") or VERSION_NUMBER) // 10000

    @property
    def forms(self) -> text_column.TextSettings:
        instant = None if self.transaction_start is None else (self.transaction_start - _EPOCH) // timedelta(microseconds=1)
        return replace(text_column.TextSettings.of(self.settings), instant=instant)

    @property
    def time_zone(self) -> str:
        return self.settings.get("TimeZone") or self.settings.get("timezone") or "UTC"
