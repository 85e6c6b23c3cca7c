"""Tasks that decode parts of a segment return the rows that the driver decodes from the whole segment, wherever it is divided."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage import tables

from headgate.catalog.relation.relation import Relation
from headgate.changes import tasks
from headgate.lsn import Lsn
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import write, write_frame
from headgate.pgoutput.outline import frames_of, scan
from headgate.subscriber.apply import decoding
from headgate.subscriber.apply.decoding import SegmentSource, Slice, TableChanges
from headgate.subscriber.rows import conversion
from headgate.subscriber.rows.conflict import ApplyPlace
from headgate.subscriber.rows.conversion import InputSettings
from headgate.subscriber.rows.relation_map import Mapping
from headgate.types import registry as r
from headgate.walreceiver.segment import Segment, SegmentPiece, segment_of

KEY, NAME, AMOUNT = (
    m.RelationColumn(True, "id", r.INT4, -1),
    m.RelationColumn(False, "v", r.TEXT, -1),
    m.RelationColumn(False, "n", r.NUMERIC, -1),
)
ONE, OTHER = m.Relation(17, "public", "t", "d", (KEY, NAME, AMOUNT)), m.Relation(18, "public", "u", "d", (KEY, NAME, AMOUNT))
TURNED = m.Relation(17, "public", "t", "d", (AMOUNT, KEY, NAME))
"""The relation of `ONE` with its columns in a different order, as the stream describes it later."""
LOCAL = tables.relation(100, "t", id=r.INT4, v=r.TEXT, n=r.NUMERIC)
SESSION = InputSettings()


def mapping(remote: m.Relation, local: Relation = LOCAL) -> Mapping:
    names = [column.name for column in remote.columns]
    return Mapping(remote, local, tuple(names.index(column.name) for column in local.columns), (1,))


FORM = conversion.frame_schema(mapping(ONE))


def sent(value: object) -> m.TupleValue:
    return m.NULL if value is None else m.TupleValue(m.ValueKind.TEXT, str(value).encode())


def row(remote: m.Relation, key: int, name: str | None, amount: int | None) -> tuple[m.TupleValue, ...]:
    values = {"id": sent(key), "v": m.UNCHANGED if name == "unsent" else sent(name), "n": sent(amount)}
    return tuple(values[column.name] for column in remote.columns)


changes = st.lists(
    st.tuples(st.sampled_from("IUDM"), st.booleans(), st.integers(-5, 5), st.sampled_from([None, "", "ä", "unsent", "x" * 40]), st.integers(0, 9)),
    max_size=12,
)  # fmt: skip


def messages(transactions: list[list[tuple[str, bool, int, str | None, int]]], described_again: int) -> list[m.Message]:
    """Return a stream in which the description of a relation changes after some transactions."""
    stream: list[m.Message] = []
    relation = ONE
    for number, transaction in enumerate(transactions):
        stream.append(m.Begin(1000 + number, 5, 700 + number))
        if number in (0, described_again):
            relation = ONE if number < described_again else TURNED
            stream += [relation, OTHER]
        for op, is_other, key, name, amount in transaction:
            remote = OTHER if is_other else relation
            new = row(remote, key, None if name == "unsent" and op == "I" else name, amount)
            old = row(remote, key + 1, None, None)
            match op:
                case "I":
                    stream.append(m.Insert(remote.relation, new))
                case "U":
                    stream.append(m.Update(remote.relation, None, None, new))
                case "M":
                    stream.append(m.Update(remote.relation, m.OldKind.KEY, old, new))
                case _:
                    stream.append(m.Delete(remote.relation, m.OldKind.KEY, old))
        stream.append(m.Commit(1000 + number, 2000 + number, 5))
    return stream


def segment(stream: list[m.Message]) -> Segment:
    data, starts, lengths = frames_of(
        [write_frame(m.XLogData(Lsn(position), Lsn(position), 0, write(message))) for position, message in enumerate(stream)]
    )
    outline = scan(data, starts, lengths)
    piece = SegmentPiece.of(0, data, lengths.astype(np.uint32))
    return segment_of(
        [piece], outline.transactions(), outline.others, frozenset(outline.relations.tolist()), only_inserts=outline.only_inserts
    )


def by_driver(whole: Segment, table_changes: TableChanges) -> pa.Table:
    batch = decode.decode(*whole.read())
    commit_lsn = np.concatenate([[0], batch.transactions.commit_lsn])
    remotes = [table_mapping.remote for table_mapping in table_changes.mappings]
    chosen = [table_changes.chosen(changes, commit_lsn) for changes in batch.changes if changes.relation in remotes]
    frames = [table_changes.frame(changes, commit_lsn, SESSION, ApplyPlace()) for changes in chosen]
    return pa.concat_tables([FORM.empty_table(), *frames]).sort_by("seq")


def by_tasks(whole: Segment, changes: TableChanges, size: int) -> pa.Table:
    slices = tuple(Slice.of(whole, piece) for part in whole.parts(size) for piece in part.pieces)
    source: SegmentSource = pickle.loads(pickle.dumps(SegmentSource(slices, decoding.descriptions_of([], whole), (changes,), SESSION)))
    frames = [frame for _, _, frame in source([pa.RecordBatch.from_pydict({"id": list(range(len(slices)))})])]
    return pa.concat_tables([FORM.empty_table(), *frames]).sort_by("seq")


def in_file(whole: Segment, folder: Path) -> Segment:
    """Return the segment as in the files of a spool, after frames of another segment."""
    [piece] = whole.pieces
    (folder / "0.segment").write_bytes(b"others" + piece.read().tobytes())
    (folder / "0.index").write_bytes(np.concatenate([[6], piece.lengths]).astype(np.uint32).tobytes())
    return replace(whole, pieces=(replace(piece, data=None, held_lengths=None, path=str(folder / "0"), offset=6, index_offset=1),))


@given(st.lists(changes, min_size=1, max_size=5), st.integers(1, 5), st.integers(0, 5), st.integers(-1, 30), st.integers(1, 2000))
@settings(max_examples=150)
def test_tasks_and_driver_decode_the_same_rows_wherever_a_segment_is_cut(
    transactions: list[list[tuple[str, bool, int, str | None, int]]], described_again: int, applied_from: int, restarted: int, size: int
) -> None:
    whole = segment(messages(transactions, described_again))
    table_changes = TableChanges((mapping(ONE), mapping(TURNED)), 1000 + applied_from, restarted)
    expected, decoded = by_driver(whole, table_changes), by_tasks(whole, table_changes, size)
    assert decoded.equals(expected)
    with TemporaryDirectory() as folder:
        assert by_tasks(in_file(whole, Path(folder)), table_changes, size).equals(expected)


def test_changes_before_a_truncate_are_dropped() -> None:
    inserts = [("I", False, key, "a", 1) for key in range(4)]
    whole = segment(messages([inserts], 1))
    places = by_tasks(whole, TableChanges((mapping(ONE),), 0, -1), 1 << 20)["seq"].to_pylist()
    assert by_tasks(whole, TableChanges((mapping(ONE),), 0, -1, truncated=places[1]), 1 << 20)["seq"].to_pylist() == places[2:]


def test_survey_counts_the_changes_of_each_description_of_a_relation() -> None:
    insert = ("I", False, 1, "a", 1)
    whole = segment(messages([[insert, insert, ("I", True, 1, "a", 1)], [insert]], 1))
    assert dict(decode.survey(*whole.read(), relations={}, first_seq=0)) == {ONE: 2, OTHER: 1, TURNED: 1}


def test_error_of_a_task_shows_no_value() -> None:
    wrong = m.Insert(17, (sent("secret"), sent("a"), sent(1)))
    whole = segment([m.Begin(1000, 5, 7), ONE, wrong, m.Commit(1000, 2000, 5)])
    with pytest.raises(RuntimeError, match=f"headgate:22P02:{tasks.REFUSED}") as refused:
        by_tasks(whole, TableChanges((mapping(ONE),), 0, -1), 1 << 20)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
