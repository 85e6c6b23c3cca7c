"""What an error may tell of a table's rows: no more than may be read by who caused it.

Called where rows are refused: by `row_constraint` and `new_rows` ("Failing row contains"), `uniqueness`, `referential_action` and
`routed_rows` (keys).
As in PostgreSQL (ExecBuildSlotValueDescription, BuildIndexValueDescription, RI_ReportViolation): nothing where row security counts; all
with the right to SELECT the table; else of a row the columns that may be read or that the statement itself gives, and a key only where
each of its columns may be read. What cannot be told is left out of the DETAIL, the error stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor
from headgate.catalog.relation.relation import Column, Relation
from headgate.commands import privilege
from headgate.errors import PostgresError

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner
    from headgate.commands.session import Session


@dataclass(frozen=True)
class RowShown:
    """The columns of a row that a DETAIL shows; `named`: with their names, as they are not all."""

    columns: tuple[Column, ...]
    named: bool

    @property
    def opening(self) -> str | None:
        """What stands before the values, None where nothing is told."""
        if not self.named:
            return "Failing row contains ("
        names = ", ".join(each.name for each in self.columns)
        return f"Failing row contains ({names}) = (" if self.columns else None

    def detail(self, values: Iterable[str]) -> str | None:
        """The DETAIL with the columns' values as they are shown."""
        return None if self.opening is None else f"{self.opening}{', '.join(values)})."


def whole_row(relation: Relation) -> RowShown:
    """All of a row."""
    return RowShown(tuple(relation.columns), named=False)


def of_row(planner: Planner, relation: Relation) -> RowShown:
    """What the session's user is shown of a row of the table to which the statement writes."""
    cursor, role = planner.transaction.cursor, planner.session.context.user
    if privilege.under_row_security(cursor, role, relation):
        return RowShown((), named=True)
    if privilege.may_on_table(cursor, role, relation.database, relation.oid, "SELECT"):
        return whole_row(relation)
    told = privilege.columns_with(cursor, role, relation, "SELECT") | planner.written.get(relation.oid, set())
    return RowShown(tuple(each for each in relation.columns if each.attnum in told), named=True)


def tells_key(session: Session, cursor: Cursor, relation: Relation, attnums: Sequence[int]) -> bool:
    """Whether the session's user may be shown a key of these columns, 0 for an expression."""
    role = session.context.user
    if privilege.under_row_security(cursor, role, relation):
        return False
    if privilege.may_on_table(cursor, role, relation.database, relation.oid, "SELECT"):
        return True
    return not set(attnums) - privilege.columns_with(cursor, role, relation, "SELECT")


@contextmanager
def routing(planner: Planner, root: Relation, names: Sequence[str]) -> Iterator[None]:
    """Takes the partition key (columns `names`) out of the errors of rows that have no partition."""
    try:
        yield
    except PostgresError as error:
        if error.detail and error.detail.startswith("Partition key of the failing row"):
            key = [column.attnum for column in root.columns if column.name in names]
            if not tells_key(planner.session, planner.transaction.cursor, root, key):
                error.detail = None
        raise
