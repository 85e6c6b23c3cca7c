"""What a query hands to the server: described columns and batches of PostgreSQL's text forms.

Made by the catalog's queries and by the commands, consumed once by the server, which sends RowDescription from `columns`
and one DataRow per row (manual, 55.7), turning text into binary itself where the client asked for that. Dates are in ISO and
intervals in IntervalStyle postgres here; the styles that the session asks for come in when the rows are sent (`text.styled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.types import registry


@dataclass(frozen=True)
class ResultColumn:
    """One field of RowDescription. `relation` and `attnum` are 0 unless the column is a table's own."""

    name: str
    type_oid: int
    typmod: int = -1
    relation: int = 0
    attnum: int = 0

    @property
    def type_length(self) -> int:
        """pg_type.typlen, as RowDescription has it; -1 for a type that is not built in."""
        found = registry.known().find(self.type_oid)
        return -1 if found is None else found.length


@dataclass(eq=False)
class ResultSet:
    """Rows of a query.

    Every column of every batch is a string column (`pa.string()`) of PostgreSQL's text forms, null = NULL, in the order of
    `columns`. `batches` may be lazy and is read once. `row_count` is right when they have been read.
    """

    columns: tuple[ResultColumn, ...]
    batches: Iterable[pa.RecordBatch]
    tag: str | None = None
    binary: bool = False
    """Whether the simple protocol sends it in binary: what a BINARY cursor gives."""
    row_count: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches, counted as they pass."""
        for batch in self.batches:
            self.row_count += batch.num_rows
            yield batch

    @property
    def command_tag(self) -> str:
        """The tag of CommandComplete; ``SELECT n`` unless `tag` says otherwise. Right after the batches have been read."""
        return f"SELECT {self.row_count}" if self.tag is None else self.tag


def of_rows(columns: Sequence[ResultColumn], rows: Iterable[Sequence[str | None]], tag: str | None = None) -> ResultSet:
    """A result of a few rows that are already in text form (SHOW, replication commands)."""
    return ResultSet(tuple(columns), [batch_of_rows(columns, rows)], tag)


def batch_of_rows(columns: Sequence[ResultColumn], rows: Iterable[Sequence[str | None]]) -> pa.RecordBatch:
    """One batch of string columns out of rows; works for no rows and for no columns."""
    kept = list(rows)
    schema = pa.schema([pa.field(str(place), pa.string()) for place, _ in enumerate(columns)])
    arrays = [pa.array([row[place] for row in kept], pa.string()) for place, _ in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
