"""The batches of subscriptions that the log no longer has, but whose single changes are in the histories of their tables.

hg.recorded_batch has a row for each removed entry of the log and each table whose history has all changes of the entry's transaction
(`TableWrite.recorded`). `log.trim` calls `keep` in the catalog transaction that removes the entries. `log.recorded` returns the rows as
entries, for `publisher.change_range`. The history's rows of a batch are those whose LSN at the publisher is after `origin_lsn` of the batch
before it, up to its own.

Invariant: after the first row of a table, and before the first entry of the log, only transactions with a row have changed the table.
Therefore a removed entry that wrote the table or the history in another way removes the rows before it: another session wrote the table, a
value was not sent, or the history was begun again. The rows also end with the history, and with the changes that `history_retention`
removes (hg.subscription_history.expired).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.lsn import Lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.catalog.cursor import CatalogCursor, Rows
    from headgate.catalog.physical import Cursor

DEFINITION = """
CREATE TABLE IF NOT EXISTS hg.recorded_batch(commit_lsn BIGINT, end_lsn BIGINT, commit_time BIGINT, xid BIGINT, dbid BIGINT, origin VARCHAR,
    origin_lsn BIGINT, relid BIGINT, histid BIGINT, seq INTEGER, lsn BIGINT, changes BIGINT, seen BIGINT);
"""
_HELD = (
    "hg.recorded_batch b JOIN hg.subscription_history h ON h.dbid = b.dbid AND h.relid = b.relid AND h.histid = b.histid"
    " AND h.begun AND b.origin_lsn >= coalesce(h.expired, 0)"
)
"""The batches whose changes the histories still have."""
_REMOVED = """WITH removed AS (SELECT * FROM hg.log_entry WHERE commit_lsn IN (SELECT commit_lsn FROM ({removable}))),
    written AS (SELECT r.dbid, r.commit_lsn, w.* EXCLUDE (commit_lsn) FROM removed r JOIN hg.log_write w ON w.commit_lsn = r.commit_lsn
        UNION ALL SELECT r.dbid, r.commit_lsn, w.* EXCLUDE (commit_lsn) FROM removed r JOIN hg.log_write w ON w.commit_lsn = r.prepared),
    history AS (SELECT dbid, relid, histid, unnest([relid, histid]) AS written FROM hg.subscription_history),
    batch AS (SELECT h.dbid, h.relid, h.histid, w.commit_lsn, bool_or({recorded}) AS recorded, min(w.seq) FILTER ({recorded}) AS seq,
        min(w.lsn) FILTER ({recorded}) AS lsn, sum(w.changes) FILTER ({recorded}) AS changes, min(w.seen) FILTER ({recorded}) AS seen
        FROM written w JOIN history h ON h.dbid = w.dbid AND h.written = w.relid GROUP BY h.dbid, h.relid, h.histid, w.commit_lsn),
    other AS (SELECT dbid, relid, max(commit_lsn) AS last FROM batch WHERE NOT recorded GROUP BY dbid, relid)
"""
"""The entries that are to be removed: `batch`, what each of them wrote of a table with a history; `other`, the last of those whose changes
are not all in the history."""


def keep(cursor: CatalogCursor, removable: str, limits: Sequence[int]) -> None:
    """Store the batches among the entries that `removable` selects, which are about to be removed. Delete those that are no longer held."""
    removed = _REMOVED.format(removable=removable, recorded="w.kind = 'write' AND w.relid = h.histid AND w.options = h.relid")
    cursor.execute(
        f"{removed} DELETE FROM hg.recorded_batch x WHERE NOT EXISTS (SELECT 1 FROM {_HELD} WHERE b.commit_lsn = x.commit_lsn"
        " AND b.dbid = x.dbid AND b.relid = x.relid) OR EXISTS (SELECT 1 FROM other o WHERE o.dbid = x.dbid AND o.relid = x.relid)",
        limits,
    )
    cursor.execute(
        f"{removed} INSERT INTO hg.recorded_batch SELECT r.commit_lsn, r.end_lsn, r.commit_time, r.xid, r.dbid, r.origin, r.origin_lsn,"
        " b.relid, b.histid, b.seq, b.lsn, b.changes, b.seen FROM batch b JOIN removed r USING (commit_lsn)"
        " LEFT JOIN other o ON o.dbid = b.dbid AND o.relid = b.relid WHERE b.recorded AND b.commit_lsn > coalesce(o.last, 0)",
        limits,
    )


def first(cursor: CatalogCursor, database: int, relation: int) -> Lsn | None:
    """Return the LSN from which on the batches of a table are held, the end of the first one. None if there is none."""
    row = cursor.execute(f"SELECT min(b.end_lsn) FROM {_HELD} WHERE b.dbid = ? AND b.relid = ?", [database, relation]).fetchone()
    return None if row is None or row[0] is None else Lsn(row[0])


def following(cursor: CatalogCursor, database: int, relation: int, after: Lsn, limit: int) -> Rows:
    """Return at most `limit` batches of a table that commit after an LSN, with `origin_lsn` of the batch before each, in order."""
    sql = (
        f"SELECT b.*, lag(b.origin_lsn) OVER (ORDER BY b.commit_lsn) AS before FROM {_HELD} WHERE b.dbid = ? AND b.relid = ?"
        f" AND b.commit_lsn >= (SELECT max(b.commit_lsn) FROM {_HELD} WHERE b.dbid = ? AND b.relid = ? AND b.commit_lsn <= ?)"
        " ORDER BY b.commit_lsn LIMIT ? OFFSET 1"
    )
    return cursor.execute(sql, [database, relation, database, relation, int(after), limit]).fetchall()


def needed(cursor: Cursor, database: int) -> tuple[list[int], Lsn | None]:
    """Return the tables and histories (oids) of all batches of a database, and the oldest LSN whose catalog they need, None without any."""
    sql = "SELECT list_distinct(list_concat(list(relid), list(histid))), min(seen) FROM hg.recorded_batch WHERE dbid = ?"
    [(oids, oldest)] = cursor.execute(sql, [database]).fetchall()
    return ([], None) if oldest is None else (oids, Lsn(oldest))
