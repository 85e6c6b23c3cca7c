"""Arrays are lists in files and PostgreSQL's texts when read back, for every type that has its own storage."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import PostgresError
from headgate.types import registry as r
from headgate.types import typmod
from headgate.types.storage import arrow_type, list_type
from headgate.types.text import array, list_array
from headgate.types.text.text import read_text, write_text

ELEMENTS = {
    r.BOOL: ["t", "f"],
    r.INT2: ["-32768", "7"],
    r.INT4: ["2147483647", "-1"],
    r.INT8: ["-9223372036854775808", "0"],
    r.FLOAT4: ["NaN", "-0", "1e-10", "3.4028235e+38"],
    r.FLOAT8: ["Infinity", "0.1", "1e+300"],
    r.BYTEA: ["\\x", "\\x00ff5c22"],
    r.DATE: ["infinity", "0044-03-15 BC", "2024-02-29"],
    r.TIMESTAMP: ["-infinity", "2024-02-29 23:59:59.999999"],
    r.TIMESTAMPTZ: ["infinity", "1999-12-31 23:00:00.5+00"],
    r.TEXT: ["", "NULL", "null", "a,b", 'q"u\\o', "{}", " x ", "\t", "é", "'"],
    r.UUID: ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    r.NUMERIC: ["1.50", "NaN", "123456789012345678901234567890.5"],
}


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda oid: r.builtin().by_oid(oid).name)
def test_list_holds_the_elements_as_a_column_of_their_type_does(element: int) -> None:
    items = ELEMENTS[element]
    texts = pa.array([_printed([*items, None]), None, "{}", _printed(items[:1]), "{NULL}"])
    kind = list_type(r.builtin().by_oid(element).array)
    assert kind is not None

    list_column = list_array.lists(texts, kind, "c")

    list_column.validate(full=True)
    assert list_column.type == kind
    assert write_text(list_column[0].values, element).equals(write_text(read_text(pa.array([*items, None]), element), element))
    assert [None if elements is None else len(elements) for elements in (list_value.values for list_value in list_column)] == [
        len(items) + 1,
        None,
        0,
        1,
        1,
    ]
    assert list_array.texts(list_column).equals(texts)
    assert list_array.texts(list_column.slice(1, 3)).equals(texts.slice(1, 3))


def test_numerics_with_a_precision_are_decimals() -> None:
    kind = list_type(r.builtin().by_oid(r.NUMERIC).array, typmod.numeric(10, 2))
    texts = pa.array(["{1.50,NULL,-99999999.99}"])

    list_column = list_array.lists(texts, kind, "c")

    assert list_column.type.value_type == pa.decimal128(10, 2)
    assert list_array.texts(list_column).equals(texts)


@given(
    st.lists(
        st.none()
        | st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6), max_size=5),
        max_size=8,
    )
)
def test_any_texts_are_read_back_from_their_lists(rows: list[list[str | None] | None]) -> None:
    texts = pa.array([None if row is None else _printed(row) for row in rows], pa.string())

    list_column = list_array.lists(texts, list_type(r.builtin().by_oid(r.TEXT).array), "c")

    assert list_column.to_pylist() == rows
    assert list_array.texts(list_column).equals(texts)


def test_pieces_of_a_column_are_lists_of_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_array, "PIECE_BYTES", 40)
    rows = [None if number % 7 == 0 else [f'"{number}\\', None, "x" * (number % 50)][: number % 4] for number in range(200)]
    texts = pa.array([None, *(None if row is None else _printed(row) for row in rows)], pa.string()).slice(1)

    list_column = list_array.lists(texts, list_type(r.builtin().by_oid(r.TEXT).array), "c")

    assert list_column.to_pylist() == rows
    assert list_array.texts(list_column).equals(texts)


@given(st.lists(st.none() | st.lists(st.none() | st.floats(), max_size=5), max_size=8))
def test_any_numbers_are_read_back_from_their_lists(rows: list[list[float | None] | None]) -> None:
    kind = list_type(r.builtin().by_oid(r.FLOAT8).array)
    lists = pa.array(rows, kind)

    texts = list_array.texts(lists)

    assert list_array.texts(list_array.lists(texts, kind, "c")).equals(texts)
    number_texts = write_text(pa.array([number for row in rows for number in row or ()], arrow_type(r.FLOAT8)), r.FLOAT8)
    assert [element for text in texts.to_pylist() for element in (array.parse(text, ",")[1] if text else ())] == number_texts.to_pylist()


@pytest.mark.parametrize("text", ["{{1,2},{3,4}}", "[0:1]={1,2}", "[2:2]={7}", "{{1}}"])
def test_array_that_is_not_a_list_is_rejected_with_the_columns_name(text: str) -> None:
    kind = list_type(r.builtin().by_oid(r.INT4).array)

    with pytest.raises(PostgresError, match='column "c" holds Delta arrays') as refused:
        list_array.lists(pa.array(["{1}", text]), kind, "c")

    assert refused.value.sqlstate == "0A000"
    assert (
        refused.value.hint
        == "Store the column as text: ALTER TABLE … SET (array_storage = text), then ALTER COLUMN … TYPE with its type again."
    )


def test_type_that_is_not_an_array_or_has_another_delimiter_has_no_list_type() -> None:
    assert list_type(r.TEXT) is None
    assert list_type(1020) is None  # box[], whose elements are separated by semicolons


def _printed(items: list[str | None]) -> str:
    return array.print_array(array.Shape([len(items)], [1]) if items else array.Shape([], []), items, ",")
