"""decode and encode: the same as read and write, for many changes at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import PostgresError
from headgate.pgoutput import decode, encode
from headgate.pgoutput import message as m
from headgate.pgoutput.outline import frames_of
from headgate.pgoutput.read import read
from headgate.pgoutput.write import copy_data, write, write_frame

Change = m.Insert | m.Update | m.Delete

RELATION = m.Relation(
    17,
    "public",
    "t",
    "d",
    (m.RelationColumn(True, "a", 23, -1), m.RelationColumn(False, "b", 25, -1), m.RelationColumn(False, "c", 25, -1)),
)

text = st.one_of(st.just(m.NULL), st.text(max_size=6).map(lambda t: m.TupleValue(m.ValueKind.TEXT, t.encode())))
new_value = st.one_of(text, st.just(m.UNCHANGED))
new_tuple = st.tuples(new_value, new_value, new_value)
old_tuple = st.tuples(text, text, text)
change = st.one_of(
    st.builds(m.Insert, st.just(17), st.tuples(text, text, text)),
    st.builds(m.Update, st.just(17), st.none(), st.none(), new_tuple),
    st.builds(m.Update, st.just(17), st.sampled_from(m.OldKind), old_tuple, new_tuple),
    st.builds(m.Delete, st.just(17), st.sampled_from(m.OldKind), old_tuple),
)


def frame(message: m.Message, lsn: int = 0) -> bytes:
    return write_frame(m.XLogData(lsn, lsn, 0, write(message)))


def run(messages: list[m.Message]) -> decode.DecodedFrames:
    return decode.decode(*frames_of([frame(each, lsn) for lsn, each in enumerate(messages)]))


def value(column: decode.DecodedColumn, row: int) -> m.TupleValue:
    if column.unchanged is not None and column.unchanged[row]:
        return m.UNCHANGED
    found = column.values[row].as_py()
    return m.NULL if found is None else m.TupleValue(m.ValueKind.TEXT, found.encode())


def message_of(changes: decode.Changes, row: int) -> m.Message:
    new = tuple(value(c, row) for c in changes.new)
    old = tuple(value(c, row) for c in changes.old) if changes.old and changes.old_kind[row] else None
    kind = m.OldKind(changes.old_kind[row]) if changes.old_kind[row] else None
    match chr(changes.op[row]):
        case "I":
            return m.Insert(17, new)
        case "U":
            return m.Update(17, kind, old, new)
        case _:
            assert kind is not None
            assert old is not None
            return m.Delete(17, kind, old)


@given(st.lists(st.lists(change, max_size=8), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_bulk_decoding_gives_the_changes_that_were_written_with_their_transactions(transactions: list[list[Change]]) -> None:
    messages: list[m.Message] = []
    expected = []
    for number, changes in enumerate(transactions):
        messages.append(m.Begin(1000 + number, 5, 700 + number))
        if number == 0:
            messages.append(RELATION)
        for each in changes:
            expected.append((number, len(messages), each))
            messages.append(each)
        messages.append(m.Commit(1000 + number, 2000 + number, 5))
    found = run(messages)
    count = len(transactions)
    assert found.transactions.xid.tolist() == [700 + n for n in range(count)]
    assert found.transactions.commit_lsn.tolist() == [1000 + n for n in range(count)]
    assert found.transactions.end_lsn.tolist() == [2000 + n for n in range(count)]
    assert [messages[n] for n in found.transactions.commit] == [m.Commit(1000 + n, 2000 + n, 5) for n in range(count)]
    got = [(int(c.txn[row]), int(c.seq[row]), message_of(c, row)) for c in found.changes for row in range(len(c))]
    assert sorted(got, key=lambda g: g[1]) == expected


@given(st.lists(change, min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_bulk_encoding_gives_the_bytes_of_the_single_messages(changes: list[Change]) -> None:
    op = np.array([ord(type(c).__name__[0]) for c in changes], np.uint8)
    lsn = np.arange(len(changes), dtype=np.int64) + 5
    old_kind = np.array([getattr(c, "old_kind", None) or 0 for c in changes], np.uint8)

    def column(side: str, place: int) -> pa.Array:
        tuples = [getattr(c, side, None) for c in changes]
        return pa.array([None if t is None or t[place].data is None else t[place].data.decode() for t in tuples], pa.string())

    unchanged = [np.array([isinstance(c, m.Update) and c.new[place] == m.UNCHANGED for c in changes], np.bool_) for place in range(3)]
    frames = encode.encode(
        17, op, lsn, [column("new", i) for i in range(3)], old=[column("old", i) for i in range(3)],
        old_kind=old_kind, unchanged=unchanged, send_time=9,
    )  # fmt: skip
    expected = [copy_data(write_frame(m.XLogData(5 + n, 5 + n, 9, write(c)))) for n, c in enumerate(changes)]
    assert [bytes(frames.slice(n, n + 1)) for n in range(len(changes))] == expected
    assert bytes(frames.bytes()) == b"".join(expected)


def test_frames_of_several_relations_are_put_into_the_order_of_the_log() -> None:
    one = np.array([ord("I"), ord("I")], np.uint8)
    first = encode.encode(1, one, np.array([1, 3]), [pa.array(["a", "ccc"])])
    second = encode.encode(2, one, np.array([2, 4]), [pa.array(["bb", None])])
    merged = encode.interleave([first, second], [np.array([1, 3]), np.array([2, 4])])
    relations = [read(bytes(merged.slice(n, n + 1))[30:]).relation for n in range(4)]  # type: ignore[union-attr]
    assert relations == [1, 2, 1, 2]


def sqlstate_of(frames: list[bytes]) -> str | None:
    try:
        for each in decode.decode(*frames_of(frames)).changes:
            for column in [*each.new, *(each.old or ())]:
                column.values.validate(full=True)
    except PostgresError as error:
        return error.sqlstate
    return None


@given(st.lists(change, min_size=1, max_size=3), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_frames_are_a_protocol_violation_and_nothing_else(changes: list[Change], data: st.DataObject) -> None:
    frames = [frame(each) for each in [m.Begin(1, 1, 1), RELATION, *changes, m.Commit(1, 2, 3)]]
    which = data.draw(st.integers(0, len(frames) - 1))
    content = bytearray(frames[which])
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(25, len(content) - 1))] = data.draw(st.integers(0, 255))
    frames[which] = bytes(content)
    assert sqlstate_of(frames) in (None, "08P01", "22021")


def test_a_relation_described_anew_starts_another_group() -> None:
    wider = m.Relation(17, "public", "t", "d", (*RELATION.columns, m.RelationColumn(False, "d", 25, -1)))
    one = m.TupleValue(m.ValueKind.TEXT, b"1")
    found = run([
        m.Begin(1, 1, 1), RELATION, m.Insert(17, (one,) * 3), wider, m.Insert(17, (one,) * 4), m.Commit(1, 2, 1),
        m.Begin(3, 1, 2), wider, m.Insert(17, (one,) * 4), m.Commit(3, 4, 1),
    ])  # fmt: skip
    assert [(len(c.relation.columns), c.txn.tolist()) for c in found.changes] == [(3, [0]), (4, [0, 1])]


def test_a_run_may_begin_and_end_inside_a_transaction() -> None:
    one = m.TupleValue(m.ValueKind.TEXT, b"1")
    frames = frames_of(
        [frame(m.Insert(17, (one,) * 3)), frame(m.Commit(1, 2, 1)), frame(m.Begin(3, 1, 2)), frame(m.Insert(17, (one,) * 3))]
    )
    found = decode.decode(*frames, relations={17: RELATION}, first_seq=100)
    assert found.changes[0].txn.tolist() == [-1, 0]
    assert found.changes[0].seq.tolist() == [100, 103]
    assert found.transactions.commit.tolist() == [-1]


def test_an_unknown_relation_is_an_error() -> None:
    with pytest.raises(PostgresError, match="no relation map entry for remote relation ID 17") as caught:
        run([m.Begin(1, 1, 1), m.Insert(17, (m.NULL,))])
    assert caught.value.sqlstate == "08P01"


def test_binary_values_become_binary_columns() -> None:
    value = m.TupleValue(m.ValueKind.BINARY, b"\xff\x00")
    found = run([m.Begin(1, 1, 1), RELATION, m.Insert(17, (value, m.NULL, value)), m.Commit(1, 2, 1)])
    assert [c.values.type for c in found.changes[0].new] == [pa.binary(), pa.string(), pa.binary()]
    assert found.changes[0].new[0].values.to_pylist() == [b"\xff\x00"]


def test_truncates_name_the_relations() -> None:
    found = run([m.Begin(1, 1, 1), RELATION, m.Truncate((17,), True, False), m.Commit(1, 2, 1)])
    assert found.truncations == [decode.Truncation(0, 2, 2, m.Truncate((17,), True, False), (RELATION,))]
