"""Parses large texts in separate processes.

libpg_query builds a parse tree by recursion without checking the stack: `1+1+…` of some tens of kB crashes the process that parses it,
and many short tokens take gigabytes. So the session's own thread parses only texts that are too short for their nesting to exhaust its
stack.
All others are parsed here: their memory is limited, a crash is an error of one statement, and a cancel ends the work. A tree that is
returned has at most LEVELS levels, so that recursive code in the node is safe (libpg_query's deparser needs 2 to 4 kB a level).

`parser.parse` calls `parse_apart`, which uses an idle process or starts one. Run as ``python -m headgate.sql.parser_process``, a process
answers one text after the other until its input ends, which happens when the node ends.

protobuf holds the interpreter's lock while it reads bytes, for seconds if they are a tree of many MB. So a process sends a tree in parts of
about `PART` bytes, and the node merges them one by one: other sessions run in between, and a cancel ends the reading. A message that is
larger than a part is opened (`_OPEN`, its field's number), filled by the parts that follow, and closed (`_CLOSE`). Only a string of that
size is sent as a whole.

At most `LARGE_AT_A_TIME` texts larger than `LARGE` bytes, and `SMALL_AT_A_TIME` others, are parsed at a time, as each may take `MEMORY`.
Sessions with further texts wait for their turn. Processes have a lower priority than the node's threads, which other sessions need.
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

from headgate import interruption
from headgate.errors import PostgresError

MEMORY = 3 << 30
"""The most bytes of memory that a process may take."""
TREE = 64 << 20
"""The most bytes of a tree, in addition to those of the text. Decoded, it takes about ten times as many in the node."""
LEVELS = 1000
"""The maximum depth of messages in a tree: an operator takes two, a UNION three."""
IDLE = 2
"""The number of processes that are kept while they are idle."""
PART = 256 << 10
"""The bytes of a tree that protobuf reads at once, which takes about 2 ms."""
LARGE = 1 << 20
"""The size in bytes above which only `LARGE_AT_A_TIME` texts are parsed at a time."""
LARGE_AT_A_TIME, SMALL_AT_A_TIME = 2, 8
NICE = 5
"""The difference between the priorities of a process and of the node."""
LONGEST_TOKEN = 64 << 10
"""The bytes to which an error message is cut. The grammar quotes the token at which it stopped, whatever its length."""
_TREE, _DEEP_TREE, _ERROR, _TOO_LARGE, _TOO_DEEP = b"T", b"W", b"E", b"M", b"D"
"""The kinds of answers. A tree consists of the answers that follow: `_MERGE`, `_OPEN`, `_CLOSE`, until `_END`."""
_MERGE, _OPEN, _CLOSE, _END = b"+", b"(", b")", b"."
_LOOK_MS = 100
_BLOCK = 1 << 20
_HEAD = struct.Struct("!cQ")
_LENGTH = struct.Struct("!Q")
_PLACE = struct.Struct("!i")
_turns = {True: threading.Semaphore(LARGE_AT_A_TIME), False: threading.Semaphore(SMALL_AT_A_TIME)}
"""The semaphores for large texts and for others."""


def too_deep() -> PostgresError:
    """Return 54001 for a text whose tree is too deep."""
    return PostgresError("54001", "stack depth limit exceeded", hint="The statement exceeds the nesting depth that the parser accepts.")


def _too_large() -> PostgresError:
    return PostgresError("53200", "out of memory", detail="The statement exceeds the number of parts that the parser accepts.")


class _Ended(Exception):
    """The process has ended."""


class _ParserProcess:
    """A parser process, used by one thread at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "headgate.sql.parser_process"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._to, self._from = self._child.stdin, self._child.stdout

    def ask(self, text: bytes) -> None:
        """Send a text. Raise _Ended if the process has died."""
        try:
            self._send(_LENGTH.pack(len(text)))
            self._send(text)
        except BrokenPipeError as error:
            raise _Ended from error

    def answer(self) -> tuple[bytes, bytes]:
        """Return the next part of the answer. Raise _Ended if the text has crashed the process."""
        kind, length = _HEAD.unpack(self._receive(_HEAD.size))
        return kind, self._receive(length)

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            interruption.check()
            rest = rest[self._to.write(rest[:_BLOCK]) :]

    def _receive(self, length: int) -> bytes:
        poller = select.poll()
        poller.register(self._from.fileno(), select.POLLIN)
        data = bytearray()
        while len(data) < length:
            interruption.check()
            if not poller.poll(_LOOK_MS):
                continue
            block = self._from.read(min(length - len(data), _BLOCK))
            if not block:
                raise _Ended
            data += block
        return bytes(data)

    def end(self) -> None:
        """Kill the process, whatever it does."""
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
    """End the idle processes when the calling process ends."""
    with _lock:
        while _idle:
            _idle.pop().end()


@contextlib.contextmanager
def _turn(length: int) -> Iterator[None]:
    """Wait until a text of that length may be parsed."""
    turn = _turns[length > LARGE]
    while not turn.acquire(timeout=_LOOK_MS / 1000):
        interruption.check()
    try:
        yield
    finally:
        turn.release()


@contextlib.contextmanager
def _one() -> Iterator[_ParserProcess]:
    """Provide a process for one text. An exception inside the context ends it."""
    with _lock:
        process = _idle.pop() if _idle else None
    process = process or _ParserProcess()
    try:
        yield process
    except BaseException:
        process.end()
        raise
    with _lock:
        is_kept = len(_idle) < IDLE
        if is_kept:
            _idle.append(process)
    if not is_kept:
        process.end()


def parse_apart(text: bytes) -> tuple[ParseResult, int]:
    """Return the parse tree of a text, and the bytes of its encoded form.

    Raise PgQueryError as `grammar.parse`, 54001 if the tree is too deep, 53200 if it is too large.
    """
    try:
        with _turn(len(text)), _one() as process:
            process.ask(text)
            kind, answer = process.answer()
            if kind in (_TREE, _DEEP_TREE):
                return _merge(process, deep=kind == _DEEP_TREE)
    except _Ended as error:
        raise too_deep() from error
    if kind == _TOO_LARGE:
        raise _too_large()
    if kind == _TOO_DEEP:
        raise too_deep()
    raise PgQueryError(answer[_PLACE.size :].decode(errors="ignore"), cursorpos=_PLACE.unpack_from(answer)[0])


def _merge(process: _ParserProcess, *, deep: bool) -> tuple[ParseResult, int]:
    """Merge the parts of a tree that a process sends. Return it, and the bytes of the parts."""
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
    """Merge data with more than the 100 levels that protobuf reads by default.

    The switch applies to the whole process. A text that another thread parses in the meantime is short, so its nesting fits into a stack.
    """
    with _reading:
        protobuf.SetAllowOversizeProtos(True)
        try:
            message.MergeFromString(data)
        finally:
            protobuf.SetAllowOversizeProtos(False)


def children(message: Message) -> list[Message]:
    """Return the messages in the fields of a message, in field order."""
    messages: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is not None:
            messages.extend(value if field.is_repeated else [value])
    return messages


# ---- in the process -----------------------------------------------------------------------------------------
def _depth(tree: bytes) -> bytes:
    """Return whether the node's protobuf can read the tree by default (_TREE), with the switch (_DEEP_TREE) or not at all (_TOO_DEEP)."""
    with contextlib.suppress(DecodeError):
        ParseResult.FromString(tree)
        return _TREE
    whole = ParseResult()
    _merge_deep(whole, tree)
    level: list[Message] = [whole]
    for _ in range(LEVELS):
        level = [child for message in level for child in children(message)]
        if not level:
            return _DEEP_TREE
    return _TOO_DEEP


def cut(tree: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split the encoded tree into the parts of an answer: fields of one message up to `PART` bytes, and opened larger messages."""
    position = part_start = 0
    open_messages = [(ParseResult.DESCRIPTOR, len(tree))]
    while True:
        descriptor, end = open_messages[-1]
        if position == end or position - part_start >= PART:
            if position > part_start:
                yield _MERGE, tree[part_start:position]
            part_start = position
        if position == end:
            open_messages.pop()
            yield (_CLOSE if open_messages else _END), b""
            if not open_messages:
                return
            continue
        start = position
        tag, position = _varint(tree, position)
        if tag & 7 == _WIRE_VARINT:
            _, position = _varint(tree, position)
            continue
        if tag & 7 != _WIRE_LENGTH:
            position += _WIRE_FIXED[tag & 7]
            continue
        length, position = _varint(tree, position)
        inner = descriptor.fields_by_number[tag >> 3].message_type if length > PART else None
        if inner is None:
            position += length
            continue
        if start > part_start:
            yield _MERGE, tree[part_start:start]
        yield _OPEN, _PLACE.pack(tag >> 3)
        part_start = position
        open_messages.append((inner, position + length))


_WIRE_VARINT, _WIRE_LENGTH, _WIRE_FIXED = 0, 2, {1: 8, 5: 4}
"""The wire types of protobuf, and the lengths of the fixed ones."""


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def _parsed(text: bytes) -> tuple[bytes, bytes]:
    """Parse a text. Return the kind of the answer, and the tree or the error."""
    from postgast.native import lib

    result = lib.pg_query_parse_protobuf(text)
    try:
        if result.error:
            error = result.error.contents
            if error.message in (None, b"out of memory"):
                return _TOO_LARGE, b""
            return _ERROR, _PLACE.pack(error.cursorpos) + _shorten(error.message)
        if result.parse_tree.len > TREE + len(text):
            return _TOO_LARGE, b""
        tree = ctypes.string_at(result.parse_tree.data, result.parse_tree.len)
        kind = _depth(tree)
        return kind, b"" if kind == _TOO_DEEP else tree
    finally:
        lib.pg_query_free_protobuf_parse_result(result)


def _shorten(message: bytes) -> bytes:
    """Cut a message that quotes a long token."""
    return message if len(message) <= LONGEST_TOKEN else message[:LONGEST_TOKEN] + b'..."'


def _exactly(source: BinaryIO, length: int) -> bytes:
    data = source.read(length)
    if len(data) < length:
        sys.exit(0)
    return data


def main() -> None:
    """Answer texts until the input ends."""
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
