"""The stream of a slot of a PostgreSQL server: runs of frames of the transactions in a range of LSNs.

`postgresql` reads changes with it, and finds where to cut a range. The connection is libpq's own, since psycopg does not have COPY BOTH.
A transaction belongs to a range if its commit record begins in it. Nothing is confirmed to the server, so that the slot does not move, and
a range can be read again.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn

from headgate.pgoutput.outline import XLOG_HEADER, Bytes, Numbers, frames_of
from headgate.pgoutput.text_settings import TEXT_SETTINGS
from pyspark_headgate.connection import PATIENCE
from pyspark_headgate.options import lsn_text

SETTINGS = {**TEXT_SETTINGS, "row_security": "off", "wal_sender_timeout": "10min"}
"""Beside the settings of the text form: row security is an error, and a slow sink does not end the stream."""
RUN = 8 << 20
"""The number of bytes of frames that are decoded together."""
_ASK = 0.05
"""The seconds without data after which the server is asked for its position."""
_STATUS = b"r" + bytes(32) + b"\1"
"""A status update that confirms nothing and asks for an answer."""


@dataclass(frozen=True)
class Run:
    """Some frames of a stream, in order. It may begin and end inside of a transaction."""

    data: Bytes
    starts: Numbers
    lengths: Numbers

    def __len__(self) -> int:
        return len(self.starts)


def conninfo(url: str, **words: str) -> str:
    """Return a connection string with the settings of this module."""
    given = conninfo_to_dict(url)
    options = " ".join([str(given.get("options") or ""), *(f"-c {name}={value}" for name, value in SETTINGS.items())])
    return make_conninfo(url, **{"options": options.strip(), "client_encoding": "UTF8", **words})


def runs(url: str, slot: str, publication: str, start: int, end: int) -> Iterator[Run]:
    """Yield the frames of the transactions whose commit record begins in [start, end).

    Raises RuntimeError if the server does not send them all.
    """
    link = _started(url, slot, publication, start)
    try:
        contents: list[bytes] = []
        size = 0
        for frame in _frames(link, end):
            contents.append(frame)
            size += len(frame)
            if size > RUN:
                yield Run(*frames_of(contents))
                contents, size = [], 0
        if contents:
            yield Run(*frames_of(contents))
    finally:
        link.finish()


def _started(url: str, slot: str, publication: str, start: int) -> PGconn:
    """Return a connection that streams. It waits until no other process uses the slot."""
    of_slot, listed = sql.Identifier(slot).as_string(None), sql.Identifier(publication).as_string(None).replace("'", "''")
    command = f"START_REPLICATION SLOT {of_slot} LOGICAL {lsn_text(start)} (proto_version '1', publication_names '{listed}')"
    deadline = time.monotonic() + PATIENCE
    while True:
        link = pq.PGconn.connect(conninfo(url, replication="database").encode())
        if link.status != pq.ConnStatus.OK:
            raise RuntimeError(f"cannot connect to the server: {link.get_error_message()}")
        result = link.exec_(command.encode())
        if result.status == pq.ExecStatus.COPY_BOTH:
            return link
        message, state = link.get_error_message(), result.error_field(pq.DiagnosticField.SQLSTATE)
        link.finish()
        if state != b"55006" or time.monotonic() > deadline:
            raise RuntimeError(f'cannot read from replication slot "{slot}": {message}')
        time.sleep(0.2)


def _frames(link: PGconn, end: int) -> Iterator[bytes]:
    """Yield frames until the first transaction whose commit record does not begin before `end`, or until the server is at `end`."""
    is_open, asked_at = False, 0.0
    while True:
        try:
            length, data = link.get_copy_data(1)
            if length == 0:
                if not select.select([link.socket], [], [], _ASK)[0] and time.monotonic() > asked_at + _ASK * 4:
                    asked_at = time.monotonic()
                    link.put_copy_data(_STATUS)
                    link.flush()
                link.consume_input()
                continue
        except psycopg.Error as error:
            raise RuntimeError(f"the server ended the stream: {error}") from error
        if length < 0:
            raise RuntimeError(f"the server ended the stream: {_end(link)}")
        frame = bytes(data)
        if frame[:1] != b"w":
            if not is_open and int.from_bytes(frame[1:9]) >= end:
                return
            continue
        kind = frame[XLOG_HEADER : XLOG_HEADER + 1]
        if kind == b"B":
            if int.from_bytes(frame[XLOG_HEADER + 1 : XLOG_HEADER + 9]) >= end:
                return
            is_open = True
        elif kind == b"C":
            is_open = False
        yield frame


def _end(link: PGconn) -> str:
    """Return the error with which a stream ended."""
    result = link.get_result()
    message = result.get_error_message() if result is not None else ""
    return message or link.get_error_message() or "no reason is known"
