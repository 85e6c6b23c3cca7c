"""The rows of a table that changed between two positions of the publisher, and their new values, according to its stream.

Called by `verification` with the frames that `publisher.changes` decodes. Rows are identified by the text of their key (`digest`). An
existing row is described by the marks of its columns, * for a value that was not sent because it had not changed (TOAST). The last event of
a key counts. An UPDATE that moves a row has two events: the old key is gone, then the new key exists.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.pgoutput.decode import Changes, DecodedFrames
from headgate.pgoutput.decode import DecodedColumn as Sent
from headgate.types.buffers import Mask
from headgate.types.text.text import read_text, write_text
from headgate.verify.digest import ROWS, SHORT, Compared, Values, hashes_of, values_of_json

EVENTS = pa.schema([("key", pa.string()), ("at", pa.int64()), ("there", pa.bool_()), ("columns", pa.string()), ("values", pa.string())])
"""`there`: whether the row exists. `values`: of existing rows, in the form of `digest.VALUES`, if they are requested."""
MOST = 1_000_000
"""Limit of the changes that are kept for a table. Above it, the table is compared again from a later position."""
MOST_BYTES = 64 << 20
"""Limit in bytes of the values. Those of later changes are not kept."""


class Changed:
    """The changed rows of one table."""

    def __init__(self, table: Compared, *, with_values: bool = False) -> None:
        self.table = table
        self._room = MOST_BYTES if with_values else 0
        self.whole = False
        """Whether the changes cannot be listed by key: after a TRUNCATE, without a key, or above the limit of changes."""
        self._events: list[pa.Table] = []
        self._count = 0

    def add(self, decoded: DecodedFrames, until: int) -> None:
        """Add the changes of transactions that end at or before a position."""
        ends = decoded.transactions.end_lsn
        for truncation in decoded.truncations:
            truncated = [(relation.schema, relation.name) for relation in truncation.relations]
            self.whole |= ends[truncation.txn] <= until and (self.table.schema, self.table.name) in truncated
        for changes in decoded.changes:
            if (changes.relation.schema, changes.relation.name) != (self.table.schema, self.table.name):
                continue
            counted = changes.where(ends[changes.txn] <= until)
            self._count += len(counted)
            if not len(counted):
                continue
            if not self.table.key or self._count > MOST:
                self.whole = True
            else:
                self._events += self._of(counted)

    def keys(self) -> list[str]:
        return list(self._last()["key"].to_pylist())

    def hashes(self) -> list[str]:
        return hashes_of(self.keys())

    def values(self, keys: Sequence[str]) -> Values:
        """Return the new values of those of these keys that exist and whose values are known."""
        last = self._last()
        known = last.filter(pc.and_(pc.is_in(last["key"], pa.array(keys, pa.string())), pc.is_valid(last["values"]))).select(
            ["key", "values"]
        )
        return {row["key"]: values_of_json(self.table, row["values"]) for row in known.to_pylist()}

    def rows(self) -> pa.Table:
        """Return the changed rows that exist now (`digest.ROWS`)."""
        last = self._last()
        return last.filter(last["there"]).select(ROWS.names)

    def _last(self) -> pa.Table:
        events = pa.concat_tables(self._events) if self._events else EVENTS.empty_table()
        grouped = (
            events.sort_by("at")
            .group_by("key", use_threads=False)
            .aggregate(
                [("there", "last"), ("columns", "last"), ("values", "last")],
            )
        )
        return grouped.rename_columns(["key", "there", "columns", "values"])

    def _of(self, changes: Changes) -> list[pa.Table]:
        """Return the events of some changes: rows that are gone, rows that exist."""
        names = [column.name for column in changes.relation.columns]
        if missing := set(self.table.columns) - set(names):
            raise PostgresError("55000", f'column "{min(missing)}" of table "{self.table.schema}.{self.table.name}" is no longer published')
        indexes = [names.index(name) for name in self.table.columns]
        exists = changes.op != ord("D")
        events = [self._events_of(changes, [changes.new[index] for index in indexes], exists, alive=True)]
        if changes.old is not None:
            events.append(self._events_of(changes, [changes.old[index] for index in indexes], changes.old_kind != 0, alive=False))
        return [part for part in events if part.num_rows]

    def _events_of(self, changes: Changes, columns: Sequence[Sent], mask: Mask, *, alive: bool) -> pa.Table:
        selected = pa.array(mask)
        texts = [_as_here(column.values.filter(selected), kind) for column, kind in zip(columns, self.table.kinds, strict=True)]
        unsent = [np.zeros(len(mask), np.bool_) if column.unchanged is None else column.unchanged for column in columns]
        order = changes.seq[mask] * 2 + alive
        marks = _marks(texts, [is_unsent[mask] for is_unsent in unsent]) if alive else pa.nulls(len(order), pa.string())
        key = _join_texts([texts[index] for index in self.table.key], [self.table.bare[index] for index in self.table.key])
        values = _values(texts) if alive and self._room > 0 else pa.nulls(len(order), pa.string())
        self._room -= values.nbytes if alive else 0
        return pa.table([key, pa.array(order), pa.array(np.full(len(order), alive)), marks, values], schema=EVENTS)


def _as_here(texts: pa.Array, kind: tuple[int, int] | None) -> pa.Array:
    """Convert texts of the publisher's type to the output of this node's type."""
    return texts.cast(pa.string()) if kind is None else write_text(read_text(texts, *kind), kind[0])


def _join_texts(texts: Sequence[pa.Array], bare: Sequence[bool]) -> pa.Array:
    """Join texts as `digest.joined` does."""
    parts = []
    for text, is_bare in zip(texts, bare, strict=True):
        value = pc.fill_null(text, "")
        length = pc.fill_null(pc.cast(pc.utf8_length(text), pa.string()), "")
        parts += [value, ","] if is_bare else [length, ":", value]
    return pc.binary_join_element_wise(*parts, "")


def _marks(texts: Sequence[pa.Array], unsent: Sequence[Mask]) -> pa.Array:
    """Return the marks as `digest.marks` does, with * for values that were not sent."""
    value_texts = pa.table([*texts, *map(pa.array, unsent)], names=[f"{letter}{n}" for letter in "tu" for n in range(len(texts))])  # noqa: F841 (DuckDB reads it)
    words = [f"CASE WHEN u{n} THEN '*' WHEN t{n} IS NULL THEN '-' ELSE substr(md5(t{n}), 1, {SHORT}) END" for n in range(len(texts))]
    with duckdb.connect() as database:
        result = database.execute(f"SELECT concat_ws(',', {', '.join(words)}) AS m FROM value_texts").to_arrow_table()
        assert result is not None
        return result["m"].combine_chunks().cast(pa.string())


def _values(texts: Sequence[pa.Array]) -> pa.Array:
    """Return the values as `digest.values_of` does."""
    value_texts = pa.table([*texts], names=[f"t{n}" for n in range(len(texts))])  # noqa: F841 (DuckDB reads it)
    with duckdb.connect() as database:
        words = ", ".join(f"t{n}" for n in range(len(texts)))
        result = database.execute(f"SELECT CAST(to_json([{words}]) AS VARCHAR) AS v FROM value_texts").to_arrow_table()
        assert result is not None
        return result["v"].combine_chunks().cast(pa.string())
