"""Decoding by Spark's tasks: a segment as one lazy changes frame for each local table, of which a task makes some parts.

Used by `batch` for segments that tasks shall decode (all where `small_batch_rows = 0`, large ones where there is a cluster); what comes of
it is what `decode` and `conversion` make in the driver, with the same code.

    driver    looks who is changed in the segment (`survey`: tags and OIDs, no values), cuts it into parts of PART_BYTES and hands
              each over with what a task must know of what came before: its first seq, and the commit LSN of the transaction that has begun
    task      finds the relations as they were described at its part's beginning (`told`), decodes its table's, converts the values

What must hold: a task depends on nothing but its part and itself, so that Spark may run it again, and on a frame being read twice nothing
changes. An error in a task is raised there without the values that PostgreSQL's message shows, since executors have logs of their own: the
applier decodes a transaction that fails once more by itself, and raises what that raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.errors import PostgresError
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.pgoutput.outline import Numbers, starts_of
from headgate.storage.spark import failure
from headgate.subscriber.apply import conversion
from headgate.subscriber.apply.conflict import ApplyPlace
from headgate.subscriber.apply.conversion import InputSettings
from headgate.subscriber.apply.relation_map import Mapping
from headgate.types import registry
from headgate.walreceiver.segment import Segment, SegmentPart

PART_BYTES = 4 << 20
"""Bytes of a segment that a task decodes at a time."""
FRAME_ROWS = 20_000
"""Changes of a record batch."""
REFUSED = "a part of a segment could not be decoded"
"""The message of the error that a task raises in place of PostgreSQL's."""
_HEAD = 3
"""Numbers before the lengths of a part's content."""

Told = tuple[tuple[int, m.Relation], ...]
"""What the publisher said of relations, by seq, in order; -1: before the segment."""


@dataclass(frozen=True)
class TableChanges:
    """Which changes are to be applied to one local table: those of these published relations, from a commit LSN and a seq on."""

    mappings: tuple[Mapping, ...]
    applied_from: int
    restarted: int
    """Where the last TRUNCATE … RESTART IDENTITY stands: what was inserted before is lost, it would take the first numbers; -1: nowhere."""

    def chosen(self, changes: decode.Changes, commit_lsn: Numbers) -> decode.Changes:
        """Those of the changes; `commit_lsn` of the transaction that had begun before the run of frames, and of those that begin there."""
        return changes.where((commit_lsn[changes.txn + 1] >= self.applied_from) & (changes.seq >= self.restarted))

    def frame(
        self, changes: decode.Changes, commit_lsn: Numbers, session: InputSettings, place: ApplyPlace, *, completed: bool
    ) -> pa.Table:
        """What `chosen` has given as a changes frame; `completed` as for `conversion.changes_frame`."""
        (found,) = (each for each in self.mappings if each.remote == changes.relation)
        return conversion.changes_frame(changes, commit_lsn[changes.txn + 1], found, session, place, completed=completed)


@dataclass(frozen=True)
class DecodeTask:
    """What a task does with parts of a segment: the changes frame of one local table. For mapInArrow; the input is of `content_of`."""

    told: Told
    table: TableChanges
    session: InputSettings
    completed: bool
    """Whether new rows get their defaults, and are checked, afterwards."""

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The changes of all parts."""
        registry.use(self.session.types)
        for batch in given:
            for content in batch["content"]:
                yield from self._decoded(np.frombuffer(content.as_buffer(), np.uint8)).to_batches(max_chunksize=FRAME_ROWS)

    def _decoded(self, content: np.ndarray) -> pa.Table:
        first_seq, before, count = content[: 8 * _HEAD].view(np.int64).tolist()
        lengths = content[8 * _HEAD : 8 * _HEAD + 4 * count].view(np.uint32)
        data, only = content[8 * _HEAD + 4 * count :], [each.remote for each in self.table.mappings]
        try:
            found = decode.decode(
                data, starts_of(lengths), lengths.astype(np.int64), relations=known(self.told, first_seq), first_seq=first_seq, only=only
            )
            commit_lsn = np.concatenate([[before], found.transactions.commit_lsn])
            chosen = [self.table.chosen(each, commit_lsn) for each in found.changes]
            frames = [self.table.frame(each, commit_lsn, self.session, ApplyPlace(), completed=self.completed) for each in chosen]
        except PostgresError as error:
            raise RuntimeError(failure.marked(error.sqlstate, REFUSED)) from None
        return pa.concat_tables([conversion.frame_schema(self.table.mappings[0]).empty_table(), *frames])

    def changes(self, parts: DataFrame) -> DataFrame:
        """The changes frame; columns as in `conversion.frame_schema`."""
        return parts.mapInArrow(self, from_arrow_schema(conversion.frame_schema(self.table.mappings[0]), prefer_timestamp_ntz=True))


def content_of(part: SegmentPart, before: int) -> bytes:
    """A part as a task takes it; `before`: the commit LSN of the transaction that has begun before it, 0 for none."""
    lengths = np.concatenate([piece.lengths for piece in part.pieces])
    head = np.array([part.first_seq, before, len(lengths)], np.int64)
    return b"".join([head.tobytes(), lengths.tobytes(), *(piece.read().tobytes() for piece in part.pieces)])


def begun_before(segment: Segment, part: SegmentPart) -> int:
    """The commit LSN of the transaction that has begun before a part, 0 for none."""
    begun = int(np.searchsorted(segment.transactions.begin, part.first_seq, side="left")) - 1
    return int(segment.transactions.commit_lsn[begun]) if begun >= 0 else 0


def told(before: Iterable[m.Relation], segment: Segment) -> Told:
    """What was said of relations before a segment and in it."""
    return (*((-1, each) for each in before), *((seq, each) for seq, _, each in segment.others if isinstance(each, m.Relation)))


def known(said: Told, seq: int) -> dict[int, m.Relation]:
    """The relations as they were described before a frame."""
    return {each.relation: each for at, each in said if at < seq}
