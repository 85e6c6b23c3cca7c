"""COPY's formats are split into columns and written as by PostgreSQL, in chunks of any size."""

from __future__ import annotations

import contextlib

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import PostgresError
from headgate.types import copy_text, registry
from headgate.types.binary import binary, copy_binary

WORD = (
    st.none()
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
    | st.text("\\\t\n\r,\"N.;' ab", max_size=5)
)
TABLE = st.integers(1, 4).flatmap(lambda columns: st.lists(st.tuples(*[WORD] * columns), min_size=1, max_size=30))


def columns_of(rows: list[tuple[str | None, ...]]) -> list[pa.StringArray]:
    return [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]


def through_postgres(oracle, rows: list[tuple[str | None, ...]], form: str) -> bytes:
    names = ", ".join(f"c{number}" for number in range(len(rows[0])))
    places = ", ".join(["%s"] * len(rows[0]))
    oracle.connection.execute(f"DROP TABLE IF EXISTS copied; CREATE TEMP TABLE copied ({names.replace(',', ' text,')} text)")
    with oracle.connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO copied VALUES ({places})", rows)
    return oracle.copy_out("TABLE copied", form)


@given(TABLE)
def test_text_format_equals_postgresqls(oracle, rows) -> None:
    raw = through_postgres(oracle, rows, "text")
    columns = columns_of(rows)
    assert copy_text.read_copy_text(raw, len(columns)) == columns
    assert b"".join(line.encode() for line in copy_text.write_copy_text(columns).to_pylist()) == raw


@given(TABLE)
def test_csv_format_equals_postgresqls(oracle, rows) -> None:
    raw = through_postgres(oracle, rows, "csv")
    assert b"".join(line.encode() for line in copy_text.write_copy_csv(columns_of(rows)).to_pylist()) == raw


@given(TABLE, st.integers(1, 60))
def test_binary_format_equals_postgresqls_in_chunks_of_any_size(oracle, rows, size: int) -> None:
    raw = through_postgres(oracle, rows, "binary")
    columns = columns_of(rows)
    copied_rows = copy_binary.write_copy_binary([binary.write_binary(column, registry.TEXT) for column in columns])
    assert copy_binary.HEADER + copied_rows + copy_binary.TRAILER == raw
    values_read: list[list[str | None]] = [[] for _ in columns]
    rest, ended = b"", False
    stream = raw[len(copy_binary.HEADER) :]
    for offset in range(0, len(stream), size):
        rest += stream[offset : offset + size]
        part = copy_binary.read_copy_binary(rest, len(columns))
        for column, starts, lengths in zip(values_read, part.starts, part.lengths, strict=True):
            column += [
                None if size < 0 else rest[begin : begin + size].decode()
                for begin, size in zip(starts.tolist(), lengths.tolist(), strict=True)
            ]
        rest, ended = rest[part.consumed :], part.ended
    assert ended
    assert [pa.array(column, pa.string()) for column in values_read] == columns


@given(st.binary(max_size=60), st.integers(1, 3))
def test_malformed_binary_rows_are_an_error_or_wait_for_more(chunk: bytes, columns: int) -> None:
    with contextlib.suppress(PostgresError):  # anything else that is raised fails the test
        assert 0 <= copy_binary.read_copy_binary(chunk, columns).consumed <= len(chunk)


def test_whole_rows_end_at_a_newline_that_is_not_escaped() -> None:
    assert copy_text.whole_rows(b"a\tb\nc\td") == 4
    assert copy_text.whole_rows(b"a\\\nb") == 0
    assert copy_text.whole_rows(b"a\\\\\nb") == 4


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"1\t2\n\\.\nrest", [["1"], ["2"]]),
        (b"1\t2\r\n3\t\\N\r\n", [["1", "3"], ["2", None]]),
        (b"\\x41\\101\t\\q\\\t", [["AA"], ["q\t"]]),
        (b"\\\\N\t", [["\\N"], [""]]),
        (b"", [[], []]),
        (b"1\ta\\", [["1"], ["a"]]),
        (b"1\ta\\\n", [["1"], ["a\n"]]),
        (b"1\ta\\\\", [["1"], ["a\\"]]),
    ],
)
def test_escapes_markers_and_line_ends_are_read(data: bytes, expected: list[list[str | None]]) -> None:
    assert [column.to_pylist() for column in copy_text.read_copy_text(data, 2)] == expected


@pytest.mark.parametrize("data", [b"1\n", b"1\t2\n3\n", b"1\t2\t3\n", b"1\t2\n\n", b"1\t\xff\n", b"1\t2\n3\t4\r5\n"])
def test_malformed_text_is_rejected_as_in_postgresql(oracle, data: bytes) -> None:
    oracle.connection.execute("DROP TABLE IF EXISTS copied; CREATE TEMP TABLE copied (a text, b text)")
    with pytest.raises(psycopg.Error) as expected, oracle.connection.cursor().copy("COPY copied FROM STDIN") as copy:
        copy.write(data)
    with pytest.raises(PostgresError) as actual:
        copy_text.read_copy_text(data, 2, names=["a", "b"])
    assert (actual.value.sqlstate, actual.value.message) == (expected.value.sqlstate, expected.value.diag.message_primary)


@given(st.lists(st.lists(st.sampled_from([b"\\", b"\\\\", b"n", b"t", b"b", b"x4", b"101", b"\xff", "é".encode(), b"\t"])).map(b"".join)))
def test_escapes_of_a_column_are_read_like_those_of_each_field(fields: list[bytes]) -> None:
    assert copy_text._unescaped(pa.array(fields, pa.binary())).to_pylist() == [copy_text.unescape(field) for field in fields]
