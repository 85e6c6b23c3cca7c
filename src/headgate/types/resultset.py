"""The result of a query for the server: described columns, and batches of values in PostgreSQL's text form.

Created by catalog queries and commands. The server consumes it once: it sends RowDescription from `columns` and one DataRow per row
(manual, 55.7), and converts text to binary if the client requested that. Dates are in ISO and intervals in IntervalStyle postgres here. The
session's styles are applied when the rows are sent (`text.styled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.types import registry


@dataclass(frozen=True)
class ResultColumn:
    """One field of RowDescription. `relation` and `attnum` are 0 unless the column is a table's own column.

    `attributes`: those of a record whose type has no row in pg_type, if they are known.
    """

    name: str
    type_oid: int
    typmod: int = -1
    relation: int = 0
    attnum: int = 0
    attributes: tuple[registry.Attribute, ...] | None = None

    @property
    def type_length(self) -> int:
        """The typlen for RowDescription; -1 for an unknown type."""
        pg_type = registry.known().find(self.type_oid)
        return -1 if pg_type is None else pg_type.length


@dataclass(eq=False)
class ResultSet:
    """The rows of a query.

    Each column of each batch is a string column (`pa.string()`) of PostgreSQL's text forms, null = NULL, in the order of `columns`.
    `batches` may be lazy and is read once. `row_count` is correct after they have been read.
    """

    columns: tuple[ResultColumn, ...]
    batches: Iterable[pa.RecordBatch]
    tag: str | None = None
    binary: bool = False
    """Whether the simple query protocol sends it in binary format, for a BINARY cursor."""
    row_count: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            self.row_count += batch.num_rows
            yield batch

    @property
    def command_tag(self) -> str:
        """The tag of CommandComplete: `tag`, or ``SELECT n``, which is correct after the batches have been read."""
        return f"SELECT {self.row_count}" if self.tag is None else self.tag


def of_rows(columns: Sequence[ResultColumn], rows: Iterable[Sequence[str | None]], tag: str | None = None) -> ResultSet:
    """Return a result of a few rows in text form (SHOW, replication commands)."""
    return ResultSet(tuple(columns), [batch_of_rows(columns, rows)], tag)


def batch_of_rows(columns: Sequence[ResultColumn], rows: Iterable[Sequence[str | None]]) -> pa.RecordBatch:
    """Return a batch of string columns for rows. It also works without rows or without columns."""
    row_list = list(rows)
    schema = pa.schema([pa.field(str(index), pa.string()) for index, _ in enumerate(columns)])
    arrays = [pa.array([row[index] for row in row_list], pa.string()) for index, _ in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
