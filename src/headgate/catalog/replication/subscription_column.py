"""The columns of a subscription's tables as their publisher has them: hg.subscription_column.

Written where tables are made and changed by `create_tables` and `schema_evolution` (`commands.subscription`), in the same transaction. Read
by them, to see what the publisher has changed since, by the applier, for the names that a column has had, and for `headgate status`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, rows, run

DEFINITION = (
    "CREATE TABLE IF NOT EXISTS hg.subscription_column (dbid UINTEGER, subid UINTEGER, relid UINTEGER, attnum INTEGER, attname VARCHAR, "
    " former VARCHAR[],"
    " remote_type VARCHAR, typoid UINTEGER, typmod INTEGER, local_type VARCHAR, not_null BOOLEAN, default_text VARCHAR, dropped BOOLEAN,"
    " unfilled BIGINT)"
)
"""`former` (names that the column has had) is no longer written."""
LATER_COLUMNS = (("remote_relid", "UINTEGER"),)
"""Columns that the table gets when a catalog that was made before them is opened."""
_FIELDS = "attnum, attname, remote_type, typoid, typmod, local_type, not_null, default_text, dropped, unfilled, remote_relid"


@dataclass(frozen=True)
class FollowedColumn:
    """A column of a published table, as it was when it was looked at last.

    `attnum` is the publisher's, `name` that of the column here too; `relation` is the publisher's table (its oid, 0 if not known).
    `local_type`: the type here where it is another. `unfilled`: rows that were here when the column was added, and have yet to get what the
    publisher has in it.
    """

    attnum: int
    name: str
    type: str
    type_oid: int
    typmod: int
    local_type: str | None = None
    not_null: bool = False
    default: str | None = None
    dropped: bool = False
    unfilled: int = 0
    relation: int = 0


def of_table(cursor: Cursor, subscription: int, relation: int) -> list[FollowedColumn]:
    """The columns of one table, by their number."""
    listed = f"SELECT {_FIELDS} FROM hg.subscription_column WHERE subid = ? AND relid = ?"
    return sorted((_column(row) for row in rows(cursor, listed, [subscription, relation])), key=lambda column: column.attnum)


def of_subscription(cursor: Cursor, subscription: int) -> list[tuple[int, FollowedColumn]]:
    """(relation, column) of those columns that are not as their publisher has them."""
    listed = (
        f"SELECT relid, {_FIELDS} FROM hg.subscription_column WHERE subid = ? AND NOT dropped AND (local_type IS NOT NULL OR unfilled > 0)"
    )
    return [(row[0], _column(row[1:])) for row in rows(cursor, f"{listed} ORDER BY relid, attnum", [subscription])]


def write(cursor: Cursor, database: int, subscription: int, relation: int, columns: Sequence[FollowedColumn]) -> None:
    """Writes the columns of a table, in place of what was there."""
    forget(cursor, subscription, relation)
    if not columns:
        return
    marks = ", ".join([f"({', '.join('?' * (3 + len(_FIELDS.split(','))))})"] * len(columns))
    values = [
        value
        for column in columns
        for value in (
            database, subscription, relation, column.attnum, column.name, column.type, column.type_oid, column.typmod,
            column.local_type, column.not_null, column.default, column.dropped, column.unfilled, column.relation,
        )
    ]  # fmt: skip
    run(cursor, f"INSERT INTO hg.subscription_column (dbid, subid, relid, {_FIELDS}) VALUES {marks}", values)


def filled(cursor: Cursor, subscription: int, relation: int) -> None:
    """The rows of a table have what the publisher has in all columns."""
    run(cursor, "UPDATE hg.subscription_column SET unfilled = 0 WHERE subid = ? AND relid = ?", [subscription, relation])


def forget(cursor: Cursor, subscription: int, relation: int | None = None) -> None:
    """Forgets the tables of a subscription, or one of them; a table that is dropped takes its rows with it (`removal`)."""
    one, values = ("", [subscription]) if relation is None else (" AND relid = ?", [subscription, relation])
    run(cursor, f"DELETE FROM hg.subscription_column WHERE subid = ?{one}", values)


def _column(row: Row) -> FollowedColumn:
    attnum, name, kind, oid, typmod, here, not_null, default, dropped, unfilled, relation = row
    return FollowedColumn(attnum, name, kind, oid, typmod, here, not_null, default, dropped, unfilled, relation or 0)
