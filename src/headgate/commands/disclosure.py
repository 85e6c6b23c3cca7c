"""Limit the row values in error details to those that the user who causes the error may read.

Called where rows are rejected: by `row_constraint` and `new_rows` ("Failing row contains"), `uniqueness` and `referential_action` (keys),
`new_rows` and `changed_rows` (partition keys). The rules are PostgreSQL's (ExecBuildSlotValueDescription, BuildIndexValueDescription,
RI_ReportViolation). If row security applies, nothing is shown. With SELECT on the table, everything is shown. Otherwise, a row shows the
columns that the user may read or that the statement itself writes, and a key is only shown if the user may read each of its columns. Hidden
values only change the DETAIL, not the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from headgate.catalog.physical import Cursor
from headgate.catalog.relation.relation import Column, Relation
from headgate.commands import privilege
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.types import buffers
from headgate.types.text.text import write_text
from headgate.types.text_column import TextSettings

ROW_TEXT = 64
"""Maximum length in bytes of each value in the DETAIL, as in PostgreSQL."""


@dataclass(frozen=True)
class RowShown:
    """The columns of a row that a DETAIL shows. `named`: with their names, because some columns are left out."""

    columns: tuple[Column, ...]
    named: bool

    @property
    def opening(self) -> str | None:
        """Return the text before the values, or None if nothing is shown."""
        if not self.named:
            return "Failing row contains ("
        names = ", ".join(column.name for column in self.columns)
        return f"Failing row contains ({names}) = (" if self.columns else None

    def detail(self, values: Iterable[str]) -> str | None:
        return None if self.opening is None else f"{self.opening}{', '.join(values)})."

    def row_detail(self, rows: pa.Table, row: int, forms: TextSettings) -> str | None:
        """Return the DETAIL for a row, as "Failing row contains" shows it."""
        texts = []
        for column in self.columns:
            value = buffers.whole(rows.column(column.name).slice(row, 1))
            text = write_text(value, column.type_oid, session=forms)[0].as_py()
            if text is not None and len(text.encode()) > ROW_TEXT:
                text = text.encode()[:ROW_TEXT].decode(errors="ignore") + "..."
            texts.append("null" if text is None else text)
        return self.detail(texts)


def whole_row(relation: Relation) -> RowShown:
    """Return a `RowShown` of all columns."""
    return RowShown(tuple(relation.columns), named=False)


def of_row(planner: Planner, relation: Relation) -> RowShown:
    """Return the columns that the session's user may see of a row of the table to which the statement writes."""
    cursor, role = planner.transaction.cursor, planner.session.context.user
    if privilege.under_row_security(cursor, role, relation):
        return RowShown((), named=True)
    if privilege.may_on_table(cursor, role, relation.database, relation.oid, "SELECT"):
        return whole_row(relation)
    shown_columns = privilege.columns_with(cursor, role, relation, "SELECT") | planner.written.get(relation.oid, set())
    return RowShown(tuple(column for column in relation.columns if column.attnum in shown_columns), named=True)


def tells_key(session: Session, cursor: Cursor, relation: Relation, attnums: Sequence[int]) -> bool:
    """Return whether the session's user may see a key of these columns. An attnum of 0 is an expression."""
    role = session.context.user
    if privilege.under_row_security(cursor, role, relation):
        return False
    if privilege.may_on_table(cursor, role, relation.database, relation.oid, "SELECT"):
        return True
    return not set(attnums) - privilege.columns_with(cursor, role, relation, "SELECT")


@contextmanager
def routing(planner: Planner, root: Relation, names: Sequence[str]) -> Iterator[None]:
    """Remove the partition key (columns `names`) from the errors of rows without a partition, if the user may not see it."""
    try:
        yield
    except PostgresError as error:
        if error.detail and error.detail.startswith("Partition key of the failing row"):
            key = [column.attnum for column in root.columns if column.name in names]
            if not tells_key(planner.session, planner.transaction.cursor, root, key):
                error.detail = None
        raise
