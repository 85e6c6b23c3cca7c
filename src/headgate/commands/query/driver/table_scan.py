"""Read the columns of one table that a query names, batch by batch, up to `driver_query_memory`.

Called by `answer`, and by `driver_change` for the positions of the rows to change. The columns of the condition are read first. The
other columns are read only in row groups in which a row meets the condition. Files and row groups are skipped by their statistics if a term
of the condition compares a column with a constant. The rows are those that the statement sees: without deleted rows, and with the rows of
its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headgate.commands.query import pushdown
from headgate.commands.query.driver.table_rows import HeldTable
from headgate.expression import builtin, columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Const, Expression, OpExpr, conjuncts, walk
from headgate.storage.delta import file_action, file_statistics
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.delta.rows import RowGroup
from headgate.storage.delta.table_state import TableState
from headgate.storage.write import arrow_row
from headgate.types import registry
from headgate.types.text.text import read_text

_TEXT_WIDTH = 8
"""Estimated size in bytes of a value without a fixed width, before it is read."""
_SKIPPING = frozenset({registry.INT2, registry.INT4, registry.INT8, registry.DATE, registry.TEXT})
"""Column types whose statistics are used to skip files."""
_COMMUTED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Rows:
    """Rows as columns by their keys. `count` is the number of rows, also if there are no columns."""

    columns: dict[str, pa.Array]
    count: int

    def filter(self, passing: pa.BooleanArray) -> Rows:
        """Return the rows for which the mask is true."""
        return Rows({key: column.filter(passing) for key, column in self.columns.items()}, passing.true_count)

    def take(self, places: pa.Array) -> Rows:
        return Rows({key: column.take(places) for key, column in self.columns.items()}, len(places))

    def slice(self, offset: int, count: int | None) -> Rows:
        """Return at most `count` rows after the first `offset` rows."""
        length = max(self.count - offset, 0) if count is None else max(min(self.count - offset, count), 0)
        return Rows({key: column.slice(offset, length) for key, column in self.columns.items()}, length)


def keys_of(expressions: Iterable[Expression]) -> list[str]:
    return list(dict.fromkeys(part.key for expression in expressions for part in walk(expression) if isinstance(part, ColumnRef)))


def read(table: HeldTable, condition: Expression | None, keys: Sequence[str], most: int | None) -> Rows:
    """Return the columns `keys` of the rows that meet the condition, or of the first ones if `most` rows suffice.

    Raise `NotColumnwise` if more than `driver_query_memory` would be read.
    """
    scan = _Scan(table, condition, keys)
    parts: list[Rows] = []
    count = 0
    for part in scan.parts():
        parts.append(part)
        count += part.count
        if most is not None and count >= most:
            break
    return _joined(parts) if parts else Rows({key: pa.array([], scan.types[key]) for key in scan.wanted}, 0)


def positions(table: HeldTable, state: TableState, condition: Expression, most: int) -> pa.Table:
    """Return the rows of a state that meet the condition, with FILE and ROW of each.

    Raise `NotColumnwise` if they are more than `most`, or if more than `driver_query_memory` would be read.
    """
    keys = [column.key for column in table.star]
    scan = _Scan(table, condition, keys, state)
    row = pa.schema([*arrow_row(table.relation), (FILE, pa.string()), (ROW, pa.int64())])
    parts: list[pa.Table] = []
    count = 0
    for rows in scan.parts():
        parts.append(pa.table([rows.columns[key] for key in (*keys, FILE, ROW)], schema=row))
        count += rows.count
        if count > most:
            raise NotColumnwise("many rows")
    return pa.concat_tables(parts) if parts else row.empty_table()


class _Scan:
    """A scan of a table. `first`: the keys of the columns that the condition needs, `rest`: the keys of the other columns.

    With `locked`, a state of a table that the statement has locked, the rows of the files have positions, under the keys FILE and ROW.
    """

    def __init__(self, table: HeldTable, condition: Expression | None, keys: Sequence[str], locked: TableState | None = None) -> None:
        planner, relation = table.planner, table.relation
        self.table, self.condition = table, condition
        fields = zip(table.star, arrow_row(relation), strict=True)
        self.names, self.types = {}, {}
        for column, field in fields:
            self.names[column.key], self.types[column.key] = field.name, field.type
        decisive = [] if condition is None else keys_of([condition])
        self.wanted = list(dict.fromkeys([*decisive, *keys])) or [table.star[0].key]
        self.first = decisive or self.wanted
        self.rest = [key for key in self.wanted if key not in self.first]
        self.is_placed = locked is not None
        self.state, self.pending = planner.transaction.reader.shown(relation) if locked is None else (locked, [])
        self.ranges = [] if condition is None else list(_ranges(condition, self.names))
        for value_range in self.ranges:
            self.state = replace(
                self.state, files=file_statistics.holding(self.state, value_range.column, value_range.least, value_range.most)
            )
        self.left = planner.session.settings.integer("driver_query_memory") * 1024
        widths = [_width(self.types[key]) for key in self.first]
        if sum(map(file_action.records, self.state.files.values())) * sum(widths) > self.left:
            raise NotColumnwise("more than driver_query_memory")

    def parts(self) -> Iterator[Rows]:
        """Yield the rows that meet the condition, one row group after another, then those that are not yet in files."""
        planner, relation = self.table.planner, self.table.relation
        stored = planner.transaction.reader.table(relation)
        for group in stored.groups(self.state):
            if not all(value_range.may_be_in(group) for value_range in self.ranges):
                continue
            first = list(self._pieces(group, self.first))
            passing = [self._passing(rows) for rows in first]
            matching = _joined([rows.filter(mask) for rows, mask in zip(first, passing, strict=True)]) if first else None
            if matching is None or not matching.count:
                continue
            if self.rest:
                last = max(place for place, mask in enumerate(passing) if mask.true_count)
                rest_rows = zip(self._pieces(group, self.rest), passing[: last + 1], strict=False)
                matching = Rows(matching.columns | _joined([rows.filter(mask) for rows, mask in rest_rows]).columns, matching.count)
            if self.is_placed:
                matching.columns[FILE] = pa.repeat(pa.scalar(stored.uri(group.name)), matching.count)
                matching.columns[ROW] = pa.array(group.numbers()).filter(pa.concat_arrays(passing))
            yield matching
        for added in self.pending:
            self._count(added.nbytes)
            columns = self.table.by_key(added)
            rows = Rows({key: columns[key] for key in self.wanted}, added.num_rows)
            yield rows.filter(self._passing(rows))

    def _pieces(self, group: RowGroup, keys: Sequence[str]) -> Iterator[Rows]:
        for batch in group.pieces([self.names[key] for key in keys]):
            self.table.planner.session.check_cancel()
            self._count(batch.nbytes)
            yield Rows(dict(zip(keys, batch.columns, strict=True)), batch.num_rows)

    def _count(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise NotColumnwise("more than driver_query_memory")

    def _passing(self, rows: Rows) -> pa.BooleanArray:
        if self.condition is None:
            return pa.repeat(True, rows.count)
        return columnwise.condition(self.condition, rows.columns, rows.count)


def _width(kind: pa.DataType) -> float:
    """Return the size of a value of a type in bytes."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:  # text and other types without a fixed width
        return _TEXT_WIDTH


def _joined(parts: Sequence[Rows]) -> Rows:
    """Concatenate parts, which have the same columns."""
    if len(parts) == 1:
        return parts[0]
    columns = {key: pa.concat_arrays([part.columns[key] for part in parts]) for key in parts[0].columns}
    return Rows(columns, sum(part.count for part in parts))


@dataclass(frozen=True)
class _Range:
    """The range of values of a column that meet a term: from `least` to `most`. None means no bound."""

    column: str
    least: pa.Scalar | None
    most: pa.Scalar | None

    def may_be_in(self, group: RowGroup) -> bool:
        """Return whether a row group may have a value in the range. Only integers are compared."""
        if any(end is not None and not pa.types.is_integer(end.type) for end in (self.least, self.most)):
            return True
        least, most = (None if end is None else int(end.as_py()) for end in (self.least, self.most))
        return group.may_hold(self.column, least, most)


def _ranges(condition: Expression, names: Mapping[str, str]) -> Iterator[_Range]:
    """Yield, for terms of the condition, the range outside of which the term is not true."""
    for term in conjuncts(condition):
        if not isinstance(term, OpExpr) or len(term.args) != 2 or not pushdown.is_exact(term):
            continue
        name, (left, right) = builtin.operator(term.operator).name, term.args
        if isinstance(left, Const):
            left, right, name = right, left, _COMMUTED.get(name, "")
        if not (isinstance(left, ColumnRef) and isinstance(right, Const)) or left.type.oid not in _SKIPPING or name not in _COMMUTED:
            continue
        if right.value is None:
            continue
        bound = read_text(pa.array([right.value]), right.type.oid, right.type.typmod)[0]
        yield _Range(names[left.key], None if name in ("<", "<=") else bound, None if name in (">", ">=") else bound)
