"""The publisher's columns of a subscription's tables: hg.subscription_column.

`create_tables` and `schema_evolution` (`commands.subscription`) write the rows in the transaction that creates or changes a table. They
read them to detect the publisher's later changes. The applier reads them for former names of a column, and `headgate status` shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, rows, run, update

_FIELDS = "attnum, attname, remote_type, typoid, typmod, local_type, not_null, default_text, dropped, unfilled, remote_relid"


@dataclass(frozen=True)
class FollowedColumn:
    """A column of a published table, as it was at the last check.

    `attnum` is the publisher's number. `name` is the column's name on both sides. `relation` is the oid of the publisher's table, or 0 if
    it is not known. `local_type` is the local type if it differs. `unfilled` is the number of rows that existed here when the column was
    added, and do not have the publisher's values in it yet.
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
    """Return the columns of one table, ordered by number."""
    sql = f"SELECT {_FIELDS} FROM hg.subscription_column WHERE subid = ? AND relid = ?"
    return sorted((_column(row) for row in rows(cursor, sql, [subscription, relation])), key=lambda column: column.attnum)


def of_subscription(cursor: Cursor, subscription: int) -> list[tuple[int, FollowedColumn]]:
    """Return (relation, column) of the columns that differ from the publisher's."""
    sql = (
        f"SELECT relid, {_FIELDS} FROM hg.subscription_column WHERE subid = ? AND NOT dropped AND (local_type IS NOT NULL OR unfilled > 0)"
    )
    return [(row[0], _column(row[1:])) for row in rows(cursor, f"{sql} ORDER BY relid, attnum", [subscription])]


def write(cursor: Cursor, database: int, subscription: int, relation: int, columns: Sequence[FollowedColumn]) -> None:
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
    """Record that the rows of a table have the publisher's values in all columns."""
    update(cursor, "subscription_column", {"subid": subscription, "relid": relation}, unfilled=0)


def forget(cursor: Cursor, subscription: int, relation: int | None = None) -> None:
    """Delete the rows of a subscription's tables, or of one table. The rows of a dropped table are deleted by `removal`."""
    condition, values = ("", [subscription]) if relation is None else (" AND relid = ?", [subscription, relation])
    run(cursor, f"DELETE FROM hg.subscription_column WHERE subid = ?{condition}", values)


def _column(row: Row) -> FollowedColumn:
    attnum, name, kind, oid, typmod, local_type, not_null, default, dropped, unfilled, relation = row
    return FollowedColumn(attnum, name, kind, oid, typmod, local_type, not_null, default, dropped, unfilled, relation or 0)
