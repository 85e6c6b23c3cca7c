"""How a table is compared: texts that are hashed, the queries that do it at the publisher, and what two digests differ in. No I/O.

A row is the text forms of its published columns, each behind its length, so that no two rows have one text:

    (7, NULL, 'a')  →  1:7 : 1:a      (a NULL has no length)

md5 of that is the row's hash; md5 of the same text of the key alone says in which range the row lies: the first hexadecimal digits
of it. A range's digest is the number of its rows and the sum of 48 bits of their hashes: rows may be added in any order, on any number of
machines, and no collation plays a part. Two ranges that differ have one digest once in 2^48. A table without a key is compared by the
hashes of its rows alone, which are counted: there the key is the whole row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.sql.names import quote_ident
from headgate.walreceiver.connection import literal

DIGITS = 12
"""Of a row's hash, in the sum: 48 bits, of which 32,768 rows a range fit into 63."""
SHORT = 12
"""Digits of a column's hash by which the columns that differ are found."""
ARGUMENTS = 90
"""PostgreSQL's functions take 100."""
RANGE_ROWS = 1_000
"""Rows that a range should have about."""
DIGESTS = pa.schema([("range", pa.string()), ("rows", pa.int64()), ("sum", pa.int64())])
ROWS = pa.schema([("key", pa.string()), ("columns", pa.string())])


@dataclass(frozen=True)
class Compared:
    """A table as it is compared: its columns, their text forms at the publisher (`theirs`) and here (`ours`), the places of the key's.

    `source`: FROM and WHERE of the publisher's rows, `target`: FROM of those here. `key` is empty where nothing but the whole row names a
    row. `kinds`: type and modifier here of the columns whose type is another at the publisher, else None.
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
    digits: int = 2


def digits_for(rows: int) -> int:
    """How many digits of the key's hash name a range of a table of so many rows."""
    return max(1, min(4, (max(rows, 1) // RANGE_ROWS).bit_length() // 4 + 1))


def joined(texts: Sequence[str]) -> str:
    """The expression of several texts in one, each behind its length.

    >>> joined(["a::text"])
    "concat(length(a::text), ':', a::text)"
    """
    words = [word for text in texts for word in (f"length({text})", "':'", text)]
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
    return joined([texts[place] for place in table.key] or texts)


def digests_query(table: Compared, without: Sequence[str]) -> str:
    """The publisher's ranges: (range, rows, sum). `without`: hashes of the keys that are left out."""
    hashed = f"SELECT md5({of_key(table, table.theirs)}) AS k, md5({joined(table.theirs)}) AS r {table.source}"
    left_out = f" WHERE NOT EXISTS (SELECT FROM unnest({_list(without)}) AS u(h) WHERE u.h = d.k)" if without else ""
    number = f"('x' || substr(r, 1, {DIGITS}))::bit({DIGITS * 4})::bigint"
    return f"SELECT substr(k, 1, {table.digits}), count(*), sum({number}) FROM ({hashed}) AS d{left_out} GROUP BY 1"


def rows_query(table: Compared, ranges: Sequence[str]) -> str:
    """The publisher's rows of some ranges: (key, columns)."""
    wanted = f"SELECT {of_key(table, table.theirs)} AS k, {marks(table.theirs)} AS c {table.source}"
    return f"SELECT k, c FROM ({wanted}) AS d WHERE substr(md5(k), 1, {table.digits}) = ANY ({_list(ranges)})"


def copy_query(table: Compared, ranges: Sequence[str]) -> str:
    """The publisher's rows of some ranges, all where they are all of them: hashes of key and row, and the columns as COPY sends them."""
    key = f"md5({of_key(table, table.theirs)})"
    columns = [key, f"md5({joined(table.theirs)})", *map(quote_ident, table.columns)]
    only = "" if len(ranges) == 16**table.digits else f" WHERE substr({key}, 1, {table.digits}) = ANY ({_list(ranges)})"
    return f"SELECT {', '.join(columns)} FROM (SELECT * {table.source}) AS d{only}"


def _list(texts: Sequence[str]) -> str:
    return f"{literal('{' + ','.join(texts) + '}')}::text[]"


def differing(theirs: pa.Table, ours: pa.Table) -> list[str]:
    """The ranges of two sets of digests that are not equal."""
    both = theirs.join(ours, "range", join_type="full outer", left_suffix="_1", right_suffix="_2")
    same = pc.and_(pc.equal(both["rows_1"], both["rows_2"]), pc.equal(both["sum_1"], both["sum_2"]))
    return sorted(both.filter(pc.invert(pc.fill_null(same, False)))["range"].to_pylist())


@dataclass(frozen=True)
class RowDifference:
    """One row that is not the same: `what` is missing, extra or different (here); `columns` those that differ."""

    what: str
    key: str
    columns: tuple[str, ...] = ()


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
            yield from [RowDifference("missing" if missing > 0 else "extra", shown)] * abs(missing)
        elif names := _names(table, row["columns_1"], row["columns_2"]):
            yield RowDifference("different", shown, names)


def _counted(rows: pa.Table) -> pa.Table:
    counted = rows.group_by(["key", "columns"]).aggregate([([], "count_all")])
    return counted.rename_columns(["key", "columns", "n"])


def _names(table: Compared, one: str, other: str) -> tuple[str, ...]:
    marks_of = one.split(","), other.split(",")
    if {len(each) for each in marks_of} != {len(table.columns)}:
        raise PostgresError("08P01", "invalid response from publisher")
    marked = zip(table.columns, *marks_of, strict=True)
    return tuple(name for name, a, b in marked if a != b and "*" not in (a, b))


def key_shown(table: Compared, text: str) -> str:
    """The key as PostgreSQL's errors show it; of a table without a key, its row. 08P01 for a text that is none.

    >>> key_shown(Compared("s", "t", ("a", "b"), (), (), (0,), "", "", ()), "1:7")
    '(a)=(7)'
    """
    values, at = [], 0
    while at < len(text):
        colon = text.find(":", at)
        if colon < 0 or not (text[at:colon] or "0").isdecimal():
            raise PostgresError("08P01", "invalid response from publisher")
        length = int(text[at:colon]) if colon > at else None
        values.append("null" if length is None else text[colon + 1 : colon + 1 + length])
        at = colon + 1 + (length or 0)
    names = [table.columns[place] for place in table.key] or table.columns
    return f"({', '.join(names)})=({', '.join(values)})"
