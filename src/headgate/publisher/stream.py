"""The stream of one slot: log entries in, pgoutput frames out, as whole transactions in commit order.

The walsender (and pg_logical_slot_…_binary_changes) calls `Stream.next`, which returns one `StreamBatch` at a time. Many small
transactions form one batch: the changes of one relation are read, filtered and encoded together, and then ordered by LSN. A transaction
that is too large for that, or that consists of more than B … C (`framing`), is a batch of its own. Its frames are generated lazily, write
by write, in bounded memory. Invariants: a change is judged by the catalog as of its position in the log (`historic_snapshot`). A
transaction of which nothing is published only advances the position. An entry that alters publications with reconcile = true is a batch of
its own, too: after its own changes it contains the rows that the alteration adds or removes (`alteration`).

Traced: entries 0/1500 (insert a=1, a=7 into t: seq 0) and 0/1600 (ALTER PUBLICATION: no write; TRUNCATE t: seq 0), filter a > 5.
The first write is judged by the state up to 0/1600, the second one by the state from there. Frames, by key: B R I(7) C of the first entry,
B R T C of the second; position 0/1628, the end of the second entry.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headgate.catalog.history import PublishedState
from headgate.catalog.known_types import KnownTypes
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.pgoutput import encode
from headgate.pgoutput import message as m
from headgate.pgoutput.encode import Frames
from headgate.publisher import alteration, framing, tasks
from headgate.publisher.alteration import Crossing, PublicationAlteration
from headgate.publisher.announcement import Announcer, frame
from headgate.publisher.change_reader import EXACT, ChangeReader
from headgate.publisher.decoded import ChangeCache
from headgate.publisher.framing import Counts, StreamOptions, TransactionPiece
from headgate.publisher.historic_snapshot import Judgement
from headgate.publisher.published import Published, named, published, truncated
from headgate.publisher.rendering import Rendered, Renderer, ValueForm
from headgate.storage.spark.failure import from_spark
from headgate.storage.transaction.log import EntryKind, LogEntry, TableWrite, now
from headgate.storage.transaction.transaction import CASCADE, RESTART_IDENTITY
from headgate.types.text_column import TextSettings

if TYPE_CHECKING:
    from headgate.storage.transaction.storage import Storage

FEW = 50
"""With fewer changes than this per message, all frames are ordered by copying."""


@dataclass
class Pieces:
    """The parts of a batch."""

    frames: list[Frames] = field(default_factory=list)
    """The changes, by relation."""
    keys: list[Numbers] = field(default_factory=list)
    """The keys of `frames`."""
    published: list[Numbers] = field(default_factory=list)
    """The LSNs of the changes and TRUNCATEs that are sent. A transaction without any is not sent."""
    messages: list[tuple[int, bytes]] = field(default_factory=list)
    """The messages around the changes, with their keys."""

    def message_frames(self) -> tuple[Frames, Numbers]:
        """Return the messages as frames, with their keys."""
        offsets = np.cumsum([0, *(len(part) for _, part in self.messages)])
        data = np.frombuffer(b"".join(part for _, part in self.messages), np.uint8)
        return Frames(data, offsets.astype(np.int64)), np.array([key for key, _ in self.messages], np.int64)

    def in_order(self) -> list[memoryview | bytes]:
        """Return all frames in key order; `messages` must be sorted. Changes of one relation in long transactions are not copied."""
        if len(self.frames) == 1 and len(self.messages) * FEW < len(self.keys[0]):
            whole, keys = self.frames[0], self.keys[0]
            cuts = [0, *(int(index) for index in np.searchsorted(keys, [key for key, _ in self.messages])), len(keys)]
            parts: list[memoryview | bytes] = [whole.slice(0, cuts[1])]
            for (_, part), first, last in zip(self.messages, cuts[1:], cuts[2:], strict=False):
                parts += [part, whole.slice(first, last)]
            return parts
        frames, keys_of_all = self.message_frames()
        return [encode.interleave([*self.frames, frames], [*self.keys, keys_of_all]).bytes()]


_log = logging.getLogger("headgate.publisher")

ENTRIES = 1000
"""The number of transactions read from the log at once."""
CHANGES = 200_000
"""The most changes in a batch. A transaction with more is a batch of its own."""

SMALL = 10_000
"""The most changes of a write that is read at once."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StreamRequest:
    """The client's request."""

    publications: tuple[str, ...]
    binary: bool = False
    session: TextSettings = EXACT
    options: StreamOptions = field(default_factory=StreamOptions)
    created: Lsn = INVALID
    """The LSN at which the slot was created."""


@dataclass(frozen=True)
class StreamBatch:
    """Frames to send, and the log position reached with them."""

    frames: Iterable[bytes | memoryview]
    position: Lsn
    counts: Counts = field(default_factory=Counts)


class _LargeTransactionError(Exception):
    """A batch contains a transaction that must be streamed. The argument is its index."""


@dataclass
class _JudgedWrites:
    """Consecutive writes that are judged by the same state of the catalog, by relation. TRUNCATEs are by statement."""

    state: PublishedState
    writes: dict[int, list[TableWrite]] = field(default_factory=dict)
    truncates: dict[tuple[Lsn, int], list[TableWrite]] = field(default_factory=dict)


class Stream:
    """The changes of one database that the requested publications publish, from a position on.

    `shared` caches the changes read by streams. All streams of a node use the same one.
    """

    def __init__(self, storage: Storage, database: int, slot: str, position: Lsn, request: StreamRequest, shared: ChangeCache) -> None:
        """Raise 55000 if the log from `position` on is no longer kept: the stream would lack changes."""
        trimmed = storage.log.trimmed()
        if position < trimmed:
            raise PostgresError(
                "55000", f'cannot read from logical replication slot "{slot}"',
                detail=f"It is at LSN {position}, and the log is only kept from LSN {trimmed} on.",
            )  # fmt: skip
        self.storage = storage
        self.database = database
        self.slot = slot
        self.position = position
        self.request = request
        self._shared = shared
        form = ValueForm(request.binary, request.session, request.options.encoding)
        self._renderer = Renderer(ChangeReader(storage, self._shared, database), form)
        self.announcer = Announcer(storage.catalog, database, request.options.encoding)
        self._types = KnownTypes(storage.catalog, database)
        self.options = request.options
        self._judgement = Judgement(storage.catalog, database, request.created)
        self._single_batches = 0
        """The number of following entries that are a batch each, because a batch with them failed. So the error names its transaction."""
        self._missing: set[str] = set()
        """The missing publications that have been logged."""
        self._altered: dict[Lsn, tuple[PublicationAlteration, list[Crossing]]] = {}
        """The entries of the batch that alter publications with reconcile = true, by commit LSN."""
        self._shared.enter(database)

    def close(self) -> None:
        """Close the catalog cursor and leave the shared cache."""
        self._shared.leave(self.database)
        self._judgement.close()

    def next(self, until: Lsn | None = None, *, alone: bool = False) -> StreamBatch | None:
        """Return the next batch of entries that commit before `until`, or None if the log has no more. `alone`: of one transaction.

        As in PostgreSQL, a transaction is included if `until` is inside the record of its commit: a stream from there skips it. Raise the
        errors of filters and column lists, with the CONTEXT of the change callback. The transactions before the failing one have been
        returned by then.
        """
        self._types.use()
        end = self.storage.log.end
        limit = 1 if alone or self._single_batches else ENTRIES
        entries = self.storage.log.entries(self.position, self.database, limit)
        if until is not None:
            entries = [entry for entry in entries if entry.commit_lsn < until]
        self._altered = self._alterations(entries)
        complete = len(entries) < limit
        batch_entries = self._until_full(entries)
        complete = complete and len(batch_entries) == len(entries)
        if not batch_entries:
            reached = end if until is None else min(end, until)
            if reached <= self.position:
                return None
            self.position = reached
            return StreamBatch((), reached)
        try:
            batch = self._batch(
                batch_entries, max(batch_entries[-1].end_lsn, end) if complete and until is None else batch_entries[-1].end_lsn
            )
        except PostgresError:
            if len(batch_entries) == 1:
                raise
            self._single_batches = len(batch_entries)
            self._judgement.forget()
            self.announcer = Announcer(self.storage.catalog, self.database, self.options.encoding)
            return self.next(until, alone=alone)
        self._single_batches = max(0, self._single_batches - 1)
        self.position = batch.position
        self._add_counts()
        return batch

    def _alterations(self, entries: Sequence[LogEntry]) -> dict[Lsn, tuple[PublicationAlteration, list[Crossing]]]:
        alterations = {}
        for lsn, (before, after) in self._judgement.following(entries).items():
            altered = alteration.alteration(before, after, self.request.publications)
            if altered is not None:
                alterations[lsn] = altered, altered.crossings(before)
        return alterations

    def _add_counts(self) -> None:
        """Add the judged changes of the returned batch to the node's statistics."""
        self._shared.tally.add(self.database, self._renderer.judged)

    def _batch(self, entries: Sequence[LogEntry], position: Lsn) -> StreamBatch:
        counts = Counts()
        self._renderer.judged.clear()  # counts of a batch that failed or was too large
        if self.options.only_local:
            entries = [entry for entry in entries if entry.origin is None]
            if not entries:
                return StreamBatch((), position, counts)
        if len(entries) == 1 and self._needs_own_batch(entries[0]):
            return StreamBatch(self._frames_of(entries[0], counts), position, counts)
        pieces = Pieces()
        for group in self._by_state(entries):
            self._render(group, pieces)
        try:
            frames = self._assemble(entries, pieces)
        except _LargeTransactionError as large:
            self.announcer = Announcer(self.storage.catalog, self.database, self.options.encoding)
            index = int(large.args[0])
            if index:
                return self._batch(entries[:index], entries[index - 1].end_lsn)
            return StreamBatch(self._frames_of(entries[0], counts), entries[0].end_lsn, counts)
        counts.total_txns = sum(bool(entry.writes) for entry in entries)
        counts.total_bytes = sum(len(part) for part in frames)
        return StreamBatch(frames, position, counts)

    def _needs_own_batch(self, entry: LogEntry) -> bool:
        """Return whether the entry must be a batch of its own: it is large, has more than changes between B and C, or is an alteration."""
        if (
            entry.kind is not EntryKind.COMMIT
            or entry.commit_lsn in self._altered
            or any(write.kind == "message" for write in entry.writes)
        ):
            return True
        changes = sum(write.changes for write in entry.writes)
        return changes > CHANGES or (self.options.streaming and changes * framing.CHANGE_BYTES * 4 > self.options.work_mem)

    def _until_full(self, entries: Sequence[LogEntry]) -> list[LogEntry]:
        """Return the first entries that together make one batch, at least one."""
        batch_entries: list[LogEntry] = []
        total = 0
        for entry in entries:
            total += sum(write.changes for write in entry.writes)
            if batch_entries and (total > CHANGES or self._needs_own_batch(entry)):
                break
            batch_entries.append(entry)
            if self._needs_own_batch(entry):
                break
        return batch_entries

    # ---- the catalog at each place ----------------------------------------------------------------------
    def _by_state(self, entries: Sequence[LogEntry]) -> list[_JudgedWrites]:
        groups: list[_JudgedWrites] = []
        for _, write, state in self._judgement.states(entries):
            if not groups or groups[-1].state is not state:
                groups.append(_JudgedWrites(state))
            group = groups[-1]
            if write.kind == "truncate":
                group.truncates.setdefault((write.commit_lsn, write.statement), []).append(write)
            else:
                group.writes.setdefault(write.relation, []).append(write)
        return groups

    def _context(self, error: PostgresError, lsn: Lsn, callback: str = "change") -> PostgresError:
        return error.within(f'slot "{self.slot}", output plugin "pgoutput", in the {callback} callback, associated LSN {lsn}')

    def _plan(self, state: PublishedState, write: TableWrite) -> Published | None:
        callback = "truncate" if write.kind == "truncate" else "change"
        try:
            missing = self._log_missing if self.options.announced >= 18 else None
            publications = named(state, self.request.publications, missing)
            return published(state, publications, write.relation, self.options.announced)
        except PostgresError as error:
            raise self._context(error, write.lsn, callback) from error

    def _log_missing(self, name: str) -> None:
        """Log once that a missing publication is skipped (LoadPublications of 18)."""
        if name not in self._missing:
            self._missing.add(name)
            _log.warning('skipped loading publication "%s"', name)

    # ---- small transactions -----------------------------------------------------------------------------
    def _render(self, group: _JudgedWrites, pieces: Pieces) -> None:
        self.announcer.move(group.state)
        truncates = self._truncates(group)
        last: dict[int, int] = {}
        for oid, writes in group.writes.items():
            plan = self._plan(group.state, writes[0])
            if plan is None or not plan.actions:
                continue
            rendered = self._rendered(plan, writes)
            if rendered is not None and len(rendered.lsn):
                pieces.frames.append(rendered.frames)
                pieces.keys.append(rendered.lsn * 4 + 2)
                pieces.published.append(rendered.lsn)
                last[oid] = int(rendered.lsn[-1])
                cuts = [lsn for lsn, plans, _ in truncates if any(plan.relation.oid == oid for plan in plans)]
                self._announce_rows(plan, rendered.lsn, cuts, pieces)
        for lsn, plans, writes in truncates:
            self._truncate(lsn, plans, writes, pieces)
            for plan in plans:
                if last.get(plan.relation.oid, 0) < lsn:
                    self.announcer.forget(plan.relation.oid)

    def _rendered(self, plan: Published, writes: Sequence[TableWrite]) -> Rendered | None:
        with self._with_context(writes[0].lsn):
            rendered = self._renderer.small(plan, writes, now())
            if rendered is not None:
                return rendered
            parts = [part for write in writes for part in self._renderer.large(plan, write, now())]
        if not parts:
            return None
        lsn = np.concatenate([part.lsn for part in parts])
        return Rendered(encode.interleave([part.frames for part in parts], [part.lsn for part in parts]), np.sort(lsn))

    def _announce_rows(self, plan: Published, lsn: Numbers, cuts: Sequence[Lsn], pieces: Pieces) -> None:
        """Add an announcement before the first change, and before the first change after each TRUNCATE of the relation."""
        if not self.announcer.has_announced(plan.relation.oid) and (not cuts or lsn[0] < cuts[0]):
            pieces.messages.append((int(lsn[0]) * 4 + 1, self.announcer.announce(plan, now())))
        for number, cut in enumerate(cuts):
            index = int(np.searchsorted(lsn, int(cut)))
            next_cut = cuts[number + 1] if number + 1 < len(cuts) else None
            if index < len(lsn) and (next_cut is None or lsn[index] < next_cut):
                pieces.messages.append((int(lsn[index]) * 4 + 1, self.announcer.announce(plan, now())))

    def _truncates(self, group: _JudgedWrites) -> list[tuple[Lsn, list[Published], list[TableWrite]]]:
        """Return the TRUNCATEs that publish something: LSN, plans, writes."""
        truncates = []
        for writes in group.truncates.values():
            plans = [plan for write in writes if (plan := self._plan(group.state, write)) is not None and truncated(plan)]
            if plans:
                truncates.append((writes[0].lsn, plans, writes))
        return truncates

    def _truncate(self, lsn: Lsn, plans: Sequence[Published], writes: Sequence[TableWrite], pieces: Pieces) -> None:
        described = b"".join(self.announcer.announce(plan, now()) for plan in plans)
        message = _truncate_message(plans, writes)
        pieces.messages.append((int(lsn) * 4 + 2, described + frame(message, int(lsn), now())))
        pieces.published.append(np.array([int(lsn)], np.int64))

    def _assemble(self, entries: Sequence[LogEntry], pieces: Pieces) -> list[memoryview | bytes]:
        """Add begin and end of each transaction that publishes something, and return all frames in order."""
        published_lsns = np.sort(np.concatenate(pieces.published)) if pieces.published else np.array([], np.int64)
        for entry in entries:
            if not entry.writes:
                continue
            first, last = np.searchsorted(published_lsns, [int(entry.writes[0].lsn), int(entry.commit_lsn)])
            if first == last:
                framing.log_skipped(entry)
                continue
            first_lsn = int(published_lsns[first])
            pieces.messages.append((first_lsn * 4, framing.begin(entry, first_lsn, self.options)))
            pieces.messages.append((int(entry.commit_lsn) * 4 + 3, framing.end(entry, self.options)))
        if not pieces.published:
            return []
        pieces.messages.sort(key=lambda message: message[0])
        if self.options.streaming:
            self._check_size(entries, pieces)
        return pieces.in_order()

    def _check_size(self, entries: Sequence[LogEntry], pieces: Pieces) -> None:
        """Raise _LargeTransactionError for the first transaction that must be streamed."""
        ends = np.array([int(entry.end_lsn) * 4 for entry in entries], np.int64)
        sizes = np.zeros(len(entries) + 1, np.int64)
        messages = pieces.message_frames()
        for frames, keys in [*zip(pieces.frames, pieces.keys, strict=True), messages]:
            np.add.at(sizes, np.searchsorted(ends, keys, side="right"), np.diff(frames.offsets) + framing.CHANGE_BYTES)
        large = np.flatnonzero(sizes > self.options.work_mem)
        if len(large):
            raise _LargeTransactionError(int(large[0]))

    # ---- a transaction of its own -----------------------------------------------------------------------
    def _frames_of(self, entry: LogEntry, counts: Counts) -> Iterator[bytes | memoryview]:
        """Yield the frames of one entry, write by write."""
        if entry.kind is EntryKind.MESSAGE:
            if self.options.messages:
                yield from (framing.emitted(write, self.options, transactional=False).bytes() for write in entry.writes)
            return
        prepared = self.storage.log.at(entry.prepared) if entry.prepared else None
        if framing.has_changes(entry, self.options) and (entry.writes or entry.kind is EntryKind.COMMIT):
            # a PREPARE that was rolled back is sent without its changes, because its files are removed; its ROLLBACK PREPARED follows
            is_rolled_back = entry.kind is EntryKind.PREPARE and self.storage.log.is_rolled_back(entry.commit_lsn)
            # a client that has the PREPARE, but not the COMMIT PREPARED that follows, must not be at the LSN of the latter yet
            framed = prepared if prepared is not None and framing.prepares(entry, self.options) else entry
            yield from framing.whole(framed, () if is_rolled_back else self._pieces(entry), self.options, counts)
        self._add_counts()
        yield framing.finish(entry, prepared, self.options)

    def _pieces(self, entry: LogEntry) -> Iterator[TransactionPiece]:
        """Yield the published changes of a transaction in order. If it may be streamed, each relation is announced in it."""
        if self.options.streaming:
            self.announcer.forget_all()
        statements: dict[int, list[tuple[TableWrite, PublishedState]]] = {}
        altered, crossed = self._altered.get(entry.commit_lsn, (None, []))
        states = self._judgement.states([entry])
        if altered is not None:
            states = [(log_entry, write, altered.judged(state)) for log_entry, write, state in states]
        for _, write, state in states:
            if write.kind == "truncate":
                statements.setdefault(write.statement, []).append((write, state))
        for _, write, state in states:
            xid = write.xid or entry.xid
            self.announcer.move(state)
            if write.kind == "message":
                if self.options.messages:
                    yield TransactionPiece(framing.emitted(write, self.options, transactional=True), int(write.lsn), xid, 1)
            elif write.kind == "truncate":
                if write is statements[write.statement][0][0]:
                    yield from self._truncate_pieces(state, [truncate for truncate, _ in statements[write.statement]], xid)
            else:
                yield from self._write_pieces(state, write, xid)
        if altered is not None:
            self.announcer.move(altered.state)
            for crossing in crossed:
                yield from self._crossing(entry, crossing)

    def _crossing(self, entry: LogEntry, crossing: Crossing) -> Iterator[TransactionPiece]:
        """Yield the rows of a table that an alteration adds to or removes from the published rows."""
        oid, lsn, last = crossing.relation.oid, int(entry.commit_lsn), None
        with self._with_context(entry.commit_lsn):
            for plan, rows in alteration.changes(self.storage, crossing, entry.commit_lsn, entry.end_lsn):
                part = self._renderer.of_rows(plan, rows, now())
                if plan is not last or not self.announcer.has_announced(oid):
                    last = plan
                    yield TransactionPiece(framing.frames_of(self.announcer.announce(plan, now())), lsn, entry.xid, 0)
                yield TransactionPiece(part.frames, lsn, entry.xid, len(part.frames))
        if last is not crossing.now:
            self.announcer.forget(oid)

    @contextlib.contextmanager
    def _with_context(self, lsn: Lsn) -> Iterator[None]:
        """Give errors the context of the change callback."""
        try:
            yield
        except PostgresError as error:
            raise self._context(error, lsn) from error
        except (GeneratorExit, KeyboardInterrupt):
            raise
        except Exception as error:
            raise self._context(from_spark(error), lsn) from error

    def _write_pieces(self, state: PublishedState, write: TableWrite, xid: int) -> Iterator[TransactionPiece]:
        plan = self._plan(state, write)
        if plan is None or not plan.actions:
            return
        with self._with_context(write.lsn):
            for part in self._parts(plan, write):
                if not len(part.lsn):
                    continue
                first = int(part.lsn[0])
                if not self.announcer.has_announced(plan.relation.oid):
                    yield TransactionPiece(framing.frames_of(self.announcer.announce(plan, now())), first, xid, 0)
                yield TransactionPiece(part.frames, first, xid, len(part.frames))

    def _parts(self, plan: Published, write: TableWrite) -> Iterable[Rendered]:
        if tasks.takes(self._renderer, write):
            return tasks.encode(self._renderer, plan, write, now())
        if write.changes <= SMALL:
            rendered = self._renderer.small(plan, [write], now())
            if rendered is not None:
                return [rendered]
        return self._renderer.large(plan, write, now())

    def _truncate_pieces(self, state: PublishedState, writes: Sequence[TableWrite], xid: int) -> Iterator[TransactionPiece]:
        plans = [plan for truncate in writes if (plan := self._plan(state, truncate)) is not None and truncated(plan)]
        if plans:
            described = b"".join(self.announcer.announce(plan, now()) for plan in plans)
            lsn = int(writes[0].lsn)
            message = frame(_truncate_message(plans, writes), lsn, now())
            yield TransactionPiece(framing.frames_of(described + message), lsn, xid, len(plans))
            for plan in plans:
                self.announcer.forget(plan.relation.oid)


def _truncate_message(plans: Sequence[Published], writes: Sequence[TableWrite]) -> m.Truncate:
    options = writes[0].options
    return m.Truncate(tuple(plan.relation.oid for plan in plans), bool(options & CASCADE), bool(options & RESTART_IDENTITY))
