"""The grammar in processes of their own, for texts that are large.

libpg_query writes a parse tree by recursion and does not look at the stack: `1+1+…` of some tens of kB is the end of the process that
parses it, and many short tokens are gigabytes. So only a text of which no nesting can use up a thread's stack is parsed where the
session is; all others here, where what a text may take is bounded, what crashes is one error of one statement, and a cancel ends the work.
A tree that leaves has at most LEVELS: what goes over it by recursion in the node (libpg_query's deparser needs 2 to 4 kB a level) is safe.

`parse_apart` is called by `parser.tree`; it takes a process that has nothing to do, or starts one. Run as
``python -m headgate.sql.parser_process`` a process answers one text after the other until its input ends, which is when the node does.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
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
_TREE, _ERROR, _TOO_LARGE, _TOO_DEEP = b"T", b"E", b"M", b"D"
_LOOK_MS = 100
_BLOCK = 1 << 20
_HEAD = struct.Struct("!cQ")
_LENGTH = struct.Struct("!Q")
_PLACE = struct.Struct("!i")


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

    def answer(self, text: bytes) -> tuple[bytes, bytes]:
        """What became of a text; _Ended where the process did not outlive it."""
        try:
            self._send(_LENGTH.pack(len(text)))
            self._send(text)
        except BrokenPipeError as error:
            raise _Ended from error
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


def parse_apart(text: bytes) -> ParseResult:
    """The parse tree of a text; PgQueryError as from `grammar.parse`, 54001 or 53200 where it is too deep or too large."""
    try:
        with _one() as process:
            kind, answer = process.answer(text)
    except _Ended as error:
        raise too_deep() from error
    if kind == _TOO_LARGE:
        raise _too_large()
    if kind == _TOO_DEEP:
        raise too_deep()
    if kind == _ERROR:
        raise PgQueryError(answer[_PLACE.size :].decode(), cursorpos=_PLACE.unpack_from(answer)[0])
    try:
        return ParseResult.FromString(answer)
    except DecodeError:
        return _read_whole(answer)


def _read_whole(tree: bytes) -> ParseResult:
    """The tree of more than the 100 levels that protobuf reads unless it is told to.

    The switch is the process's: a text that another thread parses meanwhile is short, and nests no deeper than a stack has room for.
    """
    with _reading:
        protobuf.SetAllowOversizeProtos(True)
        try:
            return ParseResult.FromString(tree)
        finally:
            protobuf.SetAllowOversizeProtos(False)


def children(message: Message) -> list[Message]:
    """The messages in the fields of a message, in the order of the fields."""
    found: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is not None:
            found.extend(value if field.is_repeated else [value])
    return found


def _is_deep(tree: bytes) -> bool:
    """Whether a tree has more than LEVELS."""
    with contextlib.suppress(DecodeError):
        ParseResult.FromString(tree)
        return False
    level: list[Message] = [_read_whole(tree)]
    for _ in range(LEVELS):
        level = [child for each in level for child in children(each)]
        if not level:
            return False
    return True


def _parsed(text: bytes) -> tuple[bytes, bytes]:
    """The answer to a text, in the process."""
    from postgast.native import lib

    result = lib.pg_query_parse_protobuf(text)
    try:
        if result.error:
            error = result.error.contents
            if error.message in (None, b"out of memory"):
                return _TOO_LARGE, b""
            return _ERROR, _PLACE.pack(error.cursorpos) + error.message
        if result.parse_tree.len > TREE + len(text):
            return _TOO_LARGE, b""
        tree = ctypes.string_at(result.parse_tree.data, result.parse_tree.len)
        return (_TOO_DEEP, b"") if _is_deep(tree) else (_TREE, tree)
    finally:
        lib.pg_query_free_protobuf_parse_result(result)


def _exactly(source: BinaryIO, length: int) -> bytes:
    data = source.read(length)
    if len(data) < length:
        sys.exit(0)
    return data


def main() -> None:
    """Answers texts until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        [length] = _LENGTH.unpack(_exactly(sys.stdin.buffer, _LENGTH.size))
        try:
            kind, answer = _parsed(_exactly(sys.stdin.buffer, length))
        except MemoryError:
            kind, answer = _TOO_LARGE, b""
        sys.stdout.buffer.write(_HEAD.pack(kind, len(answer)))
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
