"""Decoding by Spark's tasks: the slices of a segment, which tasks read, decode and convert (the `Source` of `changes.tasks`).

What comes of it is what `batch` makes in the driver, with the same functions: `pgoutput.decode` and `conversion`.

    driver    cuts the segment into slices without reading it, and tells tasks what they must know of what came before each: the
              descriptions of relations, and the transaction that has begun. Executors of a cluster do not see the segment's file: the
              driver writes the slices to the data location for them
    task      reads its slices, finds the relations as they were described there, decodes, converts the values, and writes the histories
              of the tables (`table_history`)

What must hold: a task depends on nothing but its slices and itself, so that Spark may run it again. An error in a task is raised there
without the values that PostgreSQL's message shows, since executors have logs of their own: the applier decodes a segment that
fails once more by itself, and raises what that raises.
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
from headgate.subscriber.apply import conversion, table_history
from headgate.subscriber.apply.conflict import ApplyPlace
from headgate.subscriber.apply.conversion import InputSettings
from headgate.subscriber.apply.relation_map import Mapping as TableMapping
from headgate.walreceiver.segment import Segment, SegmentPart, SegmentPiece

SLICE_BYTES = 4 << 20
"""Bytes of a segment that a task decodes at a time."""
LEAST_BYTES = 256 << 10
HISTORY_BYTES = 32 << 20
"""Bytes of a history's rows for which a task writes a file."""
MOST_FRAME = 16 << 20
"""Bytes of a change that passes through Spark: it is a value in Java's heap."""

Told = tuple[tuple[int, m.Relation], ...]
"""What the publisher said of relations, by seq, in order; -1: before the segment."""


@dataclass(frozen=True)
class TableChanges:
    """Which changes are to be applied to one local table: those of these published relations, from a commit LSN and a seq on."""

    mappings: tuple[TableMapping, ...]
    applied_from: int
    restarted: int
    """Where the last TRUNCATE … RESTART IDENTITY stands: what was inserted before is lost, it would take the first numbers; -1: nowhere."""
    truncated: int = -1
    """The place of the last TRUNCATE, if tasks apply the changes: those before it are decoded and dropped; -1: there is none."""

    def chosen(self, changes: decode.Changes, commit_lsn: Numbers) -> decode.Changes:
        """Those of the changes; `commit_lsn` of the transaction that had begun before the run of frames, and of those that begin there."""
        return changes.where((commit_lsn[changes.txn + 1] >= self.applied_from) & (changes.seq >= self.restarted))

    def frame(
        self, changes: decode.Changes, commit_lsn: Numbers, session: InputSettings, place: ApplyPlace, *, completed: bool
    ) -> pa.Table:
        """What `chosen` has given as a changes frame; `completed` as for `conversion.changes_frame`."""
        found = self._mapping(changes)
        return conversion.changes_frame(changes, commit_lsn[changes.txn + 1], found, session, place, completed=completed)

    def history(
        self, changes: decode.Changes, frame: pa.Table, history: Relation, transactions: Transactions, session: InputSettings,
        place: ApplyPlace,
    ) -> pa.Table:  # fmt: skip
        """What `frame` has given, with whole old rows, as rows of the table's history."""
        found = self._mapping(changes)
        old = conversion.old_rows(changes, found, session, place, found.local.columns)
        return table_history.rows(found.local, history, frame, transactions, old)

    def _mapping(self, changes: decode.Changes) -> TableMapping:
        (found,) = (each for each in self.mappings if each.remote == changes.relation)
        return found


@dataclass(frozen=True)
class Slice:
    """Consecutive frames of a segment: in the segment's file, or in `content` (a file of the exchange, or here).

    `before`: the transaction that has begun before them, if there is one. A content is the lengths and the frames.
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
        """The slice of a piece of a segment."""
        part = SegmentPart((piece,))
        content = None if piece.data is None else content_of(piece)
        before, frames = begun_before(segment, part), len(piece.lengths)
        return cls(piece.first_seq, before, frames, piece.size, piece.path, piece.offset, piece.index_offset, content)

    def read(self) -> tuple[Bytes, Numbers]:
        """The bytes and the lengths of the frames."""
        if self.content is None:
            lengths = np.fromfile(f"{self.path}.index", np.uint32, self.frames, offset=4 * self.index_offset)
            return np.fromfile(f"{self.path}.segment", np.uint8, self.size, offset=self.offset), lengths.astype(np.int64)
        stored = self.content if isinstance(self.content, bytes) else data_location.local(self.content).read_bytes()
        content = np.frombuffer(stored, np.uint8)
        return content[4 * self.frames :], content[: 4 * self.frames].view(np.uint32).astype(np.int64)


@dataclass(frozen=True)
class SegmentSource:
    """The changes of some local tables, out of the slices whose numbers a task is given."""

    slices: tuple[Slice, ...]
    told: Told
    tables: tuple[TableChanges, ...]
    session: InputSettings
    histories: Mapping[int, TaskLeaf] = field(default_factory=dict)
    """The tables that hold the histories of `tables`, by their numbers."""

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[Made]:
        """See `changes.tasks.Source`."""
        recorded: dict[int, list[pa.Table]] = {}
        for batch in given:
            for number in batch.column(0).to_pylist():
                yield from self._decoded(self.slices[number], recorded)
                yield from self._written(recorded, HISTORY_BYTES)
        yield from self._written(recorded, 0)

    def _written(self, recorded: dict[int, list[pa.Table]], least: int) -> Iterator[Appended]:
        """Writes what is recorded of each table, if it takes at least so many bytes."""
        for number, tables in list(recorded.items()):
            if sum(table.nbytes for table in tables) >= least:
                leaf, rows = self.histories[number], pa.concat_tables(recorded.pop(number))
                yield Appended(number, write.append_rows(leaf.table, leaf.relation, leaf.state, rows).actions)

    def _decoded(self, part: Slice, recorded: dict[int, list[pa.Table]]) -> Iterator[tuple[int, int, pa.Table]]:
        data, lengths = part.read()
        numbers = {mapping.remote: number for number, table in enumerate(self.tables) for mapping in table.mappings}
        try:
            found = decode.decode(
                data, starts_of(lengths.astype(np.uint32)), lengths, relations=known(self.told, part.first_seq), first_seq=part.first_seq,
                only=numbers,
            )  # fmt: skip
            commit_lsn = commit_lsns(part.before, found.transactions)
            for changes in found.changes:
                number = numbers[changes.relation]
                table, history = self.tables[number], self.histories.get(number)
                if history is not None:
                    table = replace(table, restarted=-1)
                chosen = table.chosen(changes, commit_lsn)
                frame = table.frame(chosen, commit_lsn, self.session, ApplyPlace(), completed=False)
                if history is not None and frame.num_rows:
                    begun = part.before.then(found.transactions)
                    rows = table.history(chosen, frame, history.relation, begun, self.session, ApplyPlace())
                    recorded.setdefault(number, []).append(rows)
                frame = frame.filter(pc.greater(frame["seq"], table.truncated))
                if frame.num_rows:
                    yield number, part.first_seq, frame
        except PostgresError as error:
            raise RuntimeError(failure.marked(error.sqlstate, tasks.REFUSED)) from None


def slices_of(segment: Segment, count: int) -> list[Slice]:
    """A segment in slices, for about so many tasks."""
    size = min(max(segment.size // count, LEAST_BYTES), SLICE_BYTES)
    return [Slice.of(segment, piece) for part in segment.parts(size) for piece in part.pieces]


def content_of(piece: SegmentPiece) -> bytes:
    """The lengths of the frames of a piece, and its bytes."""
    return piece.lengths.astype(np.uint32).tobytes() + piece.read().tobytes()


@contextlib.contextmanager
def handed_over(slices: Sequence[Slice], place: DataPath) -> Iterator[list[Slice]]:
    """Inside, the slices lie in files that executors read; they go at the end."""
    with exchange.folder(place, "contents") as folder:

        def write(part: Slice) -> Slice:
            data, lengths = part.read()
            path = folder / f"{part.first_seq}"
            with data_location.written(path, kept=False) as file:
                file.write_bytes(lengths.astype(np.uint32).tobytes() + data.tobytes())
            return replace(part, content=path)

        yield data_location.together(place, write, slices)


def begun_before(segment: Segment, part: SegmentPart) -> Transactions:
    """The transaction that has begun before a part, if there is one."""
    begun = int(np.searchsorted(segment.transactions.begin, part.first_seq, side="left"))
    return segment.transactions.slice(max(begun - 1, 0), begun)


def commit_lsns(before: Transactions, decoded: Transactions) -> Numbers:
    """The commit LSNs of the transaction that has begun before a run of frames, 0 for none, and of those that begin there."""
    return np.concatenate([before.commit_lsn if len(before) else [0], decoded.commit_lsn])


def told(before: Iterable[m.Relation], segment: Segment) -> Told:
    """What was said of relations before a segment and in it."""
    return (*((-1, each) for each in before), *((seq, each) for seq, _, each in segment.others if isinstance(each, m.Relation)))


def known(said: Told, seq: int) -> dict[int, m.Relation]:
    """The relations as they were described before a frame."""
    return {each.relation: each for at, each in said if at < seq}
