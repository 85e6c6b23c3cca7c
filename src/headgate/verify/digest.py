"""How a table is compared: texts that are hashed, the queries that do it at the publisher, and what two digests differ in. No I/O.

A row is the text forms of its published columns, so that no two rows have one text. A text that may hold anything stands behind its
length; that of a number, a date, a time, a uuid or a bytea, which holds no comma and is never empty, before a comma:

    (7, NULL, 'a', NULL, 'b,')  →  7,,1:a:2:b,      (columns int, int, text, text, text)

md5 of that is the row's hash. Which range the row lies in is said by its key: an integer by what is left of it behind a division by a
prime, any other by the first hexadecimal digits of the md5 of its text. A range's digest is the number of its rows and the sum of 48 bits
of their hashes: rows may be added in any order, on any number of machines, and no collation plays a part. Two ranges that differ have one
digest once in 2^48. A table without a key is compared by the hashes of its rows alone, which are counted: there the key is the whole row.
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
"""Of a row's hash, in the sum: 48 bits, of which 32,768 rows a range fit into 63."""
SHORT = 12
"""Digits of a column's hash by which the columns that differ are found."""
ARGUMENTS = 90
"""PostgreSQL's functions take 100."""
RANGE_ROWS = 1_000
"""Rows that a range should have about."""
PRIMES = {1: 13, 2: 251, 3: 4_093, 4: 65_521}
"""By the digits that name a range otherwise: keys that have a step in common are spread by a prime all the same."""
BARE = frozenset(
    {
        *(t.BOOL, t.INT2, t.INT4, t.INT8, t.OID, t.FLOAT4, t.FLOAT8, t.NUMERIC, t.UUID, t.BYTEA),
        *(t.DATE, t.TIME, t.TIMETZ, t.TIMESTAMP, t.TIMESTAMPTZ, t.INTERVAL),
    }
)
"""The types whose texts have no comma and are never empty."""
INTEGERS = frozenset({t.INT2, t.INT4, t.INT8})
DIGESTS = pa.schema([("range", pa.string()), ("rows", pa.int64()), ("sum", pa.int64())])
ROWS = pa.schema([("key", pa.string()), ("columns", pa.string())])
VALUES = pa.schema([("key", pa.string()), ("values", pa.string())])
"""`values`: the texts of a row's columns as a JSON array."""
Values = dict[str, tuple[str | None, ...]]
"""The texts of a row's columns, by the text of its key."""


@dataclass(frozen=True)
class Compared:
    """A table as it is compared: its columns, their text forms at the publisher (`theirs`) and here (`ours`), the places of the key's.

    `source`: FROM and WHERE of the publisher's rows, `target`: FROM of those here. `key` is empty where nothing but the whole row names a
    row. `kinds`: type and modifier here of the columns whose type is another at the publisher, else None. `bare`: whose text needs no
    length; `integers`: which are integers on both sides.
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
        """The column by whose number the ranges are told: the one of the key, where that is an integer."""
        return self.columns[self.key[0]] if len(self.key) == 1 and self.integers[self.key[0]] else None

    @property
    def ranges(self) -> int:
        """How many ranges there are at most."""
        return 16**self.digits if self.number is None else PRIMES[self.digits]


def digits_for(rows: int) -> int:
    """How many digits of the key's hash name a range of a table of so many rows."""
    return max(1, min(4, (max(rows, 1) // RANGE_ROWS).bit_length() // 4 + 1))


def joined(texts: Sequence[str], bare: Sequence[bool]) -> str:
    """The expression of several texts in one (see the module).

    >>> joined(["a::text", "b::text"], [True, False])
    "concat(a::text, ',', length(b::text), ':', b::text)"
    """
    words: list[str] = []
    for text, is_bare in zip(texts, bare, strict=True):
        words += (text, "','") if is_bare else (f"length({text})", "':'", text)
    return _call("concat", words) if words else "''"  # a table without columns


def marks(texts: Sequence[str]) -> str:
    """The expression of a short hash of each text, with commas between; - for NULL."""
    words = [f"coalesce(substr(md5({text}), 1, {SHORT}), '-')" for text in texts] or ["''"]
    whole = [f"concat_ws(',', {', '.join(words[at : at + ARGUMENTS])})" for at in range(0, len(words), ARGUMENTS)]
    return whole[0] if len(whole) == 1 else f"concat_ws(',', {', '.join(whole)})"


def _call(function: str, words: Sequence[str]) -> str:
    while len(words) > ARGUMENTS:
        words = [f"{function}({', '.join(words[at : at + ARGUMENTS])})" for at in range(0, len(words), ARGUMENTS)]
    return f"{function}({', '.join(words)})"


def of_key(table: Compared, texts: Sequence[str]) -> str:
    """The text of the key of a row whose columns have these texts."""
    places = table.key or range(len(texts))
    return joined([texts[place] for place in places], [table.bare[place] for place in places])


def of_row(table: Compared, texts: Sequence[str]) -> str:
    """The hash of a row whose columns have these texts."""
    return f"md5({joined(texts, table.bare)})"


def range_of(table: Compared, texts: Sequence[str]) -> str:
    """Which range the row lies in: a number where `number` names a column, else a text."""
    if table.number is not None:
        return f"abs(mod({quote_ident(table.number)}, {PRIMES[table.digits]}))"
    return f"substr(md5({of_key(table, texts)}), 1, {table.digits})"


def digests_query(table: Compared, without: Sequence[str]) -> str:
    """The publisher's ranges: (range, rows, sum). `without`: hashes of the keys that are left out."""
    key = f", md5({of_key(table, table.theirs)}) AS k" if without else ""
    hashed = f"SELECT {range_of(table, table.theirs)} AS range, {of_row(table, table.theirs)} AS r{key} {table.source}"
    left_out = f" WHERE NOT EXISTS (SELECT FROM unnest({_list(without)}) AS u(h) WHERE u.h = d.k)" if without else ""
    number = f"('x' || substr(r, 1, {DIGITS}))::bit({DIGITS * 4})::bigint"
    return f"SELECT range, count(*), sum({number}) FROM ({hashed}) AS d{left_out} GROUP BY 1"


def rows_query(table: Compared, ranges: Sequence[str]) -> str:
    """The publisher's rows of some ranges: (key, columns)."""
    words = f"{of_key(table, table.theirs)} AS k, {marks(table.theirs)} AS c, {range_of(table, table.theirs)} AS range"
    return f"SELECT k, c FROM (SELECT {words} {table.source}) AS d WHERE range = ANY ({_ranges(table, ranges)})"


def values_query(table: Compared, ranges: Sequence[str], hashes: Sequence[str]) -> str:
    """The publisher's rows of which the ranges and the hashes of their keys are given: (key, values)."""
    words = f"{of_key(table, table.theirs)} AS k, {values_of(table.theirs)} AS v, {range_of(table, table.theirs)} AS range"
    only = f"range = ANY ({_ranges(table, ranges)}) AND md5(k) = ANY ({_list(hashes)})"
    return f"SELECT k, v FROM (SELECT {words} {table.source}) AS d WHERE {only}"


def values_of(texts: Sequence[str]) -> str:
    """The expression of a JSON array of texts."""
    return f"array_to_json(ARRAY[{', '.join(texts)}]::text[])::text"


def copy_query(table: Compared, ranges: Sequence[str]) -> str:
    """The publisher's rows of some ranges, all where they are all of them: hashes of key and row, and the columns as COPY sends them."""
    columns = [f"md5({of_key(table, table.theirs)})", of_row(table, table.theirs), *map(quote_ident, table.columns)]
    only = "" if len(ranges) == table.ranges else f" WHERE {range_of(table, table.theirs)} = ANY ({_ranges(table, ranges)})"
    return f"SELECT {', '.join(columns)} FROM (SELECT * {table.source}) AS d{only}"


def _ranges(table: Compared, ranges: Sequence[str]) -> str:
    return f"{_list(ranges)}::bigint[]" if table.number is not None else _list(ranges)


def _list(texts: Sequence[str]) -> str:
    return f"{literal('{' + ','.join(texts) + '}')}::text[]"


def hashes_of(keys: Sequence[str]) -> list[str]:
    """The hashes of the texts of keys, as both sides compute them."""
    return [hashlib.md5(key.encode(), usedforsecurity=False).hexdigest() for key in keys]


def differing(theirs: pa.Table, ours: pa.Table) -> list[str]:
    """The ranges of two sets of digests that are not equal."""
    both = theirs.join(ours, "range", join_type="full outer", left_suffix="_1", right_suffix="_2")
    same = pc.and_(pc.equal(both["rows_1"], both["rows_2"]), pc.equal(both["sum_1"], both["sum_2"]))
    return sorted(both.filter(pc.invert(pc.fill_null(same, False)))["range"].to_pylist())


@dataclass(frozen=True)
class RowDifference:
    """One row that is not the same: `what` is missing, extra or different (here); `columns` those that differ.

    `text` is that of its key. `theirs`, `ours`: what both sides have, as a JSON object of texts; None where it is not
    known or not asked for.
    """

    what: str
    key: str
    columns: tuple[str, ...] = ()
    text: str = field(default="", compare=False)
    theirs: str | None = None
    ours: str | None = None

    def with_values(self, table: Compared, theirs: Values, ours: Values) -> RowDifference:
        """With the values of the columns that differ, or of all columns of a row that one side has."""
        sides = ((theirs, self.what != "extra"), (ours, self.what != "missing"))
        shown = [self._shown(table, values[self.text]) if has and self.text in values else None for values, has in sides]
        return replace(self, theirs=shown[0], ours=shown[1])

    def _shown(self, table: Compared, values: Sequence[str | None]) -> str:
        named = zip(table.columns, values, strict=True)
        return json.dumps({name: value for name, value in named if not self.columns or name in self.columns}, ensure_ascii=False)


def compared(table: Compared, theirs: pa.Table, ours: pa.Table) -> Iterator[RowDifference]:
    """What two sets of rows (key, columns) differ in, by key; a column whose mark is * is not compared.

    Rows of a table without a key are counted.
    """
    one, other = _counted(theirs), _counted(ours)
    both = one.join(other, ["key", "columns"] if not table.key else ["key"], join_type="full outer", left_suffix="_1", right_suffix="_2")
    if not table.key:
        both = both.append_column("columns_1", both["columns"]).append_column("columns_2", both["columns"])
    zero = pa.scalar(0, pa.int64())
    there, here = pc.fill_null(both["n_1"], zero), pc.fill_null(both["n_2"], zero)
    same = pc.and_(pc.equal(there, here), pc.fill_null(pc.equal(both["columns_1"], both["columns_2"]), False))
    for row in both.filter(pc.invert(same)).sort_by("key").to_pylist():
        shown = key_shown(table, row["key"])
        missing = (row["n_1"] or 0) - (row["n_2"] or 0)
        if missing:
            yield from [RowDifference("missing" if missing > 0 else "extra", shown, text=row["key"])] * abs(missing)
        elif names := _names(table, row["columns_1"], row["columns_2"]):
            yield RowDifference("different", shown, names, row["key"])


def _counted(rows: pa.Table) -> pa.Table:
    counted = rows.group_by(["key", "columns"]).aggregate([([], "count_all")])
    return counted.rename_columns(["key", "columns", "n"])


def _names(table: Compared, one: str, other: str) -> tuple[str, ...]:
    marks_of = one.split(","), other.split(",")
    if {len(each) for each in marks_of} != {len(table.columns)}:
        raise _invalid()
    marked = zip(table.columns, *marks_of, strict=True)
    return tuple(name for name, a, b in marked if a != b and "*" not in (a, b))


def key_shown(table: Compared, text: str) -> str:
    """The key as PostgreSQL's errors show it; of a table without a key, its row. 08P01 for a text that is none.

    >>> key_shown(Compared("s", "t", ("a", "b"), (), (), (0, 1), "", "", (), (True, False), (True, False)), "7,1:x")
    '(a, b)=(7, x)'
    """
    places = table.key or range(len(table.columns))
    shown = ["null" if value is None else value for value in _values(table, text)]
    return f"({', '.join(table.columns[place] for place in places)})=({', '.join(shown)})"


def values_of_row(table: Compared, text: str) -> tuple[str | None, ...]:
    """The texts of a row's columns, by the text of a key that is the whole row. 08P01 as `key_shown`."""
    assert not table.key
    return tuple(_values(table, text))


def values_of_json(table: Compared, text: str) -> tuple[str | None, ...]:
    """The texts of a row's columns, by what `values_of` gives. 08P01 for what it does not."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _invalid() from error
    if not isinstance(found, list) or len(found) != len(table.columns) or not all(isinstance(each, str | None) for each in found):
        raise _invalid()
    return tuple(found)


def _values(table: Compared, text: str) -> list[str | None]:
    """What was joined in the text of a key."""
    values, at = [], 0
    for place in table.key or range(len(table.columns)):
        value, at = (_bare if table.bare[place] else _measured)(text, at)
        values.append(value)
    if at != len(text):
        raise _invalid()
    return values


def _bare(text: str, at: int) -> tuple[str | None, int]:
    """The value that begins at a place and ends before a comma, and where the next begins."""
    comma = text.find(",", at)
    if comma < 0:
        raise _invalid()
    return text[at:comma] or None, comma + 1


def _measured(text: str, at: int) -> tuple[str | None, int]:
    """The value whose length stands at a place, and where the next begins."""
    colon = text.find(":", at)
    if colon < 0 or not (text[at:colon] or "0").isdecimal():
        raise _invalid()
    if colon == at:
        return None, colon + 1
    end = colon + 1 + int(text[at:colon])
    return text[colon + 1 : end], end


def _invalid() -> PostgresError:
    return PostgresError("08P01", "invalid response from publisher")
