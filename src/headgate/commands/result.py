"""What a command hands back to the server, besides rows (`types.resultset.ResultSet`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.types.resultset import ResultColumn


@dataclass(frozen=True)
class CommandResult:
    """A command without rows: its tag, as "CREATE TABLE" or "INSERT 0 3"."""

    tag: str


@dataclass
class CopyOut:
    """COPY … TO STDOUT: each element of `lines` is one CopyData message; `rows` is right once they are read."""

    columns: int
    binary: bool
    lines: Iterable[pa.Array]
    rows: int = field(default=0)


@dataclass(frozen=True)
class CopyIn:
    """COPY … FROM STDIN: `consume` takes the payloads of CopyData, cut anywhere, and gives the number of rows."""

    columns: int
    binary: bool
    consume: Callable[[Iterator[bytes]], int]


@dataclass(frozen=True)
class Described:
    """A statement before it runs: the types of its parameters, its columns (None: it gives no rows)."""

    parameters: tuple[int, ...]
    columns: tuple[ResultColumn, ...] | None
