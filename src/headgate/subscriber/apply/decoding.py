"""Decodes a segment in Spark tasks: a task reads, decodes and converts slices of the segment (the `Source` of `changes.tasks`).

The result equals that of `batch` in the driver, because both use `pgoutput.decode` and `conversion`.

    driver    cuts the segment into slices without reading it, and gives tasks the state before each slice: the descriptions of
              relations, and the transaction that has begun. Executors of a cluster cannot read the segment's file, so the driver
              writes the slices to the data location for them
    task      reads its slices, applies the descriptions that hold there, decodes, converts the values, and writes the histories
              of the tables (`table_history`)

Invariant: a task depends on nothing but its slices and itself, so that Spark may run it again. An error in a task is raised there
without the values that PostgreSQL's message shows, because executors have their own logs. The applier then decodes the failed segment
again in the driver, and raises the error from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Relation
from headgate.changes import tasks
from headgate.changes.tasks import Appended, Made, TaskLeaf
from headgate.errors import PostgresError
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.pgoutput.outline import Bytes, Numbers, Transactions, starts_of
from headgate.storage import write
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark import exchange, failure
from headgate.subscriber.rows import conversion, table_history
from headgate.subscriber.rows.conflict import ApplyPlace
from headgate.subscriber.rows.conversion import InputSettings
from headgate.subscriber.rows.relation_map import Mapping as TableMapping
from headgate.walreceiver.segment import Segment, SegmentPart, SegmentPiece

SLICE_BYTES = 4 << 20
"""The number of bytes of a segment that a task decodes at a time."""
LEAST_BYTES = 256 << 10
HISTORY_BYTES = 32 << 20
"""The number of bytes of history rows after which a task writes a file."""
MOST_FRAME = 16 << 20
"""The maximum size in bytes of a change that passes through Spark, where it is a value in Java's heap."""

Descriptions = tuple[tuple[int, m.Relation], ...]
"""Relation messages by sequence number, in order. The number is -1 for those from before the segment."""


@dataclass(frozen=True)
class TableChanges:
    """Selects the changes to apply to one local table: those of the mapped published relations from a commit LSN and sequence number on."""

    mappings: tuple[TableMapping, ...]
    applied_from: int
    restarted: int
    """The sequence number of the last TRUNCATE … RESTART IDENTITY, or -1. Rows inserted before it are dropped, because they would use up
    the first numbers of the sequences.
    """
    truncated: int = -1
    """If tasks apply the changes: the sequence number of the last TRUNCATE, or -1. Changes before it are decoded and dropped."""

    def chosen(self, changes: decode.Changes, commit_lsn: Numbers) -> decode.Changes:
        """Return the changes to apply.

        `commit_lsn`: of the transaction that had begun before the run of frames, then of the transactions that begin in it.
        """
        return changes.where((commit_lsn[changes.txn + 1] >= self.applied_from) & (changes.seq >= self.restarted))

    def frame(
        self, changes: decode.Changes, commit_lsn: Numbers, session: InputSettings, place: ApplyPlace, *, checked_later: str = ""
    ) -> pa.Table:
        """Return the result of `chosen` as a changes frame. `checked_later` is as for `conversion.changes_frame`."""
        mapping = self._mapping(changes)
        return conversion.changes_frame(changes, commit_lsn[changes.txn + 1], mapping, session, place, checked_later=checked_later)

    def history(
        self, changes: decode.Changes, frame: pa.Table, history: Relation, transactions: Transactions, session: InputSettings,
        place: ApplyPlace,
    ) -> pa.Table:  # fmt: skip
        """Return the result of `frame`, with whole old rows, as rows of the table's history."""
        mapping = self._mapping(changes)
        old = conversion.old_rows(changes, mapping, session, place, mapping.local.columns)
        return table_history.rows(mapping.local, history, frame, transactions, old)

    def _mapping(self, changes: decode.Changes) -> TableMapping:
        (mapping,) = (candidate for candidate in self.mappings if candidate.remote == changes.relation)
        return mapping


@dataclass(frozen=True)
class Slice:
    """Consecutive frames of a segment: in the segment's file, or in `content` (bytes, or a file of the exchange).

    `before`: the transaction that has begun before them, if any. `content` is the lengths followed by the frames.
    """

    first_seq: int
    before: Transactions
    frames: int
    size: int
    path: str | None
    offset: int
    index_offset: int
    content: bytes | DataPath | None = None

    @classmethod
    def of(cls, segment: Segment, piece: SegmentPiece) -> Slice:
        part = SegmentPart((piece,))
        content = None if piece.data is None else content_of(piece)
        before, frames = begun_before(segment, part), piece.frames
        return cls(piece.first_seq, before, frames, piece.size, piece.path, piece.offset, piece.index_offset, content)

    def read(self) -> tuple[Bytes, Numbers]:
        if self.content is None:
            lengths = np.fromfile(f"{self.path}.index", np.uint32, self.frames, offset=4 * self.index_offset)
            return np.fromfile(f"{self.path}.segment", np.uint8, self.size, offset=self.offset), lengths.astype(np.int64)
        stored = self.content if isinstance(self.content, bytes) else data_location.local(self.content).read_bytes()
        content = np.frombuffer(stored, np.uint8)
        return content[4 * self.frames :], content[: 4 * self.frames].view(np.uint32).astype(np.int64)


@dataclass(frozen=True)
class SegmentSource:
    """Makes the changes of some local tables from the slices whose numbers a task receives."""

    slices: tuple[Slice, ...]
    descriptions: Descriptions
    tables: tuple[TableChanges, ...]
    session: InputSettings
    histories: Mapping[int, TaskLeaf] = field(default_factory=dict)
    """The tables that hold the histories of `tables`, by their numbers."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Made]:
        """See `changes.tasks.Source`."""
        recorded: dict[int, list[pa.Table]] = {}
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._decode_slice(number, recorded)
                yield from self._write(recorded, HISTORY_BYTES)
        yield from self._write(recorded, 0)

    def _write(self, recorded: dict[int, list[pa.Table]], least: int) -> Iterator[Appended]:
        """Write the recorded rows of each table that has at least `least` bytes of them."""
        for number, tables in list(recorded.items()):
            if sum(table.nbytes for table in tables) >= least:
                leaf, rows = self.histories[number], pa.concat_tables(recorded.pop(number))
                yield Appended(number, write.append_rows(leaf.table, leaf.relation, leaf.state, rows).actions)

    def _decode_slice(self, place: int, recorded: dict[int, list[pa.Table]]) -> Iterator[tuple[int, int, pa.Table]]:
        part = self.slices[place]
        data, lengths = part.read()
        numbers = {mapping.remote: number for number, table in enumerate(self.tables) for mapping in table.mappings}
        try:
            decoded = decode.decode(
                data, starts_of(lengths.astype(np.uint32)), lengths, relations=described_before(self.descriptions, part.first_seq),
                first_seq=part.first_seq, only=numbers,
            )  # fmt: skip
            commit_lsn = commit_lsns(part.before, decoded.transactions)
            for changes in decoded.changes:
                number = numbers[changes.relation]
                table, history = self.tables[number], self.histories.get(number)
                if history is not None:
                    table = replace(table, restarted=-1)
                chosen = table.chosen(changes, commit_lsn)
                frame = table.frame(chosen, commit_lsn, self.session, ApplyPlace())
                if history is not None and frame.num_rows:
                    transactions = part.before.then(decoded.transactions)
                    rows = table.history(chosen, frame, history.relation, transactions, self.session, ApplyPlace())
                    recorded.setdefault(number, []).append(rows)
                frame = frame.filter(pc.greater(frame["seq"], table.truncated))
                if frame.num_rows:
                    yield number, place, frame
        except PostgresError as error:
            raise RuntimeError(failure.marked(error.sqlstate, tasks.REFUSED)) from None


def slices_of(segment: Segment, count: int) -> list[Slice]:
    """Split a segment into slices for about `count` tasks."""
    size = min(max(segment.size // count, LEAST_BYTES), SLICE_BYTES)
    return [Slice.of(segment, piece) for part in segment.parts(size) for piece in part.pieces]


def content_of(piece: SegmentPiece) -> bytes:
    """Return the lengths of the frames of a piece, followed by its bytes."""
    return piece.lengths.astype(np.uint32).tobytes() + piece.read().tobytes()


@contextlib.contextmanager
def handed_over(slices: Sequence[Slice], place: DataPath) -> Iterator[list[Slice]]:
    """Write the slices into files that executors can read, and delete the files at the end."""
    with exchange.folder(place, "contents") as folder:

        def write(part: Slice) -> Slice:
            data, lengths = part.read()
            path = folder / f"{part.first_seq}"
            with data_location.written(path, is_cached=False) as file:
                file.write_bytes(lengths.astype(np.uint32).tobytes() + data.tobytes())
            return replace(part, content=path)

        yield data_location.together(place, write, slices)


def begun_before(segment: Segment, part: SegmentPart) -> Transactions:
    begun = int(np.searchsorted(segment.transactions.begin, part.first_seq, side="left"))
    return segment.transactions.slice(max(begun - 1, 0), begun)


def commit_lsns(before: Transactions, decoded: Transactions) -> Numbers:
    """Return the commit LSN of the transaction that has begun before a run of frames (0 for none), then those of its own transactions."""
    return np.concatenate([before.commit_lsn if len(before) else [0], decoded.commit_lsn])


def descriptions_of(before: Iterable[m.Relation], segment: Segment) -> Descriptions:
    return (*((-1, relation) for relation in before), *((seq, entry) for seq, _, entry in segment.others if isinstance(entry, m.Relation)))


def described_before(descriptions: Descriptions, seq: int) -> dict[int, m.Relation]:
    """Return the relations as described before the frame with this sequence number."""
    return {relation.relation: relation for position, relation in descriptions if position < seq}
