"""What a catalog query or command knows of the session that asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headgate.settings.table import VERSION_NUMBER
from headgate.types import text_column


@dataclass
class SessionContext:
    """One session: the server makes it, keeps it all session long, and changes it as SET commands say.

    `database` is an oid. `search_path` is the setting taken apart (``$user`` unresolved, pg_catalog only if listed).
    `settings`: name → text of every setting as SHOW prints it, as far as the session has it.
    """

    database: int
    database_name: str
    user: str
    session_user: str = ""
    user_oid: int = 10
    superuser: bool = True
    pid: int = 0
    search_path: list[str] = field(default_factory=lambda: ["$user", "public"])
    settings: Mapping[str, str] = field(default_factory=dict)
    application_name: str = ""
    client_addr: str | None = None
    client_port: int | None = None
    server_addr: str | None = None
    server_port: int | None = None
    temp_schema: str | None = None
    """The schema of the session's temporary tables, once it has one; then it is in `search_path` too."""
    sequence_values: dict[int, int] = field(default_factory=dict)
    """What nextval gave last, by sequence (oid); `last_sequence` is the sequence of its last call."""
    last_sequence: int = 0
    emptied_at_commit: set[int] = field(default_factory=set)
    """Temporary tables (oids) that are ON COMMIT DELETE ROWS."""

    function_depth: int = 0
    """How many calls of functions are inside each other."""
    trigger_depth: int = 0
    """How many triggers are inside each other (pg_trigger_depth())."""

    transaction_start: datetime | None = None
    """What now() gives; None where no server tells, then it is the moment that asks."""
    statement_start: datetime | None = None
    """What statement_timestamp() gives."""

    def __post_init__(self) -> None:
        self.session_user = self.session_user or self.user

    def setting(self, name: str) -> str | None:
        """The text of a setting, None if it is not known."""
        return self.settings.get(name)

    def moment(self, function: str) -> datetime:
        """What now(), transaction_timestamp(), statement_timestamp() or clock_timestamp() gives (manual, 9.9.5)."""
        moments = {"clock_timestamp": None, "timeofday": None, "statement_timestamp": self.statement_start}
        return moments.get(function, self.transaction_start) or datetime.now(UTC)

    @property
    def announced(self) -> int:
        """The major release of PostgreSQL that the node announces."""
        return int(self.settings.get("server_version_num") or VERSION_NUMBER) // 10000

    @property
    def forms(self) -> text_column.TextSettings:
        """The settings that the text forms of values depend on."""
        return text_column.TextSettings.of(self.settings)

    @property
    def time_zone(self) -> str:
        """The session's TimeZone."""
        return self.settings.get("TimeZone") or self.settings.get("timezone") or "UTC"
