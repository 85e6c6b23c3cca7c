"""Randomly damaged messages, runs of frames, streamed transactions, COPY data and conversations are read or rejected.

The conversations of a subscriber with a real PostgreSQL are recorded when the test begins.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Server
from tests.fuzz import LEFT, left_behind, run
from tests.walreceiver.talk import CHANGES, TABLES, Talk
from tests.wire import HEAD, Repeated, Tap, sized

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput import decode
from headgate.pgoutput.codec import read, read_frame, read_reply
from headgate.pgoutput.outline import frames_of
from headgate.types import registry as r
from headgate.types.binary.copy_binary import header_length, read_copy_binary
from headgate.types.copy_text import read_copy_text
from headgate.types.text.text import read_text
from headgate.walreceiver import answer, remote
from headgate.walreceiver.reassembly import Reassembly
from headgate.walreceiver.spool import Spool

STREAMED = """
    SET logical_decoding_work_mem = '64kB'; BEGIN; INSERT INTO t SELECT n, repeat('x', 300), 'sad' FROM generate_series(100, 700) n; SAVEPOINT a;
    UPDATE t SET name = 'y' WHERE id BETWEEN 100 AND 500; ROLLBACK TO a; DELETE FROM t WHERE id > 500; TRUNCATE t; COMMIT;
    BEGIN; INSERT INTO t VALUES (1, 'prepared', 'glad'); PREPARE TRANSACTION 'fuzz'; COMMIT PREPARED 'fuzz'"""
INT4_ARRAY = 1007
BLOCK = struct.Struct("!I")


class Recorded:
    """The recorded conversations of a subscriber with PostgreSQL."""

    def __init__(self, postgres: Server, folder: Path) -> None:
        self.folder = folder
        database = postgres.new_database()
        postgres.psql(database, TABLES)
        slot = f"fuzz_{database}"
        begin = Lsn.parse(postgres.psql(database, f"SELECT lsn FROM pg_create_logical_replication_slot('{slot}', 'pgoutput', false, true)"))
        postgres.psql(database, CHANGES)
        self.talk = Talk(postgres.port, database, slot, begin, folder)
        with self.talk.tap:
            self.talk.all()
        self.answers = self.talk.tap.answers
        started = next(query for query in self.answers if query.startswith("START"))
        self.frames = [frame[HEAD:] for frame in self.answers[started][0] if frame[HEAD : HEAD + 1] == b"w"]
        postgres.psql(database, STREAMED)
        postgres.await_release(slot)
        options = "'proto_version', '3', 'publication_names', 'p', 'streaming', 'on', 'two_phase', 'on'"
        peeked = postgres.psql(
            database,
            f"SET logical_decoding_work_mem = '64kB'; SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL, {options})",
        )
        self.streamed = [b"w" + bytes(24) + bytes.fromhex(line) for line in peeked.splitlines()]
        self.copied = (
            postgres.psql(database, "COPY (SELECT n, 'a\\tb\\n', NULL, '{1,2}' FROM generate_series(1, 20) n) TO STDOUT").encode() + b"\n"
        )
        postgres.drop_slot(database, slot)


@pytest.fixture(scope="module")
def recorded(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(postgres, tmp_path_factory.mktemp("fuzz"))


def packed(frames: list[bytes]) -> bytes:
    """Return the frames as one input, each with its length first."""
    return b"".join(BLOCK.pack(len(frame)) + frame for frame in frames)


def unpacked(data: bytes) -> list[bytes]:
    """Return the frames of an input. Damaged lengths are limited to its end."""
    frames = []
    while len(data) > BLOCK.size:
        size = BLOCK.unpack_from(data)[0] & 0xFFFF
        frames.append(data[BLOCK.size : BLOCK.size + size])
        data = data[BLOCK.size + size :]
    return [frame for frame in frames if frame]


def targets(recorded: Recorded) -> dict[str, tuple[Callable[[bytes], object], list[bytes]]]:
    """Return, by name, each reader of a publisher's bytes, and the valid inputs to damage for it."""
    messages = [frame[25:] for frame in [*recorded.frames, *recorded.streamed]]
    whole = [recorded.frames[at : at + 12] for at in range(0, len(recorded.frames), 6)]
    chunks = [recorded.streamed[at : at + 8] for at in range(0, len(recorded.streamed), 40)] + [recorded.streamed[-9:], recorded.frames]
    numbers = itertools.count()

    def run_of_frames(data: bytes) -> None:
        decode.decode(*frames_of(unpacked(data)))

    def reassembled(data: bytes) -> None:
        spool = Spool(recorded.folder / f"spool{next(numbers)}")
        reassembly = Reassembly(spool, only_local=len(data) % 2 == 0)
        try:
            reassembly.take(unpacked(data))
            while (segment := spool.take(0, 1 << 30)) is not None:
                decode.decode(*segment.read())
                spool.release_oldest()
        finally:
            reassembly.close()
            spool.close()

    def copied(data: bytes) -> None:
        texts = read_copy_text(data, 4, names="abcd")
        read_text(texts[0], r.INT4)
        read_text(texts[3], INT4_ARRAY)

    def copied_binary(data: bytes) -> None:
        at = header_length(data)
        if at is not None:
            read_copy_binary(data, 2, at=at)

    def answered(data: bytes) -> None:
        text = answer.text(data)
        remote.array_elements(text)
        answer.number(text)
        Lsn.parse(text)

    binary = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0) + struct.pack("!hiii2s", 2, 4, 7, 2, b"ab") * 5 + b"\xff\xff"
    keepalive = b"k" + bytes(16) + b"\1"
    return {
        "messages": (read, messages),
        "messages of a streamed transaction": (lambda data: read(data, streamed=True), messages),
        "frames": (read_frame, [*recorded.frames, keepalive]),
        "replies": (read_reply, [b"r" + bytes(33), b"h" + bytes(24)]),
        "runs of frames": (run_of_frames, [packed(frames) for frames in whole if frames]),
        "transactions": (reassembled, [packed(chunk) for chunk in chunks if chunk]),
        "COPY": (copied, [recorded.copied]),
        "COPY in binary": (copied_binary, [binary]),
        "cells": (answered, [b'{a,"b c"}', b"16/B374D848", b"4294967295", b"{1,2,NULL}"]),
    }


NAMES = [
    "messages", "messages of a streamed transaction", "frames", "replies", "runs of frames", "transactions", "COPY", "COPY in binary", "cells",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_damaged_input_of_a_publisher_is_read_or_rejected(recorded: Recorded, name: str) -> None:
    read_one, seeds = targets(recorded)[name]
    result = run(read_one, seeds, 100 if name == "transactions" else 600)
    assert not result.wrong
    assert result.refused > 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_damaged_input_of_a_publisher_is_read_or_rejected_in_many_examples(recorded: Recorded, name: str) -> None:
    read_one, seeds = targets(recorded)[name]
    result = run(read_one, seeds, 10_000 if name == "transactions" else 25_000, seed=7)
    print(f"{name}: {result.inputs} inputs, {result.refused} refused, slowest {result.slowest:.3f} s")
    assert not result.wrong
    assert left_behind(read_one, seeds, 500) < LEFT


def conversations(recorded: Recorded) -> tuple[Callable[[bytes], object], list[bytes], Callable[[], None]]:
    """Return a function that runs a conversation with one damaged answer, its seeds, and a function that stops the server."""
    queries = list(recorded.answers)
    answers = dict(recorded.answers)
    server = Repeated(answers)
    talk = Talk(server.port, recorded.talk.database, recorded.talk.slot, recorded.talk.begin, recorded.folder)
    talk.tap.__exit__()
    talk.tap = Tap(server.port)
    talk.tap.__exit__()
    talk.tap.port = server.port
    seeds = [
        BLOCK.pack(number) + answer
        for number, query in enumerate(queries)
        for answer in map(b"".join, recorded.answers[query])
        if len(answer) < 60_000
    ]

    def one(data: bytes) -> None:
        number = BLOCK.unpack_from(data.ljust(4, b"\0"))[0] % len(queries)
        # the subscriber waits for the end of an answer, so the end always follows the damaged bytes
        answers[queries[number]] = [[data[4:], sized(b"E\0\0\0\0SERROR\0C42601\0Mspoiled\0\0"), b"Z\0\0\0\5I"]]
        try:
            talk.all(patience=0.3)
        finally:
            answers[queries[number]] = recorded.answers[queries[number]]

    return one, seeds, server.close


@pytest.mark.slow
def test_damaged_conversation_ends(recorded: Recorded) -> None:
    converse, seeds, end = conversations(recorded)
    result = run(converse, seeds, 60)
    end()
    assert not result.wrong


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_damaged_conversations_end(recorded: Recorded) -> None:
    threads_before = threading.active_count()
    converse, seeds, end = conversations(recorded)
    result = run(converse, seeds, 5000, seed=7)
    print(f"conversations: {result.inputs} inputs, {result.refused} refused")
    assert not result.wrong
    assert left_behind(converse, seeds, 100) < LEFT
    end()
    assert threading.active_count() <= threads_before + 2


def test_rejected_answer_is_reported_as_an_invalid_response() -> None:
    with pytest.raises(PostgresError, match="invalid response from publisher"):
        answer.number("9" * 30)
