"""The grammar in processes of their own, for texts that are large.

libpg_query writes a parse tree by recursion and does not look at the stack: `1+1+…` of some tens of kB is the end of the process that
parses it, and many short tokens are gigabytes. So only a text of which no nesting can use up a thread's stack is parsed where the
session is; all others here, where what a text may take is bounded, what crashes is one error of one statement, and a cancel ends the work.
A tree that leaves has at most LEVELS: what goes over it by recursion in the node (libpg_query's deparser needs 2 to 4 kB a level) is safe.

`parse_apart` is called by `parser.parse`; it takes a process that has nothing to do, or starts one. Run as
``python -m headgate.sql.parser_process`` a process answers one text after the other until its input ends, which is when the node does.

The interpreter's lock is held while protobuf reads bytes, for seconds if they are a tree of many MB. So a process sends a tree in parts of
about `PART` bytes, and the node merges them one by one: other sessions run in between, and a cancel ends the reading. A message that is
larger than a part is opened (`_OPEN`, its field's number), filled by the parts that follow, and closed (`_CLOSE`); only a string of that
length comes whole.

At most `LARGE_AT_A_TIME` texts beyond `LARGE` bytes, and `SMALL_AT_A_TIME` others, are parsed at a time, as each may take `MEMORY`; the
sessions of the rest wait for their turn. Processes have a lower priority than the node's threads, which other sessions need.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import resource
import select
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import BinaryIO

from google._upb import _message as protobuf  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message
from postgast.errors import PgQueryError
from postgast.pg_query_pb2 import ParseResult

from headgate.errors import PostgresError
from headgate.interruption import look

MEMORY = 3 << 30
"""Bytes that a process may take."""
TREE = 64 << 20
"""Bytes of a tree, beside those of the text: read it takes some ten times as many, in the node."""
LEVELS = 1000
"""So many messages of a tree may stand in each other: two for an operator, three for a UNION."""
IDLE = 2
"""How many processes stay when they have nothing to do."""
PART = 256 << 10
"""Bytes of a tree that protobuf reads at once: some 2 ms."""
LARGE = 1 << 20
"""Bytes of a text of which only few are parsed at a time."""
LARGE_AT_A_TIME, SMALL_AT_A_TIME = 2, 8
NICE = 5
"""How much lower than that of the node the priority of a process is."""
LONGEST_TOKEN = 64 << 10
"""Bytes of an error's message beyond which it is cut: the grammar quotes the token at which it stopped, however long that is."""
_TREE, _DEEP_TREE, _ERROR, _TOO_LARGE, _TOO_DEEP = b"T", b"W", b"E", b"M", b"D"
"""What an answer is. A tree consists of the answers that follow: `_MERGE`, `_OPEN`, `_CLOSE`, until `_END`."""
_MERGE, _OPEN, _CLOSE, _END = b"+", b"(", b")", b"."
_LOOK_MS = 100
_BLOCK = 1 << 20
_HEAD = struct.Struct("!cQ")
_LENGTH = struct.Struct("!Q")
_PLACE = struct.Struct("!i")
_turns = {True: threading.Semaphore(LARGE_AT_A_TIME), False: threading.Semaphore(SMALL_AT_A_TIME)}
"""Who may parse now: of large texts, and of others."""


def too_deep() -> PostgresError:
    """54001 for a text whose tree is too deep."""
    return PostgresError("54001", "stack depth limit exceeded", hint="The statement is nested too deeply for a node to take apart.")


def _too_large() -> PostgresError:
    return PostgresError("53200", "out of memory", detail="The statement has more parts than a node takes apart.")


class _Ended(Exception):
    """The process is no more."""


class _ParserProcess:
    """One process, used by one thread at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "headgate.sql.parser_process"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._to, self._from = self._child.stdin, self._child.stdout

    def ask(self, text: bytes) -> None:
        """Send a text; _Ended if the process has died."""
        try:
            self._send(_LENGTH.pack(len(text)))
            self._send(text)
        except BrokenPipeError as error:
            raise _Ended from error

    def answer(self) -> tuple[bytes, bytes]:
        """Return the next part of the answer; _Ended if the text was the end of the process."""
        kind, length = _HEAD.unpack(self._received(_HEAD.size))
        return kind, self._received(length)

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            look()
            rest = rest[self._to.write(rest[:_BLOCK]) :]

    def _received(self, length: int) -> bytes:
        poller = select.poll()
        poller.register(self._from.fileno(), select.POLLIN)
        found = bytearray()
        while len(found) < length:
            look()
            if not poller.poll(_LOOK_MS):
                continue
            block = self._from.read(min(length - len(found), _BLOCK))
            if not block:
                raise _Ended
            found += block
        return bytes(found)

    def end(self) -> None:
        """Ends it, whatever it does."""
        self._child.kill()
        for pipe in (self._to, self._from):
            with contextlib.suppress(OSError):
                pipe.close()
        self._child.wait()


_idle: list[_ParserProcess] = []
_lock = threading.Lock()
_reading = threading.Lock()


@atexit.register
def _end_idle() -> None:
    """Those that wait for a text end with the process that asks."""
    with _lock:
        while _idle:
            _idle.pop().end()


@contextlib.contextmanager
def _turn(length: int) -> Iterator[None]:
    """Wait until a text of that length may be parsed."""
    turn = _turns[length > LARGE]
    while not turn.acquire(timeout=_LOOK_MS / 1000):
        look()
    try:
        yield
    finally:
        turn.release()


@contextlib.contextmanager
def _one() -> Iterator[_ParserProcess]:
    """A process for one text; what raises inside is its end."""
    with _lock:
        process = _idle.pop() if _idle else None
    process = process or _ParserProcess()
    try:
        yield process
    except BaseException:
        process.end()
        raise
    with _lock:
        kept = len(_idle) < IDLE
        if kept:
            _idle.append(process)
    if not kept:
        process.end()


def parse_apart(text: bytes) -> tuple[ParseResult, int]:
    """The parse tree of a text, and the bytes of its encoded form.

    PgQueryError as from `grammar.parse`; 54001 or 53200 if it is too deep or too large.
    """
    try:
        with _turn(len(text)), _one() as process:
            process.ask(text)
            kind, answer = process.answer()
            if kind in (_TREE, _DEEP_TREE):
                return _merged(process, deep=kind == _DEEP_TREE)
    except _Ended as error:
        raise too_deep() from error
    if kind == _TOO_LARGE:
        raise _too_large()
    if kind == _TOO_DEEP:
        raise too_deep()
    raise PgQueryError(answer[_PLACE.size :].decode(errors="ignore"), cursorpos=_PLACE.unpack_from(answer)[0])


def _merged(process: _ParserProcess, *, deep: bool) -> tuple[ParseResult, int]:
    """Return the tree whose parts a process sends, and their bytes."""
    tree, size = ParseResult(), 0
    open_messages: list[Message] = [tree]
    while True:
        kind, part = process.answer()
        message = open_messages[-1]
        size += len(part)
        if kind == _MERGE:
            if deep:
                _merge_deep(message, part)
            else:
                message.MergeFromString(part)
        elif kind == _OPEN:
            field = message.DESCRIPTOR.fields_by_number[_PLACE.unpack(part)[0]]
            inner = getattr(message, field.name)
            if field.is_repeated:
                inner = inner.add()
            else:
                inner.SetInParent()
            open_messages.append(inner)
        elif kind == _CLOSE:
            open_messages.pop()
        else:
            return tree, size


def _merge_deep(message: Message, data: bytes) -> None:
    """Merge data of more than the 100 levels that protobuf reads unless it is told to.

    The switch is the process's: a text that another thread parses meanwhile is short, and nests no deeper than a stack has room for.
    """
    with _reading:
        protobuf.SetAllowOversizeProtos(True)
        try:
            message.MergeFromString(data)
        finally:
            protobuf.SetAllowOversizeProtos(False)


def children(message: Message) -> list[Message]:
    """The messages in the fields of a message, in the order of the fields."""
    found: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is not None:
            found.extend(value if field.is_repeated else [value])
    return found


# ---- in the process -----------------------------------------------------------------------------------------
def _depth(tree: bytes) -> bytes:
    """Return what the tree is to the node: one that protobuf reads, one that it has to be told to read, or one of more than LEVELS."""
    with contextlib.suppress(DecodeError):
        ParseResult.FromString(tree)
        return _TREE
    whole = ParseResult()
    _merge_deep(whole, tree)
    level: list[Message] = [whole]
    for _ in range(LEVELS):
        level = [child for each in level for child in children(each)]
        if not level:
            return _DEEP_TREE
    return _TOO_DEEP


def cut(tree: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Cut the encoded tree into the parts of an answer: fields of one message up to `PART` bytes, and larger messages opened."""
    at = begun = 0
    open_messages = [(ParseResult.DESCRIPTOR, len(tree))]
    while True:
        descriptor, end = open_messages[-1]
        if at == end or at - begun >= PART:
            if at > begun:
                yield _MERGE, tree[begun:at]
            begun = at
        if at == end:
            open_messages.pop()
            yield (_CLOSE if open_messages else _END), b""
            if not open_messages:
                return
            continue
        start = at
        tag, at = _varint(tree, at)
        if tag & 7 == _WIRE_VARINT:
            _, at = _varint(tree, at)
            continue
        if tag & 7 != _WIRE_LENGTH:
            at += _WIRE_FIXED[tag & 7]
            continue
        length, at = _varint(tree, at)
        inner = descriptor.fields_by_number[tag >> 3].message_type if length > PART else None
        if inner is None:
            at += length
            continue
        if start > begun:
            yield _MERGE, tree[begun:start]
        yield _OPEN, _PLACE.pack(tag >> 3)
        begun = at
        open_messages.append((inner, at + length))


_WIRE_VARINT, _WIRE_LENGTH, _WIRE_FIXED = 0, 2, {1: 8, 5: 4}
"""How protobuf encodes a field, and the lengths of those that have a fixed one."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that protobuf has written at a place, and the place behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _parsed(text: bytes) -> tuple[bytes, bytes]:
    """Parse a text; return what it is, and its tree or its error."""
    from postgast.native import lib

    result = lib.pg_query_parse_protobuf(text)
    try:
        if result.error:
            error = result.error.contents
            if error.message in (None, b"out of memory"):
                return _TOO_LARGE, b""
            return _ERROR, _PLACE.pack(error.cursorpos) + _shortened(error.message)
        if result.parse_tree.len > TREE + len(text):
            return _TOO_LARGE, b""
        tree = ctypes.string_at(result.parse_tree.data, result.parse_tree.len)
        kind = _depth(tree)
        return kind, b"" if kind == _TOO_DEEP else tree
    finally:
        lib.pg_query_free_protobuf_parse_result(result)


def _shortened(message: bytes) -> bytes:
    """Cut a message that quotes a long token."""
    return message if len(message) <= LONGEST_TOKEN else message[:LONGEST_TOKEN] + b'..."'


def _exactly(source: BinaryIO, length: int) -> bytes:
    data = source.read(length)
    if len(data) < length:
        sys.exit(0)
    return data


def main() -> None:
    """Answers texts until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICE)
    while True:
        [length] = _LENGTH.unpack(_exactly(sys.stdin.buffer, _LENGTH.size))
        try:
            kind, answer = _parsed(_exactly(sys.stdin.buffer, length))
        except MemoryError:
            kind, answer = _TOO_LARGE, b""
        is_tree = kind in (_TREE, _DEEP_TREE)
        _say(kind, b"" if is_tree else answer)
        if is_tree:
            for part in cut(answer):
                _say(*part)
        sys.stdout.buffer.flush()


def _say(kind: bytes, answer: bytes) -> None:
    sys.stdout.buffer.write(_HEAD.pack(kind, len(answer)))
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
