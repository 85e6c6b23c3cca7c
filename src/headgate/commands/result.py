"""The results of commands for the server, besides rows (`types.resultset.ResultSet`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headgate.types.resultset import ResultColumn, ResultSet


@dataclass(frozen=True)
class CommandResult:
    """The result of a command without rows: its tag, such as "CREATE TABLE" or "INSERT 0 3"."""

    tag: str


@dataclass
class CopyProgress:
    """The progress of a COPY (pg_stat_progress_copy). `relation` is 0 for a query. `excluded`: the number of rows that WHERE excluded."""

    command: str
    relation: int = 0
    bytes: int = 0
    rows: int = 0
    excluded: int = 0


@dataclass
class CopyOut:
    """COPY … TO STDOUT. Each element of `lines` is one CopyData message. `progress` counts the rows as they are produced."""

    columns: int
    binary: bool
    lines: Iterable[pa.Array]
    progress: CopyProgress


@dataclass(frozen=True)
class CopyIn:
    """COPY … FROM STDIN. `consume` reads the payloads of CopyData, which may be split anywhere, and counts the rows in `progress`."""

    columns: int
    binary: bool
    consume: Callable[[Iterator[bytes]], None]
    progress: CopyProgress


@dataclass(frozen=True)
class Described:
    """A statement before it runs: its parameter types and its columns (None if it returns no rows)."""

    parameters: tuple[int, ...]
    columns: tuple[ResultColumn, ...] | None


Result = ResultSet | CommandResult | CopyIn | CopyOut
"""The result of a statement."""
