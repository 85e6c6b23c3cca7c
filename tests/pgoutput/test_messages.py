"""read and write are strict inverses for every message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import PostgresError
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import read, read_frame, read_reply, write, write_frame, write_reply

lsn = st.integers(0, 2**64 - 1)
time = st.integers(-(2**63), 2**63 - 1)
oid = st.integers(0, 2**32 - 1)
name = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
value = st.one_of(
    st.just(m.NULL),
    st.just(m.UNCHANGED),
    st.builds(m.TupleValue, st.sampled_from([m.ValueKind.TEXT, m.ValueKind.BINARY]), st.binary(max_size=5)),
)
row = st.lists(value, max_size=4).map(tuple)
column = st.builds(m.RelationColumn, st.booleans(), name, oid, st.integers(-(2**31), 2**31 - 1))
kind = st.sampled_from(m.OldKind)


def in_stream(xid: st.SearchStrategy[int | None]) -> st.SearchStrategy[m.Message]:
    return st.one_of(
        st.builds(m.Relation, oid, name, name, st.sampled_from("dnfi"), st.lists(column, max_size=3).map(tuple), xid),
        st.builds(m.Type, oid, name, name, xid),
        st.builds(m.Insert, oid, row, xid),
        st.builds(m.Update, oid, st.none(), st.none(), row, xid),
        st.builds(m.Update, oid, kind, row, row, xid),
        st.builds(m.Delete, oid, kind, row, xid),
        st.builds(m.Truncate, st.lists(oid, max_size=3).map(tuple), st.booleans(), st.booleans(), xid),
        st.builds(m.LogicalMessage, st.booleans(), lsn, name, st.binary(max_size=5), xid),
    )


transaction = st.one_of(
    st.builds(m.Begin, lsn, time, oid),
    st.builds(m.Commit, lsn, lsn, time),
    st.builds(m.Origin, lsn, name),
    st.builds(m.StreamStart, oid, st.booleans()),
    st.builds(m.StreamStop),
    st.builds(m.StreamCommit, oid, lsn, lsn, time),
    st.builds(m.StreamAbort, oid, oid),
    st.builds(m.BeginPrepare, lsn, lsn, time, oid, name),
    st.builds(m.Prepare, lsn, lsn, time, oid, name),
    st.builds(m.CommitPrepared, lsn, lsn, time, oid, name),
    st.builds(m.RollbackPrepared, lsn, lsn, time, time, oid, name),
    st.builds(m.StreamPrepare, lsn, lsn, time, oid, name),
)
plain = st.one_of(transaction, in_stream(st.none()))


@given(plain)
@settings(max_examples=300)
def test_every_message_reads_back_as_it_was_written(message: m.Message) -> None:
    assert read(write(message)) == message


@given(in_stream(oid))
def test_messages_of_a_streamed_transaction_carry_its_xid(message: m.Message) -> None:
    assert read(write(message), streamed=True) == message


@given(plain, st.data())
@settings(max_examples=300)
def test_truncated_message_is_a_protocol_violation(message: m.Message, data: st.DataObject) -> None:
    content = write(message)
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(PostgresError) as caught:
        read(content[:cut])
    assert caught.value.sqlstate == "08P01"


@given(plain)
def test_bytes_after_a_message_are_a_protocol_violation(message: m.Message) -> None:
    with pytest.raises(PostgresError) as caught:
        read(write(message) + b"\0")
    assert caught.value.sqlstate == "08P01"


@given(st.binary(max_size=60), st.booleans())
@settings(max_examples=500)
def test_arbitrary_bytes_raise_no_other_exception(content: bytes, streamed: bool) -> None:
    for reader in (lambda data: read(data, streamed=streamed), read_frame, read_reply):
        assert sqlstate_of(reader, content) in (None, "08P01", "22021")


def sqlstate_of(reader: Callable[[bytes], object], content: bytes) -> str | None:
    try:
        reader(content)
    except PostgresError as error:
        return error.sqlstate
    return None


@given(st.one_of(st.builds(m.XLogData, lsn, lsn, time, st.binary(max_size=9)), st.builds(m.Keepalive, lsn, time, st.booleans())))
def test_frames_of_a_publisher_read_back(frame: m.Frame) -> None:
    assert read_frame(write_frame(frame)) == frame


@given(st.one_of(st.builds(m.StatusUpdate, lsn, lsn, lsn, time, st.booleans()), st.builds(m.HotStandbyFeedback, time, oid, oid, oid, oid)))
def test_frames_of_a_subscriber_read_back(reply: m.Reply) -> None:
    assert read_reply(write_reply(reply)) == reply


def test_messages_of_postgresql_are_written_byte_for_byte() -> None:
    assert write(m.Begin(0x01993A70, 0x000303BDCD3ADBE7, 0x2F7)).hex() == "420000000001993a70000303bdcd3adbe7000002f7"
    assert write(m.Truncate((0x4046,))).hex() == "54000000010000004046"
    two = m.TupleValue(m.ValueKind.TEXT, b"2")
    assert write(m.Delete(0x4046, m.OldKind.KEY, (two, m.NULL))).hex() == "44000040464b0002" + "7400000001326e"
