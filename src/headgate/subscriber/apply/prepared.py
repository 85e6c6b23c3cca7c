"""Stores transactions that a publisher has prepared, durable and invisible, until their COMMIT PREPARED or ROLLBACK PREPARED.

The apply worker of a subscription with two_phase calls `ReceivedPrepared.handle` for each segment with a mark. States of one transaction:

    received   its segment has arrived; it is applied once and rolled back, so that conflicts show at PREPARE as in PostgreSQL
    prepared   its frames are in DIR/pg_twophase, synced, and then, in one catalog transaction, its row in hg.applied_prepare
               (pg_prepared_xacts) and the origin's progress: the publisher need not send it again
    committed  applied, the row removed and the origin's progress written in one commit; the files are removed afterwards
    rolled back  the row removed with the origin's progress; the files are removed afterwards

max_prepared_transactions limits them together with the node's own (`storage.transaction.prepared`). The name is PostgreSQL's:
``pg_gid_<subscription>_<xid at the publisher>``. Unlike in PostgreSQL, no row is locked in the meantime. A conflict with a local change
between PREPARE and COMMIT PREPARED shows at COMMIT PREPARED. Files without a row are left over from a crash, and are overwritten.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.catalog.catalog import Catalog
from headgate.catalog.known_types import KnownTypes
from headgate.catalog.physical import Cursor, one, rows, run
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import Subscription
from headgate.errors import PostgresError, cannot_write
from headgate.failpoint import Step, step
from headgate.lsn import INVALID, Lsn
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import write
from headgate.pgoutput.outline import scan, starts_of
from headgate.storage.lock import Patience
from headgate.storage.transaction.log import now
from headgate.storage.transaction.prepared import PreparedTransactions, check_room
from headgate.subscriber.apply.apply import Applier
from headgate.subscriber.apply.evolution import Follower
from headgate.subscriber.apply.stream import AppliedStream
from headgate.subscriber.host import Host
from headgate.subscriber.rows import conflict
from headgate.subscriber.rows.conflict import ApplyPlace
from headgate.subscriber.rows.conversion import InputSettings
from headgate.subscriber.rows.table_writer import TableRules
from headgate.subscriber.worker import Worker
from headgate.types import text_column
from headgate.walreceiver.segment import Segment, SegmentPiece

FOLDER = "pg_twophase"
_HEADER = b"w" + bytes(24)


@dataclass(frozen=True)
class PreparedTransaction:
    """A row of pg_prepared_xacts."""

    xid: int
    gid: str
    prepared: object
    owner: int
    database: int


def all_prepared(cursor: Cursor) -> list[PreparedTransaction]:
    """Return the prepared transactions of subscriptions, oldest first."""
    transactions = rows(cursor, "SELECT xid, gid, prepared, owner, dbid FROM hg.applied_prepare ORDER BY prepared, gid")
    return [PreparedTransaction(*row) for row in transactions]


def held(catalog: Catalog, prepared: PreparedTransactions) -> int:
    """Return the number of prepared transactions of a node: those of its subscriptions and its own."""
    with contextlib.closing(catalog.cursor()) as cursor:
        return len(all_prepared(cursor)) + len(prepared.all())


def is_held(catalog: Catalog, gid: str) -> bool:
    """Return whether a subscription has a prepared transaction of this name."""
    with contextlib.closing(catalog.cursor()) as cursor:
        return one(cursor, "SELECT 1 FROM hg.applied_prepare WHERE gid = ?", [gid]) is not None


def rollback_by_hand(host: Host, gid: str, database: int, user: int | None) -> None:
    """ROLLBACK PREPARED in a session, for example after the subscription was dropped. Removes the transaction completely."""
    with host.engine.prepared.ending(gid):
        _held_transaction(host.catalog, gid, database, user)
        host.catalog.change(lambda cursor: _forget(cursor, gid))
        _remove(host.data_dir / FOLDER, gid)


def commit_by_hand(host: Host, gid: str, database: int, user: int | None, patience: Patience) -> None:
    """COMMIT PREPARED in a session: apply the transaction, without changing the progress of the subscription.

    `user`: the role of the session, None for a superuser. `patience`: how the session waits for locks. A later COMMIT PREPARED on the
    publisher is an error, as in PostgreSQL.
    """
    with host.engine.prepared.ending(gid):
        subscription, xid, owner = _held_transaction(host.catalog, gid, database, user)
        segment = _load(host.data_dir / FOLDER, gid, m.CommitPrepared(INVALID, INVALID, now(), xid, gid))
        applier = _applier_of_session(host, database, subscription, owner, patience)
        applier.finish(segment, lambda cursor: _forget(cursor, gid))
        _remove(host.data_dir / FOLDER, gid)


def _applier_of_session(host: Host, database: int, subscription: int, owner: int, patience: Patience) -> Applier:
    """Return an applier for a prepared transaction that a session commits."""
    with contextlib.closing(host.catalog.cursor()) as cursor:  # the subscription may be gone; rows are then completed as its owner
        known = subscriptions.find(cursor, subscription) or Subscription(subscription, database, "", owner, "", ())
    types, commands = KnownTypes(host.catalog, database), host.commands()
    stream = AppliedStream(subscription, database, f"pg_{subscription}", everything=True)
    return Applier(
        host.engine,
        stream,
        lambda: InputSettings(text_column.TextSettings.of(host.settings), types.use()),
        patience,
        TableRules(commands.rows(known), unique=commands.unique, triggers=commands.triggers(known)),
        Follower(host.engine, stream),
    )


def _held_transaction(catalog: Catalog, gid: str, database: int, user: int | None) -> tuple[int, int, int]:
    """Return the subscription of a prepared transaction, its local xid and its owner.

    Raise 42704, 42501, 0A000 as PostgreSQL's LockGXact.
    """
    with contextlib.closing(catalog.cursor()) as cursor:
        row = one(cursor, "SELECT subid, xid, owner, dbid FROM hg.applied_prepare WHERE gid = ?", [gid])
    if row is None:
        raise PostgresError("42704", f'prepared transaction with identifier "{gid}" does not exist')
    subscription, xid, owner, held_in = row
    if user is not None and user != owner:
        hint = "Must be superuser or the user that prepared the transaction."
        raise PostgresError("42501", "permission denied to finish prepared transaction", hint=hint)
    if held_in != database:
        hint = "Connect to the database where the transaction was prepared to finish it."
        raise PostgresError("0A000", "prepared transaction belongs to another database", hint=hint)
    return int(subscription), int(xid), int(owner)


class ReceivedPrepared:
    """The prepared transactions of one subscription. See the module."""

    def __init__(self, worker: Worker, applier: Applier) -> None:
        self.worker, self.applier = worker, applier
        self.folder: Path = worker.host.data_dir / FOLDER

    def handle(self, segment: Segment, *, skipped: bool) -> None:
        """Execute the segment's mark. `skipped`: ALTER SUBSCRIPTION … SKIP names the transaction, so none of its changes are kept."""
        try:
            match segment.mark:
                case m.Prepare():
                    self._prepare(segment, segment.mark, skipped=skipped)
                case m.CommitPrepared() | m.RollbackPrepared():
                    gid = self._gid(segment.mark.xid)
                    with self.worker.engine.prepared.ending(gid):
                        self._end(segment.mark, gid)
                case None:
                    pass
        except PostgresError as error:
            if error.context is not None and "processing remote data" in error.context:
                raise
            raise error.within(self._context(segment)) from error

    def _context(self, segment: Segment) -> str:
        mark = segment.mark
        assert mark is not None
        name = {m.Prepare: "PREPARE", m.CommitPrepared: "COMMIT PREPARED", m.RollbackPrepared: "ROLLBACK PREPARED"}[type(mark)]
        match mark:
            case m.Prepare():
                finish = mark.prepare_lsn
            case m.CommitPrepared():
                finish = mark.commit_lsn
            case m.RollbackPrepared():
                finish = mark.rollback_end_lsn
        return conflict.context(self.worker.origin, ApplyPlace(name), mark.xid, Lsn(finish))

    def _gid(self, xid: int) -> str:
        return f"pg_gid_{self.worker.subscription.oid}_{xid}"

    # ---- PREPARE ----------------------------------------------------------------------------------------

    def _prepare(self, segment: Segment, mark: m.Prepare, *, skipped: bool) -> None:
        worker = self.worker
        if not skipped:
            self.applier.check(segment)
        gid = self._gid(mark.xid)
        if not is_held(worker.catalog, gid):
            check_room(worker.settings.integer("max_prepared_transactions"), held(worker.catalog, worker.engine.prepared))
        self._write(gid, segment, skipped=skipped)
        self.applier.learn(segment)
        subscription, xid = worker.subscription, worker.engine.log.next_xid()
        end = worker.engine.log.end

        def keep(cursor: Cursor) -> None:
            if one(cursor, "SELECT 1 FROM hg.applied_prepare WHERE gid = ?", [gid]) is None:
                run(
                    cursor,
                    "INSERT INTO hg.applied_prepare VALUES (?, ?, ?, ?, ?, make_timestamp(?))",
                    [gid, subscription.oid, subscription.database, subscription.owner, xid, now() + 946_684_800_000_000],
                )
            origins.advance(cursor, worker.origin, segment.end, end)

        worker.catalog.change(keep, Step.PREPARED)

    def _write(self, gid: str, segment: Segment, *, skipped: bool) -> None:
        """Write the descriptions of the changed relations, as of the start of the transaction, and the frames to durable files."""
        self.folder.mkdir(exist_ok=True)
        needed = segment.touched | {oid for _, _, message in segment.others if isinstance(message, m.Truncate) for oid in message.relations}
        known = [] if skipped else [relation for oid, relation in self.applier.relations.items() if oid in needed]
        described = [_HEADER + write(dataclasses.replace(relation, xid=None)) for relation in known]
        pieces = () if skipped else segment.pieces
        path = self.folder / gid
        try:
            with step(Step.PREPARED_SEGMENT), Path(f"{path}.segment").open("wb") as data, Path(f"{path}.index").open("wb") as index:
                data.write(b"".join(described))
                index.write(np.array([len(description) for description in described], np.uint32).data)
                for piece in pieces:
                    data.write(piece.read().data)
                    index.write(piece.lengths.data)
                for file in (data, index):
                    file.flush()
                    self._sync(file.fileno())
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                self._sync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise cannot_write(error, path) from error

    def _sync(self, descriptor: int) -> None:
        if self.worker.engine.durable:
            os.fsync(descriptor)

    # ---- its end ----------------------------------------------------------------------------------------

    def _end(self, mark: m.CommitPrepared | m.RollbackPrepared, gid: str) -> None:
        match mark:
            case m.CommitPrepared():
                if not is_held(self.worker.catalog, gid):
                    raise PostgresError("42704", f'prepared transaction with identifier "{gid}" does not exist')
                self.applier.finish(_load(self.folder, gid, mark), lambda cursor: _forget(cursor, gid))
            case m.RollbackPrepared():
                self._rollback(mark, gid)
        _remove(self.folder, gid)

    def _rollback(self, mark: m.RollbackPrepared, gid: str) -> None:
        """Remove the row with the origin's progress. A transaction that was finished by hand does not raise an error, as in PostgreSQL."""
        worker = self.worker
        end = worker.engine.log.end

        def forget(cursor: Cursor) -> None:
            _forget(cursor, gid)
            origins.advance(cursor, worker.origin, Lsn(mark.rollback_end_lsn), end)

        worker.catalog.change(forget)


def _remove(folder: Path, gid: str) -> None:
    for suffix in (".segment", ".index"):
        with contextlib.suppress(OSError):
            (folder / f"{gid}{suffix}").unlink()


def _forget(cursor: Cursor, gid: str) -> None:
    run(cursor, "DELETE FROM hg.applied_prepare WHERE gid = ?", [gid])


def _load(folder: Path, gid: str, mark: m.CommitPrepared) -> Segment:
    path = folder / gid
    try:
        lengths = np.fromfile(f"{path}.index", np.uint32)
        size = int(lengths.sum(dtype=np.int64))
        data = np.memmap(f"{path}.segment", np.uint8, "r", shape=(size,)) if size else np.zeros(0, np.uint8)
    except OSError as error:
        raise PostgresError("58030", f'could not read file "{path}": {error.strerror}') from error
    outline = scan(data, starts_of(lengths), lengths.astype(np.int64), 0)
    prepared = outline.transactions()
    transactions = dataclasses.replace(
        prepared,
        commit_lsn=np.array([mark.commit_lsn], np.int64),
        end_lsn=np.array([mark.end_lsn], np.int64),
        commit_time=np.array([mark.commit_time], np.int64),
        xid=np.array([mark.xid], np.int64),
    )
    touched: Iterable[int] = np.unique(outline.relations).tolist()
    pieces = (SegmentPiece(0, len(lengths), size, path=str(path)),) if size else ()
    return Segment(pieces, transactions, outline.others, size, frozenset(touched), outline.only_inserts, mark)
