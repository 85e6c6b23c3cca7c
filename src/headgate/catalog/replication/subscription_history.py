"""The history of a subscription's tables: hg.subscription_history says which table records the changes of which.

    (none)       no history was begun
    begun        every change of the table is recorded in the transaction that applies it
    interrupted  the table is being synchronized again: the changes between its rows before and after are not known

`expired`: the publisher's LSN up to which changes may have been removed from the history (`history_retention`).

A history that was interrupted is begun again, with the rows of the table, when the table is ready again. `commands.subscription` begins
histories, the applier reads which tables have one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headgate.catalog.physical import Cursor, rows, run, update
from headgate.errors import PostgresError
from headgate.sql.names import split_identifiers
from headgate.types import registry
from headgate.types.storage import NAME_BYTES

NONE, ALL = "none", "all"
OWN_COLUMNS = (
    ("_op", registry.TEXT), ("_lsn", registry.INT8), ("_seq", registry.INT8), ("_xid", registry.INT8),
    ("_commit_time", registry.TIMESTAMPTZ), ("_unchanged", registry.TEXT_ARRAY),
)  # fmt: skip
"""The columns of a history in addition to those of its table, with their types."""


@dataclass(frozen=True)
class TableHistory:
    """The history of a table: the oid of the table that records it, and whether it was begun and not interrupted since."""

    relation: int
    is_begun: bool
    expired: int


def old_name(name: str) -> str:
    """Return the name of the history's column for a column of the old row."""
    return f"_old_{name}".encode()[:NAME_BYTES].decode(errors="ignore")


def of_subscription(cursor: Cursor, subscription: int) -> dict[int, TableHistory]:
    """Return the histories of a subscription, by the table whose changes are recorded."""
    history_rows = rows(
        cursor, "SELECT relid, histid, begun, coalesce(expired, 0) FROM hg.subscription_history WHERE subid = ?", [subscription]
    )
    return {relation: TableHistory(history, begun, expired) for relation, history, begun, expired in history_rows}


def begin(cursor: Cursor, database: int, subscription: int, relation: int, history: int, expired: int = 0) -> None:
    """(none), interrupted → begun."""
    forget(cursor, subscription, relation)
    run(cursor, "INSERT INTO hg.subscription_history VALUES (?, ?, ?, ?, true, ?)", [database, subscription, relation, history, expired])


def expire(cursor: Cursor, database: int, history: int, expired: int) -> None:
    """Note that changes up to an LSN of the publisher may have been removed from a history."""
    sql = "UPDATE hg.subscription_history SET expired = greatest(coalesce(expired, 0), ?) WHERE dbid = ? AND histid = ?"
    run(cursor, sql, [expired, database, history])


def interrupt(cursor: Cursor, subscription: int, relation: int) -> None:
    """begun → interrupted."""
    update(cursor, "subscription_history", {"subid": subscription, "relid": relation}, begun=False)


def forget(cursor: Cursor, subscription: int, relation: int | None = None) -> None:
    """Remove the history of a table, or those of a subscription; the tables that hold them stay."""
    only = "" if relation is None else " AND relid = ?"
    run(cursor, f"DELETE FROM hg.subscription_history WHERE subid = ?{only}", [subscription, *([] if relation is None else [relation])])


def recorded_by(cursor: Cursor, database: int, history: int) -> tuple[str, int] | None:
    """Return the subscription that writes a history table and the table whose changes it records. None for any other table."""
    query = (
        "SELECT s.subname, h.relid FROM hg.subscription_history h JOIN hg.pg_subscription s ON s.oid = h.subid"
        " WHERE h.dbid = ? AND h.histid = ?"
    )
    history_rows = rows(cursor, query, [database, history])
    return history_rows[0] if history_rows else None


def refuse_change(cursor: Cursor, database: int, history: int, name: str, action: str = "change") -> None:
    """Raise 42809 for a history table, which only its subscription writes."""
    recorded = recorded_by(cursor, database, history)
    if recorded is not None:
        raise PostgresError(
            "42809",
            f'cannot {action} history table "{name}"',
            detail=f'Subscription "{recorded[0]}" records the changes of a table in it.',
            hint="ALTER SUBSCRIPTION ... SET (history = ...) ends the history of a table.",
        )


def named(option: str) -> list[tuple[str | None, str]] | None:
    """Return the (schema, name) of each table that a list in the option `history` names; None if it is not a list of names."""
    table_names: list[tuple[str | None, str]] = []
    for text in option.split(","):
        parts = split_identifiers(text, ".")
        if parts is None or len(parts) not in (1, 2):
            return None
        table_names.append((parts[0] if len(parts) == 2 else None, parts[-1]))
    return table_names


def is_wanted(option: str, title: tuple[str, str]) -> bool:
    """Return whether the option `history` asks for the history of the table with this (schema, name)."""
    if option in (NONE, ALL):
        return option == ALL
    return any(schema in (None, title[0]) and name == title[1] for schema, name in named(option) or ())


def unknown(option: str, titles: Collection[tuple[str, str]]) -> str | None:
    """Return the first name of the option `history` that is none of these tables; None if there is none."""
    if option in (NONE, ALL):
        return None
    for schema, name in named(option) or ():
        if not any(schema in (None, title[0]) and name == title[1] for title in titles):
            return name if schema is None else f"{schema}.{name}"
    return None
