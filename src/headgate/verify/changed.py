"""Which rows of a table have changed between two positions of the publisher, and what they are now, by what its stream says.

Called by `verification` with what `publisher.changes` decodes. Rows are named by the text of their key (`digest`), a row that is there is
told by the marks of its columns, * for a value that was not sent because it had not changed (TOAST). What counts is the last that is
said of a key; an UPDATE that moves a row says that its old key is gone, then that the new one is there.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.pgoutput.decode import Changes, DecodedFrames
from headgate.pgoutput.decode import DecodedColumn as Sent
from headgate.types.text.text import read_text, write_text
from headgate.verify.digest import ROWS, SHORT, Compared, Values, hashes_of, values_of_json

EVENTS = pa.schema([("key", pa.string()), ("at", pa.int64()), ("there", pa.bool_()), ("columns", pa.string()), ("values", pa.string())])
"""`values`: of rows that are there, as `digest.VALUES` has them, if they are asked for."""
MOST = 1_000_000
"""Changes of a table that are kept; beyond, the table is compared again from a later position."""
MOST_BYTES = 64 << 20
"""Of values; those of later changes are not known."""
Mask = npt.NDArray[np.bool_]


class Changed:
    """The changed rows of one table."""

    def __init__(self, table: Compared, *, with_values: bool = False) -> None:
        self.table = table
        self._room = MOST_BYTES if with_values else 0
        self.whole = False
        """Whether no key tells what has changed: a TRUNCATE, a table without a key, more changes than are kept."""
        self._events: list[pa.Table] = []
        self._count = 0

    def add(self, decoded: DecodedFrames, until: int) -> None:
        """Notes the changes of transactions that end at or before a position."""
        ends = decoded.transactions.end_lsn
        for each in decoded.truncations:
            named = [(one.schema, one.name) for one in each.relations]
            self.whole |= ends[each.txn] <= until and (self.table.schema, self.table.name) in named
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
        """The keys of the rows that have changed, as text."""
        return list(self._last()["key"].to_pylist())

    def hashes(self) -> list[str]:
        """Their hashes."""
        return hashes_of(self.keys())

    def values(self, keys: Sequence[str]) -> Values:
        """What those of these keys are now that are there and of which it is known."""
        last = self._last()
        known = last.filter(pc.and_(pc.is_in(last["key"], pa.array(keys, pa.string())), pc.is_valid(last["values"]))).select(
            ["key", "values"]
        )
        return {row["key"]: values_of_json(self.table, row["values"]) for row in known.to_pylist()}

    def rows(self) -> pa.Table:
        """Those that are there now (`digest.ROWS`)."""
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
        """The events of some changes: rows that are gone, rows that are there."""
        names = [column.name for column in changes.relation.columns]
        if missing := set(self.table.columns) - set(names):
            raise PostgresError("55000", f'column "{min(missing)}" of table "{self.table.schema}.{self.table.name}" is no longer published')
        places = [names.index(name) for name in self.table.columns]
        there = changes.op != ord("D")
        found = [self._events_of(changes, [changes.new[place] for place in places], there, alive=True)]
        if changes.old is not None:
            found.append(self._events_of(changes, [changes.old[place] for place in places], changes.old_kind != 0, alive=False))
        return [each for each in found if each.num_rows]

    def _events_of(self, changes: Changes, columns: Sequence[Sent], mask: Mask, *, alive: bool) -> pa.Table:
        kept = pa.array(mask)
        texts = [_as_here(column.values.filter(kept), kind) for column, kind in zip(columns, self.table.kinds, strict=True)]
        unsent = [np.zeros(len(mask), np.bool_) if column.unchanged is None else column.unchanged for column in columns]
        at = changes.seq[mask] * 2 + alive
        marks = _marks(texts, [each[mask] for each in unsent]) if alive else pa.nulls(len(at), pa.string())
        key = _joined([texts[place] for place in self.table.key], [self.table.bare[place] for place in self.table.key])
        values = _values(texts) if alive and self._room > 0 else pa.nulls(len(at), pa.string())
        self._room -= values.nbytes if alive else 0
        return pa.table([key, pa.array(at), pa.array(np.full(len(at), alive)), marks, values], schema=EVENTS)


def _as_here(texts: pa.Array, kind: tuple[int, int] | None) -> pa.Array:
    """Texts of the publisher's type as this node's type writes them."""
    return texts.cast(pa.string()) if kind is None else write_text(read_text(texts, *kind), *kind)


def _joined(texts: Sequence[pa.Array], bare: Sequence[bool]) -> pa.Array:
    """As `digest.joined` has it."""
    parts = []
    for text, is_bare in zip(texts, bare, strict=True):
        shown = pc.fill_null(text, "")
        length = pc.fill_null(pc.cast(pc.utf8_length(text), pa.string()), "")
        parts += [shown, ","] if is_bare else [length, ":", shown]
    return pc.binary_join_element_wise(*parts, "")


def _marks(texts: Sequence[pa.Array], unsent: Sequence[Mask]) -> pa.Array:
    """As `digest.marks` has it, and * for what was not sent."""
    given = pa.table([*texts, *map(pa.array, unsent)], names=[f"{letter}{n}" for letter in "tu" for n in range(len(texts))])  # noqa: F841 (DuckDB reads it)
    words = [f"CASE WHEN u{n} THEN '*' WHEN t{n} IS NULL THEN '-' ELSE substr(md5(t{n}), 1, {SHORT}) END" for n in range(len(texts))]
    with duckdb.connect() as database:
        found = database.execute(f"SELECT concat_ws(',', {', '.join(words)}) AS m FROM given").to_arrow_table()
        assert found is not None
        return found["m"].combine_chunks().cast(pa.string())


def _values(texts: Sequence[pa.Array]) -> pa.Array:
    """As `digest.values_of` has it."""
    given = pa.table([*texts], names=[f"t{n}" for n in range(len(texts))])  # noqa: F841 (DuckDB reads it)
    with duckdb.connect() as database:
        words = ", ".join(f"t{n}" for n in range(len(texts)))
        found = database.execute(f"SELECT CAST(to_json([{words}]) AS VARCHAR) AS v FROM given").to_arrow_table()
        assert found is not None
        return found["v"].combine_chunks().cast(pa.string())
