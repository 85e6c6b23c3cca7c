"""The transaction log of a node: the Delta versions that make up each committed transaction, and their LSNs.

A node's LSN is a position in this log. An entry covers the half-open range from the previous entry's `end_lsn` to its own. The LSN of its
n-th change is inside it, ascending, below `commit_lsn`, and ``commit_lsn < end_lsn``:

    0/1000000 ── lsn of write 0 (8 per change) ── lsn of write 1 … ── commit_lsn ── end_lsn = begin of the next entry

A write takes as many positions as its files have bytes (at least 16 a change), so that, as in PostgreSQL, the distance of two LSNs measures
the amount of data between them. `max_slot_wal_keep_size` uses that unit.

Kinds of entries: a committed transaction; PREPARE TRANSACTION with the writes of the transaction, which are not visible yet; COMMIT
PREPARED and ROLLBACK PREPARED, which name the position of the former; a logical decoding message outside a transaction.

The entries are in the catalog's DuckDB file, so an entry, the catalog rows of its transaction and the origin's progress are committed
together. Rows are only inserted (and removed by `trim`), never updated, so that two open transactions cannot conflict.

Called by `transaction.Transaction.commit` (under the commit lock) and read by the publisher, which follows it with `wait` and `entries`.
"""

from __future__ import annotations

import enum
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from headgate.catalog.replication import slot as slots
from headgate.failpoint import Step
from headgate.lsn import INVALID, Lsn
from headgate.storage.transaction import recorded_batch

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog
    from headgate.catalog.cursor import CatalogCursor

FIRST_LSN = Lsn(0x1000000)
FIRST_XID = 700
_SPECIAL_XIDS = 3
"""The smallest 32-bit numbers are not valid transaction ids (InvalidTransactionId, Bootstrap…, Frozen…): subscribers reject them."""
POSTGRES_EPOCH = 946_684_800
"""2000-01-01 in seconds of the Unix epoch."""

LSN_PER_CHANGE = 8
_ROWS_PER_CHANGE = 2
"""An update is two rows of a change file. A change's LSN counts rows, so its write reserves positions for two."""
_LSN_OF_WRITE = 24
_TRIMMED = "trimmed"
"""The counter that holds the LSN up to which entries have been removed."""
_WRITES_AT_ONCE = 50
"""Number of writes of an entry that one statement inserts into the catalog."""
_LSN_OF_COMMIT = 40

_TABLES = """
CREATE SCHEMA IF NOT EXISTS hg;
CREATE TABLE IF NOT EXISTS hg.log_entry(commit_lsn BIGINT, end_lsn BIGINT, commit_time BIGINT, xid BIGINT, dbid BIGINT, origin VARCHAR,
    origin_lsn BIGINT, kind VARCHAR, gid VARCHAR, prepared BIGINT);
CREATE TABLE IF NOT EXISTS hg.log_write(commit_lsn BIGINT, seq INTEGER, lsn BIGINT, relid BIGINT, kind VARCHAR, version BIGINT,
    changes BIGINT, statement INTEGER, options INTEGER, bytes BIGINT, seen BIGINT, xid BIGINT);
ALTER TABLE hg.log_write ADD COLUMN IF NOT EXISTS files VARCHAR;
ALTER TABLE hg.log_entry ADD COLUMN IF NOT EXISTS seen BIGINT;
CREATE TABLE IF NOT EXISTS hg.log_message(commit_lsn BIGINT, seq INTEGER, prefix VARCHAR, content BLOB);
CREATE TABLE IF NOT EXISTS hg.prepared_xact(xid BIGINT, gid VARCHAR, dbid BIGINT, owner VARCHAR, prepared BIGINT, commit_lsn BIGINT,
    body BLOB);
CREATE TABLE IF NOT EXISTS hg.intent(xid BIGINT, body BLOB);
CREATE TABLE IF NOT EXISTS hg.table_version(dbid BIGINT, relid BIGINT, lsn BIGINT, version BIGINT, dropped BOOLEAN);
"""


def create_tables(cursor: CatalogCursor) -> None:
    """Create the log's tables in the catalog's file if they do not exist."""
    cursor.execute(_TABLES + recorded_batch.DEFINITION)


def now() -> int:
    """Return the time in microseconds since 2000-01-01 UTC, PostgreSQL's TimestampTz."""
    return time.time_ns() // 1000 - POSTGRES_EPOCH * 1_000_000


@dataclass(frozen=True)
class OriginProgress:
    """The progress of an origin: its name, the LSN at the publisher, the time of the commit there (µs since 2000)."""

    origin: str
    lsn: Lsn
    time: int | None = None


class EntryKind(enum.StrEnum):
    """The kind of a log entry."""

    COMMIT = "commit"
    PREPARE = "prepare"
    COMMIT_PREPARED = "commit prepared"
    ROLLBACK_PREPARED = "rollback prepared"
    MESSAGE = "message"


@dataclass(frozen=True)
class Emitted:
    """A logical decoding message (pg_logical_emit_message)."""

    prefix: str
    content: bytes


@dataclass(frozen=True)
class WrittenFile:
    """A file with changes of a write, by its path below the table: added rows, or (`paired`) change rows."""

    path: str
    size: int
    rows: int
    paired: bool


WriteKind = Literal["write", "truncate", "foreign", "message"]
"""The kind of a write: changes, a TRUNCATE, the version of another writer, or a message, which has no table."""


@dataclass(frozen=True)
class TableWrite:
    """One write of a transaction to one table. All its writes to a table are one Delta version.

    `seq` counts the transaction's writes from 0. `statement` is the seq of the first write of the same statement (a TRUNCATE of several
    tables is one statement). `changes` is the number of changed rows. `options` of a truncate: 1 CASCADE, 2 RESTART IDENTITY; of a write:
    see `recorded`. `lsn` is the position of the first change, the others follow at distances of 8; it is 0 until the transaction commits.
    `bytes`: size of the files. `seen`: the end of the log when the write was made, or when a slot was created between that and the commit.
    Streams judge the write by the catalog as of it. `xid`: the subtransaction, 0 for the transaction itself. `files`: the files with the
    changes, in order; None: those that the version names. `physical`: the columns' names in these files, None if they are the columns' own.
    Kinds: ``foreign`` is a write of another Delta writer (`foreign_writer`); ``message`` has no relation and no version, but `emitted`.
    """

    seq: int
    relation: int
    kind: WriteKind
    version: int
    changes: int
    statement: int
    options: int = 0
    lsn: Lsn = INVALID
    commit_lsn: Lsn = INVALID
    bytes: int = 0
    seen: Lsn = INVALID
    xid: int = 0
    emitted: Emitted | None = None
    files: tuple[WrittenFile, ...] | None = None
    physical: Mapping[str, str] | None = None

    @property
    def recorded(self) -> int:
        """The oid of the table whose history this write extends, if the transaction's history has all its changes. Otherwise 0."""
        return self.options if self.kind == "write" else 0

    def where(self) -> str | None:
        """Return `files` and `physical` as text, None if there are no files."""
        if self.files is None:
            return None
        file_rows = [[file.path, file.size, file.rows, file.paired] for file in self.files]
        return json.dumps({"files": file_rows, "physical": dict(self.physical) if self.physical else None}, separators=(",", ":"))

    def placed(self, where: str | None) -> TableWrite:
        """Return the write with the files and names from the output of `where`."""
        if where is None:
            return self
        stored = json.loads(where)
        files = tuple(WrittenFile(path, size, rows, paired) for path, size, rows, paired in stored["files"])
        return replace(self, files=files, physical=stored["physical"])


@dataclass(frozen=True)
class LogEntry:
    """One committed transaction. `commit_time` is in µs since 2000-01-01. `origin` is None for a local transaction.

    `writes` of COMMIT PREPARED are those of the entry at `prepared` (its commit_lsn), with its LSNs. `seen`: when the last slot was
    created before it. Streams that send the writes at COMMIT PREPARED do not judge them by an older catalog.
    """

    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time: int
    xid: int
    database: int
    origin: str | None
    origin_lsn: Lsn
    writes: tuple[TableWrite, ...] = field(default=())
    kind: EntryKind = EntryKind.COMMIT
    gid: str = ""
    prepared: Lsn = INVALID
    seen: Lsn = INVALID


@dataclass(frozen=True)
class RecordedEntry(LogEntry):
    """An entry that was removed from the log, with its write to the history of one table (`recorded_batch`). The write names no files.

    `after`: the origin's LSN up to which the changes belong to batches before it.
    """

    after: Lsn = INVALID


@dataclass(frozen=True)
class TableVersion:
    """The version of a table that is visible from an LSN on."""

    version: int
    dropped: bool = False


def length(changes: int, size: int) -> int:
    """Return how many positions of the log a write of so many changes and bytes takes."""
    return _LSN_OF_WRITE + max(LSN_PER_CHANGE * _ROWS_PER_CHANGE * max(changes, 1), -(-size // 8) * 8)


class TransactionLog:
    """The log in memory and in the catalog's file. All methods are thread-safe; `append` only under the commit lock."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.commit_lock = threading.RLock()
        self._moved = threading.Condition()
        cursor = catalog.cursor()
        create_tables(cursor)
        self._slots_created = slots.last_created(cursor)
        """The LSN at which the last slot of a database was created."""
        last = cursor.execute("SELECT end_lsn, xid FROM hg.log_entry ORDER BY end_lsn DESC LIMIT 1").fetchone()
        self._end = Lsn(last[0]) if last else FIRST_LSN
        highest = cursor.execute(
            "SELECT greatest((SELECT max(xid) FROM hg.log_entry), (SELECT max(xid) FROM hg.log_write), (SELECT max(xid) FROM hg.intent),"
            " (SELECT max(value)::BIGINT FROM hg.counter WHERE name = 'xid'))"
        ).fetchone()
        self._next_xid = highest[0] + 1 if highest and highest[0] else FIRST_XID
        self.first_xid = self._next_xid
        """The first id that no transaction in the catalog has, as of the node's start. Higher ids are unused too."""

    @property
    def end(self) -> Lsn:
        """Return the end of the log, pg_current_wal_lsn()."""
        return self._end

    def next_xid(self) -> int:
        """Return a new transaction id. Ids of transactions that did not commit may be reused after a restart."""
        with self._moved:
            xid = self._next_xid
            if xid % 2**32 < _SPECIAL_XIDS:
                xid += _SPECIAL_XIDS - xid % 2**32
            self._next_xid = xid + 1
            return xid

    def place(
        self,
        xid: int,
        database: int,
        writes: Iterable[TableWrite],
        origin: OriginProgress | None,
        *,
        kind: EntryKind = EntryKind.COMMIT,
        gid: str = "",
        prepared: Lsn = INVALID,
    ) -> LogEntry:
        """Return the entry of a transaction that commits now, with LSNs assigned. Call under the commit lock."""
        lsn = self._end + LSN_PER_CHANGE
        slot_created = self._slots_created.get(database, INVALID)
        placed = []
        for write in writes:
            placed.append(replace(write, lsn=Lsn(lsn), seen=max(write.seen, slot_created)))
            lsn += length(write.changes, write.bytes)
        commit_lsn = Lsn(lsn)
        return LogEntry(
            commit_lsn=commit_lsn,
            end_lsn=Lsn(commit_lsn + _LSN_OF_COMMIT),
            commit_time=now(),
            xid=xid,
            database=database,
            origin=origin.origin if origin else None,
            origin_lsn=origin.lsn if origin else Lsn(0),
            writes=tuple(replace(write, commit_lsn=commit_lsn) for write in placed),
            kind=kind,
            gid=gid,
            prepared=prepared,
            seen=slot_created if kind is EntryKind.COMMIT_PREPARED else INVALID,
        )

    def create_slot(self, database: int) -> Lsn:
        """Return the position of a slot that is created now.

        PostgreSQL waits for the running transactions first. Here all streams judge what these have written by the catalog as of the slot:
        a copy of a table as of the slot lacks their rows, so the stream that continues the copy must have them, whichever slot it reads.
        """
        with self.commit_lock:
            self._slots_created[database] = self._end
            return self._end

    def insert(self, cursor: CatalogCursor, entry: LogEntry, versions: Mapping[int, TableVersion]) -> None:
        """Insert the entry and the tables' visible versions in the caller's catalog transaction."""
        row = [entry.commit_lsn, entry.end_lsn, entry.commit_time, entry.xid, entry.database, entry.origin, entry.origin_lsn]
        row += [str(entry.kind), entry.gid, entry.prepared, entry.seen]
        cursor.execute(
            "INSERT INTO hg.log_entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [int(value) if isinstance(value, int) else value for value in row],
        )
        self._insert_writes(cursor, entry)
        for write in entry.writes:
            if write.emitted is not None:
                cursor.execute(
                    "INSERT INTO hg.log_message VALUES (?, ?, ?, ?)",
                    [int(entry.commit_lsn), write.seq, write.emitted.prefix, write.emitted.content],
                )
        for relation, version in versions.items():
            cursor.execute(
                "INSERT INTO hg.table_version (dbid, relid, lsn, version, dropped) VALUES (?, ?, ?, ?, ?)",
                [entry.database, relation, int(entry.end_lsn), version.version, version.dropped],
            )

    @staticmethod
    def _insert_writes(cursor: CatalogCursor, entry: LogEntry) -> None:
        rows = [
            [
                *(
                    int(entry.commit_lsn),
                    write.seq,
                    int(write.lsn),
                    write.relation,
                    write.kind,
                    write.version,
                    write.changes,
                    write.statement,
                    write.options,
                ),
                *(write.bytes, int(write.seen), write.xid, write.where()),
            ]
            for write in entry.writes
        ]
        for first in range(0, len(rows), _WRITES_AT_ONCE):
            part = rows[first : first + _WRITES_AT_ONCE]
            values = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(part))
            cursor.execute(f"INSERT INTO hg.log_write VALUES {values}", [value for row in part for value in row])

    def place_prepared(self, cursor: CatalogCursor, lsn: Lsn, versions: Mapping[int, int]) -> None:
        """Give the writes of a PREPARE that is committed now the versions that have them. They are later ones if an attempt was undone."""
        for relation, version in versions.items():
            cursor.execute(
                "UPDATE hg.log_write SET version = ? WHERE commit_lsn = ? AND relid = ? AND version < ?",
                [version, int(lsn), relation, version],
            )

    def append(self, entry: LogEntry) -> None:
        """Move the end of the log past a committed entry and wake the waiters."""
        with self._moved:
            self._end = entry.end_lsn
            self._moved.notify_all()

    def wait(self, after: Lsn, timeout: float) -> bool:
        """Wait until the log's end is past `after`, at most `timeout` seconds. Return whether it is."""
        with self._moved:
            return self._moved.wait_for(lambda: self._end > after, timeout)

    def wake(self) -> None:
        """Wake all waiters without a new entry (a stream that must stop checks its own flag)."""
        with self._moved:
            self._moved.notify_all()

    def entries(self, after: Lsn, database: int, limit: int) -> list[LogEntry]:
        """Return at most `limit` entries of a database that commit at or after `after`, in log order, including entries without writes.

        A position inside an entry but after its commit excludes it: a subscriber uses that to skip a transaction.
        """
        return self._entries("commit_lsn >= ? AND dbid = ? ORDER BY end_lsn LIMIT ?", [int(after), database, limit])

    def recorded(self, after: Lsn, database: int, relation: int, limit: int) -> list[RecordedEntry]:
        """Return at most `limit` removed entries after an LSN whose changes of a table its history still has, in log order."""
        entries = []
        batches = recorded_batch.following(self._catalog.cursor(), database, relation, after, limit)
        for commit, end, moment, xid, _, origin, origin_lsn, _, history, seq, lsn, changes, seen, before in batches:
            write = TableWrite(seq, history, "write", 0, changes, seq, relation, Lsn(lsn), Lsn(commit), seen=Lsn(seen))
            entry = RecordedEntry(Lsn(commit), Lsn(end), moment, xid, database, origin, Lsn(origin_lsn), (write,), after=Lsn(before))
            entries.append(entry)
        return entries

    def oldest_recorded(self, database: int, relation: int) -> Lsn | None:
        """Return the LSN from which on `recorded` returns the removed entries of a table, or None if it returns none."""
        return recorded_batch.first(self._catalog.cursor(), database, relation)

    def of_origin(self, origin: str, origin_lsn: Lsn) -> LogEntry | None:
        """Return the last entry that an origin wrote at this position of its own, or None if it has been removed."""
        entries = self._entries("origin = ? AND origin_lsn = ? ORDER BY end_lsn DESC LIMIT 1", [origin, int(origin_lsn)])
        return entries[0] if entries else None

    def is_rolled_back(self, prepared: Lsn) -> bool:
        """Return whether ROLLBACK PREPARED has ended the transaction prepared at this position, so that its files are removed."""
        sql = "SELECT 1 FROM hg.log_entry WHERE prepared = ? AND kind = ? LIMIT 1"
        return self._catalog.cursor().execute(sql, [int(prepared), str(EntryKind.ROLLBACK_PREPARED)]).fetchone() is not None

    def of_relations(self, database: int, relations: Sequence[int], limit: int) -> Iterator[LogEntry]:
        """Yield the newest entries, at most `limit`, that committed a write to one of these tables, the last first."""
        cursor = self._catalog.cursor()
        positions = cursor.execute(
            "SELECT DISTINCT e.commit_lsn FROM hg.log_write w JOIN hg.log_entry e ON w.commit_lsn IN (e.commit_lsn, e.prepared)"
            " WHERE e.dbid = ? AND list_contains(?, w.relid) AND e.kind NOT IN (?, ?) ORDER BY 1 DESC LIMIT ?",
            [database, list(relations), str(EntryKind.PREPARE), str(EntryKind.ROLLBACK_PREPARED), limit],
        ).fetchall()
        for (lsn,) in positions:
            entry = self.at(Lsn(lsn))
            if entry is not None:
                yield entry

    def at(self, commit_lsn: Lsn) -> LogEntry | None:
        """Return the entry at a position, or None if it has been removed."""
        entries = self._entries("commit_lsn = ?", [int(commit_lsn)])
        return entries[0] if entries else None

    def _entries(self, where: str, limits: Sequence[int | str]) -> list[LogEntry]:
        cursor = self._catalog.cursor()
        rows = cursor.execute(
            "SELECT commit_lsn, end_lsn, commit_time, xid, dbid, origin, origin_lsn, kind, gid, prepared, coalesce(seen, 0)"
            f" FROM hg.log_entry WHERE {where}",
            limits,
        ).fetchall()
        if not rows:
            return []
        writes = self._writes(cursor, "BETWEEN ? AND ?", [rows[0][0], rows[-1][0]])
        for row in rows:
            if row[7] == EntryKind.COMMIT_PREPARED:
                prepared_writes = self._writes(cursor, "= ?", [row[9]]).get(row[9], [])
                writes[row[0]] = [replace(write, seen=max(write.seen, Lsn(row[10]))) for write in prepared_writes]
        return [
            LogEntry(
                Lsn(commit),
                Lsn(end),
                commit_time,
                xid,
                database,
                origin,
                Lsn(origin_lsn),
                tuple(writes.get(commit, ())),
                EntryKind(kind),
                gid,
                Lsn(prepared),
                Lsn(seen),
            )
            for commit, end, commit_time, xid, database, origin, origin_lsn, kind, gid, prepared, seen in rows
        ]

    def _writes(self, cursor: CatalogCursor, condition: str, limits: list[int]) -> dict[int, list[TableWrite]]:
        """Return the writes by commit_lsn, of the entries whose commit_lsn meets a condition."""
        rows = cursor.execute(
            "SELECT commit_lsn, seq, lsn, relid, kind, version, changes, statement, options, bytes, seen, xid, files FROM hg.log_write"
            f" WHERE commit_lsn {condition} ORDER BY commit_lsn, seq",
            limits,
        ).fetchall()
        emitted: dict[tuple[int, int], Emitted] = {}
        if any(row[4] == "message" for row in rows):
            messages = cursor.execute(f"SELECT commit_lsn, seq, prefix, content FROM hg.log_message WHERE commit_lsn {condition}", limits)
            emitted = {(lsn, seq): Emitted(prefix, bytes(content)) for lsn, seq, prefix, content in messages.fetchall()}
        writes: dict[int, list[TableWrite]] = {}
        for commit, seq, lsn, relation, kind, version, changes, statement, options, size, seen, xid, where in rows:
            message = emitted.get((commit, seq))
            write = TableWrite(
                seq, relation, kind, version, changes, statement, options, Lsn(lsn), Lsn(commit), size, Lsn(seen), xid, message
            )
            writes.setdefault(commit, []).append(write.placed(where))
        return writes

    def versions(self, at: Lsn | None = None) -> dict[tuple[int, int], TableVersion]:
        """Return the version of each table, by (database, relation), visible at an LSN, by default the newest. Omit dropped tables."""
        cursor = self._catalog.cursor()
        rows = cursor.execute(
            "SELECT dbid, relid, arg_max(version, lsn), arg_max(dropped, lsn) FROM hg.table_version WHERE lsn <= ? GROUP BY dbid, relid",
            [int(at if at is not None else self._end)],
        ).fetchall()
        return {(dbid, relid): TableVersion(version) for dbid, relid, version, dropped in rows if not dropped}

    def version_at(self, database: int, relation: int, at: Lsn) -> int | None:
        """Return the version of one table visible at an LSN, or None if it did not exist."""
        row = (
            self._catalog.cursor()
            .execute(
                "SELECT version, dropped FROM hg.table_version WHERE dbid = ? AND relid = ? AND lsn <= ?"
                " ORDER BY lsn DESC, version DESC LIMIT 1",
                [database, relation, int(at)],
            )
            .fetchone()
        )
        return None if row is None or row[1] else int(row[0])

    def dropped(self) -> list[tuple[int, int, Lsn]]:
        """Return the dropped tables whose directory may still exist: (database, relation, LSN of the drop)."""
        rows = self._catalog.cursor().execute("SELECT dbid, relid, lsn FROM hg.table_version WHERE dropped").fetchall()
        return [(dbid, relid, Lsn(lsn)) for dbid, relid, lsn in rows]

    def forget_dropped(self, database: int, relation: int) -> None:
        """Remove the versions of a dropped table whose directory is gone."""
        sql = "DELETE FROM hg.table_version WHERE dbid = ? AND relid = ?"
        self._catalog.change(lambda cursor: cursor.execute(sql, [database, relation]), Step.CLEANING)

    def trim(self, before: Lsn) -> int:
        """Remove entries that end at or before `before` (no slot and no reader needs them). Return their number.

        Kept are the last entry, the highest xid, each table's newest version, and a PREPARE until its end has been removed.
        """
        keep = int(min(before, self._end - 1))
        removable = (
            "SELECT commit_lsn, end_lsn FROM hg.log_entry e WHERE end_lsn <= ? AND NOT (kind = 'prepare' AND NOT EXISTS (SELECT 1 FROM"
            " hg.log_entry f WHERE f.prepared = e.commit_lsn AND f.end_lsn <= ?))"
        )

        def delete(cursor: CatalogCursor) -> int:
            [(count, last)] = cursor.execute(f"SELECT count(*), max(end_lsn) FROM ({removable})", [keep, keep]).fetchall()
            if count:
                recorded_batch.keep(cursor, removable, [keep, keep])
                for name, value in (("xid", self._next_xid), (_TRIMMED, last)):
                    cursor.execute("DELETE FROM hg.counter WHERE name = ?", [name])
                    cursor.execute("INSERT INTO hg.counter VALUES (?, ?)", [name, value])
                for table in ("log_write", "log_message", "log_entry"):
                    cursor.execute(f"DELETE FROM hg.{table} WHERE commit_lsn IN (SELECT commit_lsn FROM ({removable}))", [keep, keep])
            cursor.execute(
                "DELETE FROM hg.table_version v WHERE lsn <= ? AND EXISTS (SELECT 1 FROM hg.table_version n"
                " WHERE n.dbid = v.dbid AND n.relid = v.relid AND n.lsn > v.lsn AND n.lsn <= ?)",
                [keep, keep],
            )
            return int(count)

        return int(self._catalog.change(delete, Step.CLEANING))

    def oldest_kept(self) -> Lsn:
        """Return the position from which on no entry has been removed.

        Catalogs that were trimmed before the position was recorded derive it from the first entry, whose first LSN follows the end of the
        entry before it. Entries of PREPARE may be older than others that were removed.
        """
        if trimmed := self.trimmed():
            return trimmed
        sql = (
            "SELECT min(least(e.commit_lsn, coalesce(w.lsn, e.commit_lsn))) FROM hg.log_entry e LEFT JOIN hg.log_write w USING (commit_lsn)"
            " WHERE e.kind <> ?"
        )
        first = self._catalog.cursor().execute(sql, [str(EntryKind.PREPARE)]).fetchone()
        return Lsn(first[0] - LSN_PER_CHANGE) if first is not None and first[0] is not None else self._end

    def trimmed(self) -> Lsn:
        """Return the position up to which entries have been removed, or INVALID if that is not recorded."""
        recorded = self._catalog.cursor().execute("SELECT max(value)::BIGINT FROM hg.counter WHERE name = ?", [_TRIMMED]).fetchone()
        return INVALID if recorded is None or recorded[0] is None else Lsn(recorded[0])

    def oldest_seen(self) -> Lsn:
        """Return the oldest position whose catalog an entry of the log needs, or the end of the log if there are no writes."""
        row = self._catalog.cursor().execute("SELECT min(seen) FROM hg.log_write").fetchone()
        return self._end if row is None or row[0] is None else Lsn(row[0])

    def needed_versions(self, before: Lsn) -> dict[tuple[int, int], int]:
        """Return by (database, relation) the oldest Delta version that the log, or a reader as of `before` or later, can need."""
        cursor = self._catalog.cursor()
        rows = cursor.execute(
            "SELECT dbid, relid, min(version) FROM (SELECT dbid, relid, arg_max(version, lsn) AS version FROM hg.table_version"
            " WHERE lsn <= ? GROUP BY dbid, relid UNION ALL SELECT dbid, relid, min(version) FROM hg.table_version WHERE lsn > ?"
            " GROUP BY dbid, relid UNION ALL SELECT e.dbid, w.relid, min(w.version) FROM hg.log_write w JOIN hg.log_entry e USING"
            " (commit_lsn) WHERE w.kind <> 'message' GROUP BY e.dbid, w.relid) GROUP BY dbid, relid",
            [int(before), int(before)],
        ).fetchall()
        return {(dbid, relid): version for dbid, relid, version in rows}
