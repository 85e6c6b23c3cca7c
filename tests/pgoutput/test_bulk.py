"""decode and encode handle many changes at once and give the same as read and write."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import PostgresError
from headgate.pgoutput import decode, encode
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import copy_data, read, write, write_frame
from headgate.pgoutput.outline import frames_of

Change = m.Insert | m.Update | m.Delete

RELATION = m.Relation(
    17,
    "public",
    "t",
    "d",
    (m.RelationColumn(True, "a", 23, -1), m.RelationColumn(False, "b", 25, -1), m.RelationColumn(False, "c", 25, -1)),
)

text = st.one_of(st.just(m.NULL), st.text(max_size=6).map(lambda content: m.TupleValue(m.ValueKind.TEXT, content.encode())))
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
    return decode.decode(*frames_of([frame(message, lsn) for lsn, message in enumerate(messages)]))


def value(column: decode.DecodedColumn, row: int) -> m.TupleValue:
    if column.unchanged is not None and column.unchanged[row]:
        return m.UNCHANGED
    data = column.values[row].as_py()
    return m.NULL if data is None else m.TupleValue(m.ValueKind.TEXT, data.encode())


def message_of(changes: decode.Changes, row: int) -> m.Message:
    new = tuple(value(column, row) for column in changes.new)
    old = tuple(value(column, row) for column in changes.old) if changes.old and changes.old_kind[row] else None
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
def test_bulk_decoding_returns_the_written_changes_with_their_transactions(transactions: list[list[Change]]) -> None:
    messages: list[m.Message] = []
    expected = []
    for number, changes in enumerate(transactions):
        messages.append(m.Begin(1000 + number, 5, 700 + number))
        if number == 0:
            messages.append(RELATION)
        for row_change in changes:
            expected.append((number, len(messages), row_change))
            messages.append(row_change)
        messages.append(m.Commit(1000 + number, 2000 + number, 5))
    decoded = run(messages)
    count = len(transactions)
    assert decoded.transactions.xid.tolist() == [700 + number for number in range(count)]
    assert decoded.transactions.commit_lsn.tolist() == [1000 + number for number in range(count)]
    assert decoded.transactions.end_lsn.tolist() == [2000 + number for number in range(count)]
    assert [messages[number] for number in decoded.transactions.commit] == [
        m.Commit(1000 + number, 2000 + number, 5) for number in range(count)
    ]
    actual = [
        (int(changes.txn[row]), int(changes.seq[row]), message_of(changes, row))
        for changes in decoded.changes
        for row in range(len(changes))
    ]
    assert sorted(actual, key=lambda entry: entry[1]) == expected


@given(st.lists(change, min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_bulk_encoding_gives_the_bytes_of_the_single_messages(changes: list[Change]) -> None:
    op = np.array([ord(type(change).__name__[0]) for change in changes], np.uint8)
    lsn = np.arange(len(changes), dtype=np.int64) + 5
    old_kind = np.array([getattr(change, "old_kind", None) or 0 for change in changes], np.uint8)

    def column(side: str, place: int) -> pa.Array:
        tuples = [getattr(change, side, None) for change in changes]
        return pa.array([None if t is None or t[place].data is None else t[place].data.decode() for t in tuples], pa.string())

    unchanged = [
        np.array(
            [isinstance(change_message, m.Update) and change_message.new[index] == m.UNCHANGED for change_message in changes], np.bool_
        )
        for index in range(3)
    ]
    frames = encode.encode(
        17, op, lsn, [column("new", index) for index in range(3)], old=[column("old", index) for index in range(3)],
        old_kind=old_kind, unchanged=unchanged, send_time=9,
    )  # fmt: skip
    expected = [copy_data(write_frame(m.XLogData(5 + number, 5 + number, 9, write(change)))) for number, change in enumerate(changes)]
    assert [bytes(frames.slice(number, number + 1)) for number in range(len(changes))] == expected
    assert bytes(frames.bytes()) == b"".join(expected)


def test_frames_of_several_relations_are_merged_in_the_order_of_the_log() -> None:
    ops = np.array([ord("I"), ord("I")], np.uint8)
    first = encode.encode(1, ops, np.array([1, 3]), [pa.array(["a", "ccc"])])
    second = encode.encode(2, ops, np.array([2, 4]), [pa.array(["bb", None])])
    merged = encode.interleave([first, second], [np.array([1, 3]), np.array([2, 4])])
    relations = [read(bytes(merged.slice(number, number + 1))[30:]).relation for number in range(4)]  # type: ignore[union-attr]
    assert relations == [1, 2, 1, 2]


def sqlstate_of(frames: list[bytes]) -> str | None:
    try:
        for changes in decode.decode(*frames_of(frames)).changes:
            for column in [*changes.new, *(changes.old or ())]:
                column.values.validate(full=True)
    except PostgresError as error:
        return error.sqlstate
    return None


@given(st.lists(change, min_size=1, max_size=3), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_frames_are_a_protocol_violation(changes: list[Change], data: st.DataObject) -> None:
    frames = [frame(message) for message in [m.Begin(1, 1, 1), RELATION, *changes, m.Commit(1, 2, 3)]]
    which = data.draw(st.integers(0, len(frames) - 1))
    content = bytearray(frames[which])
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(25, len(content) - 1))] = data.draw(st.integers(0, 255))
    frames[which] = bytes(content)
    assert sqlstate_of(frames) in (None, "08P01", "22021")


def test_relation_described_again_starts_another_group() -> None:
    wider = m.Relation(17, "public", "t", "d", (*RELATION.columns, m.RelationColumn(False, "d", 25, -1)))
    value = m.TupleValue(m.ValueKind.TEXT, b"1")
    decoded = run([
        m.Begin(1, 1, 1), RELATION, m.Insert(17, (value,) * 3), wider, m.Insert(17, (value,) * 4), m.Commit(1, 2, 1),
        m.Begin(3, 1, 2), wider, m.Insert(17, (value,) * 4), m.Commit(3, 4, 1),
    ])  # fmt: skip
    assert [(len(changes.relation.columns), changes.txn.tolist()) for changes in decoded.changes] == [(3, [0]), (4, [0, 1])]


def test_run_may_begin_and_end_inside_a_transaction() -> None:
    value = m.TupleValue(m.ValueKind.TEXT, b"1")
    frames = frames_of(
        [frame(m.Insert(17, (value,) * 3)), frame(m.Commit(1, 2, 1)), frame(m.Begin(3, 1, 2)), frame(m.Insert(17, (value,) * 3))]
    )
    decoded = decode.decode(*frames, relations={17: RELATION}, first_seq=100)
    assert decoded.changes[0].txn.tolist() == [-1, 0]
    assert decoded.changes[0].seq.tolist() == [100, 103]
    assert decoded.transactions.commit.tolist() == [-1]


def test_unknown_relation_is_an_error() -> None:
    with pytest.raises(PostgresError, match="no relation map entry for remote relation ID 17") as caught:
        run([m.Begin(1, 1, 1), m.Insert(17, (m.NULL,))])
    assert caught.value.sqlstate == "08P01"


def test_binary_values_become_binary_columns() -> None:
    value = m.TupleValue(m.ValueKind.BINARY, b"\xff\x00")
    decoded = run([m.Begin(1, 1, 1), RELATION, m.Insert(17, (value, m.NULL, value)), m.Commit(1, 2, 1)])
    assert [column.values.type for column in decoded.changes[0].new] == [pa.binary(), pa.string(), pa.binary()]
    assert decoded.changes[0].new[0].values.to_pylist() == [b"\xff\x00"]


def test_truncates_name_the_relations() -> None:
    decoded = run([m.Begin(1, 1, 1), RELATION, m.Truncate((17,), True, False), m.Commit(1, 2, 1)])
    assert decoded.truncations == [decode.Truncation(0, 2, 2, m.Truncate((17,), True, False), (RELATION,))]
