"""Messages of the frontend/backend protocol 3.0, without any I/O (manual, 55.7 Message Formats).

`FrontendReader` decodes the body of a message from a client. The functions below it encode messages for a client, each complete: type
byte, length, body. Called by the connection, the session, COPY and the walsender's channel. Invariant: a malformed body raises
PostgresError 08P01 with PostgreSQL's text, never struct.error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from headgate.errors import Notice, PostgresError, Severity
from headgate.settings.encoding import UTF8, Encoding
from headgate.types.resultset import ResultColumn

PROTOCOL_3: Final = 3
CANCEL_REQUEST: Final = (1234 << 16) | 5678
SSL_REQUEST: Final = (1234 << 16) | 5679
GSSENC_REQUEST: Final = (1234 << 16) | 5680
MAX_STARTUP_LENGTH: Final = 10000
"""The longest startup packet in bytes (MAX_STARTUP_PACKET_LENGTH)."""
MAX_SMALL_MESSAGE: Final = 10000
"""The longest message in bytes of the types that carry no data (PQ_SMALL_MESSAGE_LIMIT)."""
MAX_LARGE_MESSAGE: Final = 0x3FFFFFFF
"""The longest message in bytes that carries data (PQ_LARGE_MESSAGE_LIMIT)."""

MAX_HELD_MESSAGE: Final = 128 << 20
"""The longest message in bytes that a node stores as a whole: executing its statement makes several copies of it."""

LARGE: Final = frozenset("QPBFd")
SMALL: Final = frozenset("CDEHScfXp")

_HEAD = struct.Struct("!ci")


class FrontendReader:
    """A reader of one message body, with checks as in pqformat.c (pq_getmsg*). Strings are in `encoding`."""

    def __init__(self, body: bytes, encoding: Encoding = UTF8) -> None:
        self.body = body
        self._view = memoryview(body)
        self.encoding = encoding
        self.at = 0

    @property
    def rest(self) -> int:
        """The number of bytes that have not been read yet."""
        return len(self.body) - self.at

    def take(self, length: int) -> bytes:
        """Return the next `length` bytes."""
        if length < 0 or length > self.rest:
            raise PostgresError("08P01", "insufficient data left in message")
        self.at += length
        return bytes(self._view[self.at - length : self.at])

    def byte(self) -> int:
        if not self.rest:
            raise PostgresError("08P01", "no data left in message")
        return self.take(1)[0]

    def int16(self) -> int:
        """Return the next 2 bytes as a signed integer."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        """Return the next 4 bytes as a signed integer."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        """Return the next 8 bytes as a signed integer."""
        return int.from_bytes(self.take(8), "big", signed=True)

    def raw_string(self) -> bytes:
        """Return the bytes up to the next zero byte, and skip that."""
        end = self.body.find(b"\0", self.at)
        if end < 0:
            raise PostgresError("08P01", "invalid string in message")
        text = bytes(self._view[self.at : end])
        self.at = end + 1
        return text

    def string(self) -> str:
        """Return the decoded string up to the next zero byte."""
        return self.encoding.decode(self.raw_string())

    def end(self) -> None:
        """Raise 08P01 if bytes are left."""
        if self.rest:
            raise PostgresError("08P01", "invalid message format")


def length_allowed(kind: str, length: int, *, authenticated: bool) -> bool:
    """Return whether a message of that type may have that length (the value of the length word, which includes itself)."""
    limit = MAX_LARGE_MESSAGE if kind in LARGE and authenticated else MAX_SMALL_MESSAGE
    return 4 <= length <= limit


def message(kind: bytes, body: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(body) + 4) + body


def _text(value: str, encoding: Encoding = UTF8) -> bytes:
    """Encode a string of the protocol. Raise 22P05 if the client's encoding cannot represent it.

    Characters that no encoding can represent become question marks, so that the fields after the string stay readable.
    """
    value = value.encode("utf-8", "replace").decode().replace("\0", "?")
    return encoding.encode(value) + b"\0"


def authentication_ok() -> bytes:
    return message(b"R", struct.pack("!i", 0))


def authentication_cleartext() -> bytes:
    return message(b"R", struct.pack("!i", 3))


def authentication_md5(salt: bytes) -> bytes:
    """AuthenticationMD5Password; the salt has 4 bytes."""
    return message(b"R", struct.pack("!i", 5) + salt)


def authentication_sasl(mechanisms: Sequence[str]) -> bytes:
    return message(b"R", struct.pack("!i", 10) + b"".join(_text(name) for name in mechanisms) + b"\0")


def authentication_sasl_continue(data: bytes) -> bytes:
    return message(b"R", struct.pack("!i", 11) + data)


def authentication_sasl_final(data: bytes) -> bytes:
    return message(b"R", struct.pack("!i", 12) + data)


def negotiate_protocol_version(unknown: Sequence[str]) -> bytes:
    """NegotiateProtocolVersion: the latest supported version and the unsupported options.

    It contains the whole version as in PostgreSQL 15.18, not only the minor one: libpq 18 takes 0 for a version before 3.
    """
    return message(b"v", struct.pack("!ii", PROTOCOL_3 << 16, len(unknown)) + b"".join(_text(name) for name in unknown))


def parameter_status(name: str, value: str, encoding: Encoding) -> bytes:
    return message(b"S", _text(name) + _text(value, encoding))


def backend_key_data(pid: int, secret: int) -> bytes:
    return message(b"K", struct.pack("!iI", pid, secret))


def ready_for_query(status: str) -> bytes:
    """ReadyForQuery; status I, T or E."""
    return message(b"Z", status.encode())


def command_complete(tag: str) -> bytes:
    return message(b"C", _text(tag))


EMPTY_QUERY: Final = message(b"I")
PARSE_COMPLETE: Final = message(b"1")
BIND_COMPLETE: Final = message(b"2")
CLOSE_COMPLETE: Final = message(b"3")
NO_DATA: Final = message(b"n")
PORTAL_SUSPENDED: Final = message(b"s")
COPY_DONE: Final = message(b"c")


def row_description(columns: Sequence[ResultColumn], formats: Sequence[int], encoding: Encoding) -> bytes:
    parts = [struct.pack("!h", len(columns))]
    for column, code in zip(columns, formats, strict=True):
        parts.append(_text(column.name, encoding))
        parts.append(struct.pack("!IhIhih", column.relation, column.attnum, column.type_oid, column.type_length, column.typmod, code))
    return message(b"T", b"".join(parts))


def parameter_description(types: Sequence[int]) -> bytes:
    return message(b"t", struct.pack(f"!h{len(types)}I", len(types), *types))


def copy_response(kind: bytes, columns: int, *, binary: bool) -> bytes:
    """CopyInResponse (G), CopyOutResponse (H) or CopyBothResponse (W)."""
    code = int(binary)
    return message(kind, struct.pack(f"!bh{columns}h", code, columns, *([code] * columns)))


def notification(pid: int, channel: str, payload: str, encoding: Encoding) -> bytes:
    return message(b"A", struct.pack("!i", pid) + _text(channel, encoding) + _text(payload, encoding))


def error_response(error: PostgresError, *, severity: Severity | None = None, encoding: Encoding = UTF8) -> bytes:
    """ErrorResponse with all fields of the error (manual, 55.8)."""
    shown = str(severity or error.severity)
    fields: dict[str, str | None] = {
        "S": shown,
        "V": shown,
        "C": error.sqlstate,
        "M": error.message,
        "D": error.detail,
        "H": error.hint,
        "P": None if error.position is None else str(error.position),
        "p": None if error.internal_position is None else str(error.internal_position),
        "q": error.internal_query,
        "W": error.context,
        "s": error.schema,
        "t": error.table,
        "c": error.column,
        "d": error.datatype,
        "n": error.constraint,
        **_place(error),
    }
    return message(b"E", _fields(fields, encoding))


_ROUTINES = {"cached plan must not change result type": "RevalidateCachedQuery"}
"""PostgreSQL's routine names of errors that drivers identify by them: JDBC then prepares the statement again."""


def _place(error: PostgresError) -> dict[str, str | None]:
    """Return the file, line and routine of headgate's source in which the error was raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return {}
    code = traceback.tb_frame.f_code
    return {"F": code.co_filename.rpartition("/")[2], "L": str(traceback.tb_lineno), "R": _ROUTINES.get(error.message, code.co_name)}


def notice_response(notice: Notice, encoding: Encoding) -> bytes:
    shown = str(notice.severity)
    fields = {"S": shown, "V": shown, "C": notice.sqlstate, "M": notice.message, "D": notice.detail, "H": notice.hint, "W": notice.context}
    return message(b"N", _fields(fields, encoding))


def _fields(fields: Mapping[str, str | None], encoding: Encoding) -> bytes:
    return b"".join(code.encode() + _text(value, encoding) for code, value in fields.items() if value is not None) + b"\0"


def old_error(text: str) -> bytes:
    """Return an error message in the unframed format of protocols before 3.0."""
    return b"E" + _text(text)


def startup_parameters(body: bytes) -> dict[str, str]:
    """Return the parameters after the version word of a StartupMessage. Raise 08P01 for an invalid layout."""
    parameters: dict[str, str] = {}
    reader = FrontendReader(body)
    bad = PostgresError("08P01", "invalid startup packet layout: expected terminator as last byte", severity=Severity.FATAL)
    try:
        while True:
            name = reader.string()
            if not name:
                break
            parameters[name] = reader.string()
    except PostgresError as error:
        raise bad from error
    if reader.rest:
        raise bad
    return parameters
