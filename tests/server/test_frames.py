"""Frames, message bodies, pg_hba.conf, SCRAM verifiers and start-up options are read and written correctly without a server."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.security import password
from headgate.errors import PostgresError
from headgate.pgoutput import codec
from headgate.server.authentication.hba import ConnectionRequest, HbaFile
from headgate.server.client.startup import _split_options
from headgate.server.protocol import data_row, message

VALUES = st.one_of(st.none(), st.text(max_size=20))


def by_loop(columns: list[list[str | None]], rows: int) -> bytes:
    frames = []
    for row in range(rows):
        body = struct.pack("!h", len(columns))
        for column in columns:
            value = column[row]
            body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value.encode())) + value.encode()
        frames.append(message.message(b"D", body))
    return b"".join(frames)


@given(st.integers(0, 5).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), max_size=30).map(lambda rows: (width, rows))))
def test_rows_in_bulk_equal_the_rows_one_by_one(table: tuple[int, list[tuple[str | None, ...]]]) -> None:
    width, rows = table
    columns = [[row[index] for row in rows] for index in range(width)]
    arrays = [pa.array(column, pa.string()) for column in columns]
    assert b"".join(data_row.data_rows(arrays, len(rows))) == by_loop(columns, len(rows))


def test_slices_and_many_pieces_give_the_same_rows() -> None:
    count = data_row.ROWS_A_PIECE * 2 + 3
    column = pa.array([None if number % 7 == 0 else str(number) for number in range(count + 5)], pa.string())
    sliced = column.slice(5)
    assert b"".join(data_row.data_rows([sliced, sliced], count)) == by_loop([sliced.to_pylist()] * 2, count)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_copy_data_is_one_frame_for_each_line(lines: list[bytes]) -> None:
    assert b"".join(data_row.copy_data(pa.array(lines, pa.binary()))) == b"".join(codec.copy_data(line) for line in lines)


@given(st.binary(max_size=40))
def test_malformed_body_is_a_protocol_violation(body: bytes) -> None:
    for read in ("int16", "int32", "int64", "byte", "string", "end"):
        reader = message.FrontendReader(body)
        try:
            getattr(reader, read)()
        except PostgresError as error:
            assert error.sqlstate in ("08P01", "22021")  # noqa: PT017
    try:
        message.startup_parameters(body)
    except PostgresError as error:
        assert error.sqlstate == "08P01"  # noqa: PT017


HBA = """
# comment
local all all trust
host  all  all  127.0.0.1/32  scram-sha-256   # another
host "all" bob 10.0.0.0/8 md5
host sales,"ma in" +staff 10.1.0.0 255.255.0.0 password
hostssl all all 0.0.0.0/0 trust
host replication repl ::1/128 reject
host sameuser all samehost trust
"""


@pytest.fixture
def hba(tmp_path: Path) -> HbaFile:
    path = tmp_path / "pg_hba.conf"
    path.write_text(HBA)
    return HbaFile.read(path)


@pytest.mark.parametrize(
    ("connection_request", "method"),
    [
        (ConnectionRequest(None, "x", "y", False), "trust"),
        (ConnectionRequest("127.0.0.1", "x", "y", False), "scram-sha-256"),
        (ConnectionRequest("10.2.3.4", "bob", "all", False), "md5"),
        (ConnectionRequest("10.2.3.4", "bob", "other", False), None),
        (ConnectionRequest("10.1.3.4", "eve", "ma in", False, frozenset({"eve", "staff"})), "password"),
        (ConnectionRequest("10.1.3.4", "eve", "ma in", False, frozenset({"eve"})), None),
        (ConnectionRequest("192.0.2.1", "x", "y", False), None),
        (ConnectionRequest("::1", "repl", "", True), "reject"),
        (ConnectionRequest("127.0.0.1", "repl", "", True), None),
        (ConnectionRequest("::1", "eve", "eve", False), "trust"),
        (ConnectionRequest("::1", "eve", "other", False), None),
    ],
)
def test_first_matching_line_decides(hba: HbaFile, connection_request: ConnectionRequest, method: str | None) -> None:
    rule = hba.match(connection_request)
    assert (rule.method if rule else None) == method


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hots all all 1.2.3.4/32 trust", 'invalid connection type "hots"'),
        ("host all all 1.2.3.4/32 nosuch", 'invalid authentication method "nosuch"'),
        ("host all all 1.2.3.4/33 trust", 'invalid CIDR mask in address "1.2.3.4/33"'),
        ("host all all 1.2.3.4/32", "end-of-line before authentication method"),
    ],
)
def test_line_that_cannot_be_read_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "pg_hba.conf"
    path.write_text(f"local all all trust\n{line}\n")
    read = HbaFile.read(path)
    assert not read.usable
    assert [(complaint.message, complaint.context) for complaint in read.complaints] == [
        (problem, f'line 2 of configuration file "{path}"')
    ]


def test_verifier_matches_only_its_password() -> None:
    stored = password.stored("sécret", "x")
    assert stored.startswith("SCRAM-SHA-256$4096:")
    assert password.matches("sécret", stored, "x")
    assert not password.matches("secret", stored, "x")
    assert password.matches("p", password.md5("p", "role"), "role")


@pytest.mark.parametrize(
    ("text", "words"),
    [(" -c a=b  -c c=d", ["-c", "a=b", "-c", "c=d"]), (r"-c\ x y\\z", ["-c x", r"y\z"]), ("", []), ("  ", [])],
)
def test_options_are_split_at_white_space(text: str, words: list[str]) -> None:
    assert _split_options(text) == words
