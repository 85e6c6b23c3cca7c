"""Identify the columns of a Relation message: their attribute numbers on the publisher.

The message has names and types in the order of the attribute numbers, but not the numbers. The publisher's catalog has them, but it may be
ahead of the stream: columns may since have been renamed, retyped or dropped (dropped columns keep their numbers), or are not in the stream
yet. So the listed columns are aligned with the numbers in order, with the fewest contradictions to the catalog and to the previously known
columns. Called by `schema_evolution`.

Example: known 1 id, 2 a, 3 b; the catalog has 1 id, 2 b, 3 a; the message lists id, b, a. Their numbers are 1, 2, 3, and a and b swapped
their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from headgate.catalog.replication.subscription_column import FollowedColumn
from headgate.walreceiver.definition import DefinedColumn

Listed = tuple[str, int, int]
"""A column of the message: name, type and type modifier."""
_UNKNOWN = 1000.0
"""The cost of a listed column without a number: the catalog keeps the numbers of dropped columns."""


@dataclass(frozen=True)
class Identified:
    """The attribute number of each listed column, None if it has none in the catalog.

    `is_certain`: whether each of them has the name and type that the column had before, or has now. Otherwise the catalog is ahead by
    several alterations of a column, and the numbers are a guess.
    """

    numbers: tuple[int | None, ...]
    is_certain: bool = True


def identify(listed: Sequence[Listed], known: Sequence[FollowedColumn], there: Sequence[DefinedColumn]) -> Identified:
    """Return the attribute numbers of the listed columns.

    `known`: the columns as the stream had them before; `there`: the columns of the catalog, dropped ones too.
    """
    before, now = {column.attnum: column for column in known}, {column.attnum: column for column in there}
    numbers = [number for number in sorted({*before, *now}) if number not in before or not before[number].dropped]
    skipped = [_skip(before.get(number), now.get(number)) for number in numbers]
    costs = [[*accumulate(skipped, initial=0.0)]]
    for row, column in enumerate(listed, 1):
        costs.append([row * _UNKNOWN])
        for at, number in enumerate(numbers, 1):
            paired = costs[row - 1][at - 1] + _pair(column, before.get(number), now.get(number))
            costs[row].append(min(paired, costs[row][at - 1] + skipped[at - 1], costs[row - 1][at] + _UNKNOWN))
    # columns that are not known and come last may not be in the stream yet
    later = [0.0 if number not in before else cost for number, cost in zip(numbers, skipped, strict=True)]
    rest = [*accumulate(reversed(later), initial=0.0)][::-1]
    end = min(range(len(numbers) + 1), key=lambda at: costs[-1][at] + rest[at])
    path = _path(costs, listed, numbers, skipped, end)
    pairs = [_pair(column, before.get(number), now.get(number)) for column, number in zip(listed, path, strict=True) if number is not None]
    left_out = [column for column in known if not column.dropped and column.attnum not in path]
    is_replaced = any((column.name, column.type_oid, column.typmod) in listed for column in left_out)  # or is about to be
    newest = max((number for number in path if number is not None), default=0)
    # a number that was passed over may have been listed and dropped since, and a column that is gone may have been another one's name
    added = [column for number, column in now.items() if max(before, default=0) < number < newest and number not in path]
    is_passed_over = any(column.dropped or not column.generated for column in added)
    is_ambiguous = bool(left_out) and any(number is not None and (number not in now or now[number].dropped) for number in path)
    is_lost = is_passed_over or is_ambiguous or any(_skip(column, now.get(column.attnum)) for column in left_out)
    is_contradicted = None in path or any(cost >= 1 for cost in pairs)
    return Identified(tuple(path), not (is_replaced or is_lost or is_contradicted))


def _path(
    costs: list[list[float]], listed: Sequence[Listed], numbers: Sequence[int], skipped: Sequence[float], end: int
) -> list[int | None]:
    """Return the numbers of the cheapest alignment that uses the first `end` numbers."""
    path: list[int | None] = [None] * len(listed)
    row, at = len(listed), end
    while row:
        if at and costs[row][at] == costs[row][at - 1] + skipped[at - 1]:
            at -= 1
        elif costs[row][at] == costs[row - 1][at] + _UNKNOWN:
            row -= 1
        else:
            row, at = row - 1, at - 1
            path[row] = numbers[at]
    return path


def _skip(before: FollowedColumn | None, now: DefinedColumn | None) -> float:
    """Return the cost of a number that the message does not list. Dropped and generated columns are never listed."""
    if now is None or now.dropped or now.generated:
        return 0.0
    return 1.0 if before is None else 3.0


def _pair(listed: Listed, before: FollowedColumn | None, now: DefinedColumn | None) -> float:
    """Return the cost of a listed column with a number. If two numbers match, that of the existing column is cheaper."""
    name, type_oid, typmod = listed
    is_gone = now is None or now.dropped
    best = 3.0
    for column in (before, None if is_gone else now):
        if column is not None:
            same_type = (column.type_oid, column.typmod) == (type_oid, typmod)
            best = min(best, (0.0 if same_type else 1.0) if column.name == name else 2.0 if same_type else 3.0)
    return best + 0.5 * is_gone
