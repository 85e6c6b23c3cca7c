"""The comparison of a table: the texts that are hashed, the queries for the publisher, and the difference of two digests. No I/O.

A row is the text forms of its published columns, combined so that no two rows have the same text. A text that may contain any character
follows its length. The text of a number, a date, a time, a uuid or a bytea, which has no comma and is never empty, is followed by a comma:

    (7, NULL, 'a', NULL, 'b,')  →  7,,1:a:2:b,      (columns int, int, text, text, text)

The row's hash is the md5 of that. Its key determines its range: for an integer, the remainder of a division by a prime; for any other key,
the first hexadecimal digits of the md5 of its text. A range's digest is the number of its rows and the sum of 48 bits of their hashes. So
rows may be added in any order, on any number of machines, and collations do not matter. Two different ranges have the same digest once in
2^48. A table without a key is compared by the hashes of its rows alone, which are counted: the key is then the whole row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.sql.names import quote_ident
from headgate.types import registry as t
from headgate.walreceiver.connection import literal

DIGITS = 12
"""Digits of a row's hash in the sum: 48 bits, of which the sum of 32,768 rows fits into 63 bits."""
SHORT = 12
"""Digits of a column's hash, by which the columns that differ are found."""
ARGUMENTS = 90
"""Limit of the arguments in a call. PostgreSQL's functions accept 100."""
RANGE_ROWS = 1_000
"""The approximate number of rows that a range should have."""
PRIMES = {1: 13, 2: 251, 3: 4_093, 4: 65_521}
"""The prime for each number of digits that would otherwise name a range. A prime also spreads keys with a common step."""
BARE = frozenset(
    {
        *(t.BOOL, t.INT2, t.INT4, t.INT8, t.OID, t.FLOAT4, t.FLOAT8, t.NUMERIC, t.UUID, t.BYTEA),
        *(t.DATE, t.TIME, t.TIMETZ, t.TIMESTAMP, t.TIMESTAMPTZ, t.INTERVAL),
    }
)
"""The types whose texts have no comma and are never empty."""
DIGESTS = pa.schema([("range", pa.string()), ("rows", pa.int64()), ("sum", pa.int64())])
ROWS = pa.schema([("key", pa.string()), ("columns", pa.string())])
VALUES = pa.schema([("key", pa.string()), ("values", pa.string())])
"""`values`: the texts of a row's columns as a JSON array."""
Values = dict[str, tuple[str | None, ...]]
"""The texts of a row's columns, by the text of its key."""


@dataclass(frozen=True)
class Compared:
    """A table to compare: its columns, their text forms at the publisher (`theirs`) and here (`ours`), the indexes of the key columns.

    `source`: FROM and WHERE of the publisher's rows; `target`: FROM of the rows here. `key` is empty if only the whole row identifies a
    row. `kinds`: type and modifier here of the columns whose type differs at the publisher, else None. `bare`: columns whose text needs no
    length. `integers`: columns that are integers on both sides.
    """

    schema: str
    name: str
    columns: tuple[str, ...]
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    key: tuple[int, ...]
    source: str
    target: str
    kinds: tuple[tuple[int, int] | None, ...]
    bare: tuple[bool, ...]
    integers: tuple[bool, ...]
    digits: int = 2

    @property
    def number(self) -> str | None:
        """Return the key column whose number determines the range, or None if the key is not a single integer."""
        return self.columns[self.key[0]] if len(self.key) == 1 and self.integers[self.key[0]] else None

    @property
    def ranges(self) -> int:
        return 16**self.digits if self.number is None else PRIMES[self.digits]


def digits_for(rows: int) -> int:
    """Return how many digits of the key's hash name a range of a table with this many rows."""
    return max(1, min(4, (max(rows, 1) // RANGE_ROWS).bit_length() // 4 + 1))


def joined(texts: Sequence[str], bare: Sequence[bool]) -> str:
    """Return the expression that joins several texts into one (see the module).

    >>> joined(["a::text", "b::text"], [True, False])
    "concat(a::text, ',', length(b::text), ':', b::text)"
    """
    words: list[str] = []
    for text, is_bare in zip(texts, bare, strict=True):
        words += (text, "','") if is_bare else (f"length({text})", "':'", text)
    return _concatenate(words) if words else "''"  # a table without columns


def marks(texts: Sequence[str]) -> str:
    """Return the expression of a short hash of each text, separated by commas; - for NULL."""
    words = [f"coalesce(substr(md5({text}), 1, {SHORT}), '-')" for text in texts] or ["''"]
    calls = [f"concat_ws(',', {', '.join(words[start : start + ARGUMENTS])})" for start in range(0, len(words), ARGUMENTS)]
    return calls[0] if len(calls) == 1 else f"concat_ws(',', {', '.join(calls)})"


def _concatenate(words: Sequence[str]) -> str:
    while len(words) > ARGUMENTS:
        words = [f"concat({', '.join(words[start : start + ARGUMENTS])})" for start in range(0, len(words), ARGUMENTS)]
    return f"concat({', '.join(words)})"


def of_key(table: Compared, texts: Sequence[str]) -> str:
    """Return the text of the key of a row whose columns have these texts."""
    indexes = table.key or range(len(texts))
    return joined([texts[index] for index in indexes], [table.bare[index] for index in indexes])


def of_row(table: Compared, texts: Sequence[str]) -> str:
    """Return the hash of a row whose columns have these texts."""
    return f"md5({joined(texts, table.bare)})"


def range_of(table: Compared, texts: Sequence[str]) -> str:
    """Return the range of a row: a number if `number` names a column, otherwise a text."""
    if table.number is not None:
        return f"abs(mod({quote_ident(table.number)}, {PRIMES[table.digits]}))"
    return f"substr(md5({of_key(table, texts)}), 1, {table.digits})"


def digests_query(table: Compared, without: Sequence[str]) -> str:
    """Return the query for the publisher's ranges: (range, rows, sum). `without`: hashes of the keys to exclude."""
    key = f", md5({of_key(table, table.theirs)}) AS k" if without else ""
    hashed = f"SELECT {range_of(table, table.theirs)} AS range, {of_row(table, table.theirs)} AS r{key} {table.source}"
    exclusion = f" WHERE NOT EXISTS (SELECT FROM unnest({_list(without)}) AS u(h) WHERE u.h = d.k)" if without else ""
    number = f"('x' || substr(r, 1, {DIGITS}))::bit({DIGITS * 4})::bigint"
    return f"SELECT range, count(*), sum({number}) FROM ({hashed}) AS d{exclusion} GROUP BY 1"


def rows_query(table: Compared, ranges: Sequence[str]) -> str:
    """Return the query for the publisher's rows of some ranges: (key, columns)."""
    words = f"{of_key(table, table.theirs)} AS k, {marks(table.theirs)} AS c, {range_of(table, table.theirs)} AS range"
    return f"SELECT k, c FROM (SELECT {words} {table.source}) AS d WHERE range = ANY ({_ranges(table, ranges)})"


def values_query(table: Compared, ranges: Sequence[str], hashes: Sequence[str]) -> str:
    """Return the query for the publisher's rows in these ranges whose keys have these hashes: (key, values)."""
    words = f"{of_key(table, table.theirs)} AS k, {values_of(table.theirs)} AS v, {range_of(table, table.theirs)} AS range"
    only = f"range = ANY ({_ranges(table, ranges)}) AND md5(k) = ANY ({_list(hashes)})"
    return f"SELECT k, v FROM (SELECT {words} {table.source}) AS d WHERE {only}"


def values_of(texts: Sequence[str]) -> str:
    """Return the expression of a JSON array of texts."""
    return f"array_to_json(ARRAY[{', '.join(texts)}]::text[])::text"


def copy_query(table: Compared, ranges: Sequence[str]) -> str:
    """Return the query for the publisher's rows of some or all ranges: hashes of key and row, and the columns as COPY sends them."""
    columns = [f"md5({of_key(table, table.theirs)})", of_row(table, table.theirs), *map(quote_ident, table.columns)]
    only = "" if len(ranges) == table.ranges else f" WHERE {range_of(table, table.theirs)} = ANY ({_ranges(table, ranges)})"
    return f"SELECT {', '.join(columns)} FROM (SELECT * {table.source}) AS d{only}"


def _ranges(table: Compared, ranges: Sequence[str]) -> str:
    return f"{_list(ranges)}::bigint[]" if table.number is not None else _list(ranges)


def _list(texts: Sequence[str]) -> str:
    return f"{literal('{' + ','.join(texts) + '}')}::text[]"


def hashes_of(keys: Sequence[str]) -> list[str]:
    """Return the hashes of the texts of keys, as both sides compute them."""
    return [hashlib.md5(key.encode(), usedforsecurity=False).hexdigest() for key in keys]


def differing(theirs: pa.Table, ours: pa.Table) -> list[str]:
    """Return the ranges whose digests on the two sides differ."""
    both = theirs.join(ours, "range", join_type="full outer", left_suffix="_1", right_suffix="_2")
    is_equal = pc.and_(pc.equal(both["rows_1"], both["rows_2"]), pc.equal(both["sum_1"], both["sum_2"]))
    return sorted(both.filter(pc.invert(pc.fill_null(is_equal, False)))["range"].to_pylist())


@dataclass(frozen=True)
class RowDifference:
    """One row that differs. `what`: missing, extra or different (here); `columns`: those that differ.

    `text`: the text of its key. `theirs`, `ours`: the values of both sides, as a JSON object of texts; None if they are not known or not
    requested.
    """

    what: str
    key: str
    columns: tuple[str, ...] = ()
    text: str = field(default="", compare=False)
    theirs: str | None = None
    ours: str | None = None

    def with_values(self, table: Compared, theirs: Values, ours: Values) -> RowDifference:
        """Return the difference with the values of the columns that differ, or of all columns if only one side has the row."""
        sides = ((theirs, self.what != "extra"), (ours, self.what != "missing"))
        shown = [self._as_json(table, values[self.text]) if has and self.text in values else None for values, has in sides]
        return replace(self, theirs=shown[0], ours=shown[1])

    def _as_json(self, table: Compared, values: Sequence[str | None]) -> str:
        named = zip(table.columns, values, strict=True)
        return json.dumps({name: value for name, value in named if not self.columns or name in self.columns}, ensure_ascii=False)


def compared(table: Compared, theirs: pa.Table, ours: pa.Table) -> Iterator[RowDifference]:
    """Yield the differences of two sets of rows (key, columns), by key. A column whose mark is * is not compared.

    Rows of a table without a key are counted.
    """
    their_counts, our_counts = _count_rows(theirs), _count_rows(ours)
    both = their_counts.join(
        our_counts, ["key", "columns"] if not table.key else ["key"], join_type="full outer", left_suffix="_1", right_suffix="_2"
    )
    if not table.key:
        both = both.append_column("columns_1", both["columns"]).append_column("columns_2", both["columns"])
    zero = pa.scalar(0, pa.int64())
    their_count, our_count = pc.fill_null(both["n_1"], zero), pc.fill_null(both["n_2"], zero)
    is_equal = pc.and_(pc.equal(their_count, our_count), pc.fill_null(pc.equal(both["columns_1"], both["columns_2"]), False))
    for row in both.filter(pc.invert(is_equal)).sort_by("key").to_pylist():
        shown = key_shown(table, row["key"])
        missing = (row["n_1"] or 0) - (row["n_2"] or 0)
        if missing:
            yield from [RowDifference("missing" if missing > 0 else "extra", shown, text=row["key"])] * abs(missing)
        elif names := _names(table, row["columns_1"], row["columns_2"]):
            yield RowDifference("different", shown, names, row["key"])


def _count_rows(rows: pa.Table) -> pa.Table:
    counted = rows.group_by(["key", "columns"]).aggregate([([], "count_all")])
    return counted.rename_columns(["key", "columns", "n"])


def _names(table: Compared, their_marks: str, our_marks: str) -> tuple[str, ...]:
    marks_of = their_marks.split(","), our_marks.split(",")
    if {len(column_marks) for column_marks in marks_of} != {len(table.columns)}:
        raise _invalid()
    marked = zip(table.columns, *marks_of, strict=True)
    return tuple(name for name, their_mark, our_mark in marked if their_mark != our_mark and "*" not in (their_mark, our_mark))


def key_shown(table: Compared, text: str) -> str:
    """Return the key as PostgreSQL's errors show it, or the row if there is no key. Raise 08P01 for a malformed text.

    >>> key_shown(Compared("s", "t", ("a", "b"), (), (), (0, 1), "", "", (), (True, False), (True, False)), "7,1:x")
    '(a, b)=(7, x)'
    """
    indexes = table.key or range(len(table.columns))
    shown = ["null" if value is None else value for value in _values(table, text)]
    return f"({', '.join(table.columns[index] for index in indexes)})=({', '.join(shown)})"


def values_of_row(table: Compared, text: str) -> tuple[str | None, ...]:
    """Return the texts of a row's columns, from the text of a key that is the whole row. Raise 08P01 as `key_shown` does."""
    assert not table.key
    return tuple(_values(table, text))


def values_of_json(table: Compared, text: str) -> tuple[str | None, ...]:
    """Return the texts of a row's columns, from the output of `values_of`. Raise 08P01 if it is malformed."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise _invalid() from error
    if not isinstance(values, list) or len(values) != len(table.columns) or not all(isinstance(value, str | None) for value in values):
        raise _invalid()
    return tuple(values)


def _values(table: Compared, text: str) -> list[str | None]:
    """Return the values that are joined in the text of a key."""
    values, offset = [], 0
    for index in table.key or range(len(table.columns)):
        value, offset = (_bare if table.bare[index] else _read_value)(text, offset)
        values.append(value)
    if offset != len(text):
        raise _invalid()
    return values


def _bare(text: str, at: int) -> tuple[str | None, int]:
    """Return the value from an offset up to a comma, and the offset of the next value."""
    comma = text.find(",", at)
    if comma < 0:
        raise _invalid()
    return text[at:comma] or None, comma + 1


def _read_value(text: str, at: int) -> tuple[str | None, int]:
    """Return the value whose length is at an offset, and the offset of the next value."""
    colon = text.find(":", at)
    if colon < 0 or not (text[at:colon] or "0").isdecimal():
        raise _invalid()
    if colon == at:
        return None, colon + 1
    end = colon + 1 + int(text[at:colon])
    return text[colon + 1 : end], end


def _invalid() -> PostgresError:
    return PostgresError("08P01", "invalid response from publisher")
