"""Applies a batch of changes in order to the keys that it names: the exact meaning, for batches of up to some ten thousand changes.

This is what PostgreSQL's apply worker does one change at a time (manual, 31.5 Conflicts), on keys and row numbers only:

    INSERT  of an existing key           conflict: the batch is rejected
    UPDATE  of a missing key             skipped
    UPDATE  to another, existing key     conflict
    DELETE  of a missing key             skipped
    TRUNCATE                             no key exists any longer

With `many`, a key identifies several equal rows (REPLICA IDENTITY FULL): each UPDATE or DELETE changes one of them, INSERT never conflicts.
Traced: stored {1: a}; U 1→tmp, U 2→1 (2 does not exist: skipped), U tmp→2: the stored row of 1 ends under key 2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass
class Row:
    """A row during the replay.

    `number` counts the rows: first the stored ones, then those that the batch inserts. `stored` is its index among the stored rows (None:
    inserted by the batch). `versions` are the indexes of the changes whose new rows it got, oldest first. `home` is the key under which it
    is stored, `key` its current key.
    """

    number: int
    stored: int | None
    versions: list[int] = field(default_factory=list)
    deleted: bool = False
    key: Hashable = None
    home: Hashable = None


@dataclass(frozen=True)
class Conflict:
    """The first change that meets an existing key: its index in the batch."""

    change: int


@dataclass
class Replayed:
    """The stored rows (by index, changed or deleted only) and the new ones.

    `skipped`: the changes whose row does not exist. `rows`: the number of the row of each change, -1 if there is none, up to a conflict.
    """

    stored: list[Row]
    inserted: list[Row]
    skipped: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    conflict: Conflict | None = None

    @property
    def missing(self) -> int:
        return len(self.skipped)


def replay(stored: Iterable[Hashable], changes: Iterable[tuple[str, Hashable | None, Hashable | None]], *, many: bool = False) -> Replayed:
    """Apply changes (op, old key, new key) to the stored keys. The old key of an UPDATE is None if the key did not change."""
    table: dict[Hashable, list[Row]] = {}
    rows = []
    for index, key in enumerate(stored):
        row = Row(index, index, key=key, home=key)
        rows.append(row)
        table.setdefault(key, []).append(row)
    result, count = Replayed([], []), len(rows)
    for index, (op, old, new) in enumerate(changes):
        held = table.get(new if old is None or op == "I" else old)
        if op == "I":
            if held and not many:
                result.conflict = Conflict(index)
                break
            row = Row(count, None, [index], key=new)
            count += 1
            table.setdefault(new, []).append(row)
            result.inserted.append(row)
        elif op == "T":
            for row in (row for named in table.values() for row in named):
                row.deleted = True
            table.clear()
            result.rows.append(-1)
            continue
        elif not held:
            result.skipped.append(index)
            result.rows.append(-1)
            continue
        elif op == "D":
            row = held.pop(0)
            row.deleted = True
        else:
            row = held[0]
            if old is not None and old != new:
                if not many and table.get(new):
                    result.conflict = Conflict(index)
                    break
                del held[0]
                table.setdefault(new, []).append(row)
            row.versions.append(index)
            row.key = new
        result.rows.append(row.number)
    result.stored = [row for row in rows if row.deleted or row.versions]
    result.inserted = [row for row in result.inserted if not row.deleted]
    return result


def keys(columns: list[list[object]], count: int) -> Iterator[Hashable]:
    """Return row-wise keys of canonical key columns. NaN equals NaN."""
    if len(columns) == 1:
        return (_hashable(v) for v in columns[0])
    if not columns:
        return iter([()] * count)
    return (tuple(_hashable(v) for v in row) for row in zip(*columns, strict=True))


def listed(column: pa.Array) -> list[object]:
    """Return a key column as Python values. Dates and times are numbers, because Python has no year 10000."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[object] = column.to_pylist()
    return values


def _hashable(value: object) -> Hashable:
    return "NaN" if value != value else value  # noqa: PLR0124
