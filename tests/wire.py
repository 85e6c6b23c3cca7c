"""Attacks on the fields of PostgreSQL's protocol: the messages, the fields in them, and a proxy that corrupts one field.

`Tap` is a proxy for a real server. It identifies each field by the last statement and the position of the field in the message
(``SELECT c.oid, … D.2``, ``START_REPLICATION … R.name``), and corrupts the first one that an `Attack` names. It records the server's answers,
which `Repeated` sends again without the server.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.system.proxy import Proxy

HEAD = 5
"""Bytes before the body of a frame: its kind and its length."""
XLOG = HEAD + 25
"""Bytes before the message in a frame of the stream."""


@dataclass(frozen=True)
class Field:
    """The bytes of a text in a frame. `word`: whether its length is in the four bytes before it."""

    name: str
    start: int
    end: int
    word: bool = False


def frames(buffer: bytearray) -> Iterator[bytes]:
    """Remove the complete frames at the beginning of the buffer, and yield them."""
    while len(buffer) >= HEAD:
        size = 1 + struct.unpack_from("!I", buffer, 1)[0]
        if len(buffer) < size:
            return
        yield bytes(buffer[:size])
        del buffer[:size]


def fields(frame: bytes, statement: str) -> list[Field]:
    """Return the texts in a frame of a server. `statement`: the client's last one."""
    kind = chr(frame[0])
    match kind:
        case "S":
            return _strings(frame, "S", HEAD)
        case "E" | "N":
            return _report(frame, kind)
        case "C":
            return _strings(frame, "C", HEAD)
        case "T":
            return _described(frame)
        case "D":
            return _cells(frame, "D", HEAD)
        case "d" if statement.startswith("COPY"):
            return _copied(frame)
        case "d" if frame[HEAD : HEAD + 1] == b"w":
            return _streamed(frame)
        case _:
            return []


def client_fields(frame: bytes) -> list[Field]:
    """Return the texts in a frame of a client: statements, the literals and names in them, and whole replies in a stream."""
    match chr(frame[0]):
        case "Q" | "p":
            strings = _strings(frame, chr(frame[0]), HEAD)
            inner = re.compile(rb"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"|(\d[\d/A-F]*)")
            parts = [next(group for group in (1, 2, 3) if match[group] is not None) for match in inner.finditer(frame)]
            spans = [match.span(group) for match, group in zip(inner.finditer(frame), parts, strict=True)]
            return strings + [Field(f"Q.{number}", *span) for number, span in enumerate(spans) if span[0] >= HEAD]
        case "d" | "f":
            return [Field(chr(frame[0]), HEAD, len(frame))]
        case _:
            return []


def _strings(frame: bytes, name: str, at: int) -> list[Field]:
    string_fields = []
    while at < len(frame) and (end := frame.find(b"\0", at)) >= 0:
        string_fields.append(Field(f"{name}.{len(string_fields)}", at, end))
        at = end + 1
    return string_fields


def _report(frame: bytes, kind: str) -> list[Field]:
    at, report_fields = HEAD, []
    while frame[at]:
        end = frame.index(b"\0", at)
        report_fields.append(Field(f"{kind}.{chr(frame[at])}", at + 1, end))
        at = end + 1
    return report_fields


def _described(frame: bytes) -> list[Field]:
    at, described_fields = HEAD + 2, []
    while at < len(frame):
        end = frame.index(b"\0", at)
        described_fields.append(Field(f"T.{len(described_fields)}", at, end))
        at = end + 1 + 18
    return described_fields


def _cells(frame: bytes, name: str, at: int) -> list[Field]:
    """Return the columns of a DataRow."""
    cell_fields = []
    count = struct.unpack_from("!h", frame, at)[0]
    at += 2
    for number in range(count):
        size = struct.unpack_from("!i", frame, at)[0]
        at += 4
        if size >= 0:
            cell_fields.append(Field(f"{name}.{number}", at, at + size, word=True))
            at += size
    return cell_fields


def _copied(frame: bytes) -> list[Field]:
    """Return the columns of a line of COPY's text format."""
    at, copied_fields = HEAD, []
    for number, cell in enumerate(re.split(rb"[\t\n]", frame[HEAD:])[:-1]):
        copied_fields.append(Field(f"d.{number}", at, at + len(cell)))
        at += len(cell) + 1
    return copied_fields


def _streamed(frame: bytes) -> list[Field]:
    """Return the texts in a message of pgoutput."""
    kind, at = chr(frame[XLOG]), XLOG + 1
    match kind:
        case "R":
            schema = frame.index(b"\0", at + 4)
            name = frame.index(b"\0", schema + 1)
            relation_fields = [Field("R.schema", at + 4, schema), Field("R.name", schema + 1, name)]
            at = name + 1 + 3
            while at < len(frame):
                end = frame.index(b"\0", at + 1)
                relation_fields.append(Field(f"R.{len(relation_fields) - 2}", at + 1, end))
                at = end + 1 + 8
            return relation_fields
        case "Y":
            return _strings(frame, kind, at + 4)
        case "O":
            return _strings(frame, kind, at + 8)
        case "I" | "U" | "D":
            return _changed(frame, kind, at + 4)
        case "b":
            return _strings(frame, kind, at + 28)
        case "P" | "K":
            return _strings(frame, kind, at + 29)
        case "r":
            return _strings(frame, kind, at + 37)
        case _:
            return []


def _changed(frame: bytes, kind: str, at: int) -> list[Field]:
    changed_fields = []
    while at < len(frame):
        which, count = chr(frame[at]), struct.unpack_from("!h", frame, at + 1)[0]
        at += 3
        for number in range(count):
            kind_of_value = frame[at : at + 1]
            at += 1
            if kind_of_value in (b"t", b"b"):
                size = struct.unpack_from("!i", frame, at)[0]
                changed_fields.append(Field(f"{kind}.{which}.{number}", at + 4, at + 4 + size, word=True))
                at += 4 + size
    return changed_fields


# ---- corruptions of a field -----------------------------------------------------------------------------

Change = Callable[[bytes, Field], bytes]


def replaced(content: bytes) -> Change:
    """Return a change that replaces the contents and corrects the lengths."""

    def change(frame: bytes, at: Field) -> bytes:
        begin = frame[: at.start - 4] + struct.pack("!I", len(content)) if at.word else frame[: at.start]
        return sized(begin + content + frame[at.end :])

    return change


def sized(frame: bytes) -> bytes:
    """Return the frame with its actual length in the length word."""
    return frame[:1] + struct.pack("!I", len(frame) - 1) + frame[HEAD:]


def cut(frame: bytes, at: Field) -> bytes:
    """End the frame inside the field."""
    return sized(frame[: (at.start + at.end) // 2])


def endless(frame: bytes, at: Field) -> bytes:
    """Set the length of the field, or of the frame if the field has none, to 2^31 - 1."""
    place = at.start - 4 if at.word else 1
    return frame[:place] + b"\x7f\xff\xff\xff" + frame[place + 4 :]


def negative(frame: bytes, at: Field) -> bytes:
    """Set the length of the field, or of the frame if the field has none, to -2."""
    place = at.start - 4 if at.word else 1
    return frame[:place] + b"\xff\xff\xff\xfe" + frame[place + 4 :]


def missing(frame: bytes, at: Field) -> bytes:
    """Remove the field, which has been announced."""
    return sized(frame[: at.start - 4 if at.word else at.start] + frame[at.end :])


def null(frame: bytes, at: Field) -> bytes:
    """Replace the field by NULL."""
    return sized(frame[: at.start - 4] + b"\xff\xff\xff\xff" + frame[at.end :]) if at.word else replaced(rb"\N")(frame, at)


def another(frame: bytes) -> Change:
    """Return a change that replaces the whole frame."""
    return lambda _frame, _at: frame


SQL = b"CREATE ROLE pwned SUPERUSER"
CORRUPTIONS: dict[str, Change] = {
    "a type and a statement": replaced(b"text); " + SQL + b"; --"),
    "the end of a literal": replaced(b"'; " + SQL + b"; --"),
    "a backslash and the end of a literal": replaced(b"\\'; " + SQL + b"; --"),
    "the end of a name": replaced(b'"; ' + SQL + b"; --"),
    "quotes of all kinds": replaced(b"$$`\"'[]{}()\\%../_delta_log/\t\x01"),
    "a megabyte": replaced(b"x" * ((1 << 20) + 1)),
    "digits": replaced(b"9" * 5000),
    "minus one": replaced(b"-1"),
    "nothing": replaced(b""),
    "no UTF-8": replaced(b"a\xff\xfe\x80"),
    "half a character": replaced(b"a\xe2\x82"),
    "a zero byte": replaced(b"a\0b"),
    "two lines": replaced(b"a\n\nb\r"),
    "NULL": null,
    "a position that nobody has reached": replaced(b"r" + b"\xff" * 32 + b"\1"),
    "a position that is very far": replaced(b"r" + b"\x7f" + b"\xff" * 32),
    "a COPY TO": another(b"H\0\0\0\7\0\0\0"),
    "a COPY FROM": another(b"G\0\0\0\7\0\0\0"),
    "a COPY in both directions": another(b"W\0\0\0\7\0\0\0"),
    "the end": another(b"Z\0\0\0\5I"),
    "an error without words": another(b"E\0\0\0\5\0"),
    "an error that is none": another(sized(b"E\0\0\0\0SERROR\0V\xff\0C\xff\0M\xff\xfe\0\0")),
    "a notification": another(sized(b"A\0\0\0\0\0\0\0\1x\0y\0")),
    "no message of the protocol": another(b"\xff\0\0\0\4"),
    "cut": cut,
    "missing": missing,
    "endless": endless,
    "negative": negative,
}


# ---- the proxy ------------------------------------------------------------------------------------------


@dataclass
class Attack:
    """The corruption of one field, once."""

    statement: str
    field: str
    change: Change
    fired: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set after the attacked connection has ended."""


def known_as(statement: str) -> str:
    """Return a statement without its numbers and LSNs, which differ from run to run."""
    return re.sub(r"[0-9A-F]+/[0-9A-F]+|\d+", "N", statement)[:70]


class Tap(Proxy):
    """A proxy that identifies fields and corrupts the one of `attack`, in the frames of the server or of the client (`hostile`).

    `choose` returns the corruption for a field that is seen for the first time, or None.
    """

    def __init__(self, target: int, hostile: str = "server") -> None:
        self.attack: Attack | None = None
        self.choose: Callable[[str, str], Change | None] | None = None
        self.corrupted: list[tuple[str, str]] = []
        self.sites: dict[tuple[str, str], None] = {}
        """Statements with the fields of their answers, in the order in which they were first seen."""
        self.hostile = hostile
        self.client_frames: list[bytes] = []
        """The frames that the clients have sent."""
        self.answers: dict[str, list[list[bytes]]] = {}
        """The server's answers to the first client that sent a statement. Frames before the first statement have an empty key."""
        self._answered: dict[str, socket.socket] = {}
        self._statements: dict[socket.socket, str] = {}
        super().__init__(target)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            upwards = sink.getpeername()[1] == self.target
        except OSError:  # the connection is closed
            return
        pending = bytearray()
        started = not upwards
        attacks: list[Attack] = []
        with contextlib.suppress(OSError, struct.error):
            while data := source.recv(1 << 16):
                pending += data
                if not started:
                    size = struct.unpack_from("!I", pending)[0]
                    sink.sendall(pending[:size])
                    del pending[:size]
                    started = True
                for frame in frames(pending):
                    sink.sendall(self._client_frame(frame, sink, attacks) if upwards else self._server_frame(frame, source, attacks))
                    if attacks and attacks[-1].change in (endless, negative):
                        raise OSError  # the announced bytes never arrive
        self._end(source, sink)
        for attack in attacks:
            attack.ended.set()

    def _client_frame(self, frame: bytes, server: socket.socket, attacks: list[Attack]) -> bytes:
        self.client_frames.append(frame)
        if frame[:1] == b"Q":
            statement = self._statements[server] = known_as(frame[HEAD:-1].decode(errors="replace"))
            if self._answered.setdefault(statement, server) is server:
                self.answers.setdefault(statement, []).append([])
        if self.hostile == "client":
            return self._corrupted(frame, self._statements.get(server, ""), client_fields(frame), attacks)
        return frame

    def _server_frame(self, frame: bytes, server: socket.socket, attacks: list[Attack]) -> bytes:
        statement = self._statements.get(server, "")
        if self._answered.setdefault(statement, server) is server:
            self.answers.setdefault(statement, [[]])[-1].append(frame)
        return self._corrupted(frame, statement, fields(frame, statement), attacks) if self.hostile == "server" else frame

    def _corrupted(self, frame: bytes, statement: str, frame_fields: list[Field], attacks: list[Attack]) -> bytes:
        for frame_field in frame_fields:
            site = (statement, frame_field.name)
            new = site not in self.sites
            self.sites.setdefault(site)
            if new and self.choose is not None and (change := self.choose(*site)) is not None:
                self.corrupted.append(site)
                attacks.append(Attack(*site, change))
                return self._with_end(change(frame, frame_field))
            attack = self.attack
            if attack is not None and not attack.fired.is_set() and (statement, frame_field.name) == (attack.statement, attack.field):
                attacks.append(attack)
                attack.fired.set()
                return self._with_end(attack.change(frame, frame_field))
        return frame

    def _with_end(self, corrupted: bytes) -> bytes:
        """Append a Sync to a client's corrupted message, which the server answers in any case."""
        return corrupted + SYNC if self.hostile == "client" and corrupted[:1] not in (b"Q", b"d") else corrupted


class Repeated:
    """A server on `port` that sends the recorded answers of another one (`Tap.answers`) to any client."""

    def __init__(self, answers: dict[str, list[list[bytes]]]) -> None:
        self.answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        pending = bytearray()
        started = False
        times: dict[str, int] = {}
        with client, contextlib.suppress(OSError, struct.error):
            while data := client.recv(1 << 16):
                pending += data
                if not started:
                    del pending[: struct.unpack_from("!I", pending)[0]]
                    client.sendall(b"".join(self.answers[""][0]))
                    started = True
                for frame in frames(pending):
                    if frame[:1] == b"Q":
                        statement = known_as(frame[HEAD:-1].decode(errors="replace"))
                        turns = self.answers.get(statement, [[NO_ANSWER]])
                        client.sendall(b"".join(turns[min(times.get(statement, 0), len(turns) - 1)]))
                        times[statement] = times.get(statement, 0) + 1


SYNC = b"S\0\0\0\4"
NO_ANSWER = sized(b"E\0\0\0\0SERROR\0VERROR\0C42601\0Mno answer is recorded for this statement\0\0") + b"Z\0\0\0\5I"
