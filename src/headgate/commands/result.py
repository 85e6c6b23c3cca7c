"""What a command hands back to the server, besides rows (`types.resultset.ResultSet`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headgate.types.resultset import ResultColumn, ResultSet


@dataclass(frozen=True)
class CommandResult:
    """A command without rows: its tag, as "CREATE TABLE" or "INSERT 0 3"."""

    tag: str


@dataclass
class CopyProgress:
    """How far a COPY is (pg_stat_progress_copy); `relation` is 0 for a query, `excluded` are the rows that WHERE left out."""

    command: str
    relation: int = 0
    bytes: int = 0
    rows: int = 0
    excluded: int = 0


@dataclass
class CopyOut:
    """COPY … TO STDOUT: each element of `lines` is one CopyData message; the rows of `progress` are counted as they are made."""

    columns: int
    binary: bool
    lines: Iterable[pa.Array]
    progress: CopyProgress


@dataclass(frozen=True)
class CopyIn:
    """COPY … FROM STDIN: `consume` takes the payloads of CopyData, cut anywhere, and counts the rows in `progress`."""

    columns: int
    binary: bool
    consume: Callable[[Iterator[bytes]], None]
    progress: CopyProgress


@dataclass(frozen=True)
class Described:
    """A statement before it runs: the types of its parameters, its columns (None: it gives no rows)."""

    parameters: tuple[int, ...]
    columns: tuple[ResultColumn, ...] | None


Result = ResultSet | CommandResult | CopyIn | CopyOut
"""What a statement gives."""
