"""Digests hash rows by ranges, and two sets of digests or rows yield their differences."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pyarrow as pa
import pytest

from headgate.errors import PostgresError
from headgate.verify import digest
from headgate.verify.digest import DIGESTS, ROWS, Compared, RowDifference, compared, differing, digits_for, key_shown
from headgate.verify.publisher import taken


def table(*columns: str, key: tuple[int, ...] = (0,), bare: bool = False) -> Compared:
    texts, no = tuple(f"{name}::text" for name in columns), tuple(bare for _ in columns)
    return Compared("public", "t", columns, texts, texts, key, "FROM t", "FROM t", tuple(None for _ in columns), no, no)


def rows(*row_values: tuple[str, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ROWS.names, values, strict=True)) for values in row_values], schema=ROWS)


def test_ranges_differ_by_count_or_sum_or_if_one_side_has_none() -> None:
    def of(*ranges: tuple[str, int, int]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(DIGESTS.names, values, strict=True)) for values in ranges], schema=DIGESTS)

    expected, actual = of(("0", 2, 5), ("1", 1, 1), ("2", 1, 1), ("3", 1, 7)), of(("0", 2, 5), ("1", 2, 1), ("2", 1, 2), ("4", 1, 7))
    assert differing(expected, actual) == ["1", "2", "3", "4"]


def test_rows_are_missing_extra_or_different_and_unsent_values_are_not_compared() -> None:
    expected = rows(("1:1", "a,b"), ("1:2", "a,b"), ("1:3", "a,*"), ("1:4", "a,b"))
    actual = rows(("1:1", "a,b"), ("1:2", "a,c"), ("1:3", "a,z"), ("1:5", "a,b"))
    differences = list(compared(table("id", "v"), expected, actual))
    assert differences == [
        RowDifference("different", "(id)=(2)", ("v",)),
        RowDifference("missing", "(id)=(4)"),
        RowDifference("extra", "(id)=(5)"),
    ]


def test_differing_rows_without_a_key_are_counted() -> None:
    compared_table = table("a", key=())
    differences = list(compared(compared_table, rows(("1:x", "h"), ("1:x", "h"), ("1:y", "g")), rows(("1:x", "h"), ("1:z", "f"))))
    assert differences == [RowDifference("missing", "(a)=(x)"), RowDifference("missing", "(a)=(y)"), RowDifference("extra", "(a)=(z)")]


def test_duplicate_row_of_a_key_is_extra() -> None:
    assert list(compared(table("id", "v"), rows(("1:1", "a,b")), rows(("1:1", "a,b"), ("1:1", "a,b")))) == [
        RowDifference("extra", "(id)=(1)")
    ]


@pytest.mark.parametrize(("text", "key_text"), [("1:7", "(id)=(7)"), (":", "(id)=(null)"), ("0:", "(id)=()"), ("3:a:b", "(id)=(a:b)")])
def test_keys_are_shown_as_in_errors(text: str, key_text: str) -> None:
    assert key_shown(table("id"), text) == key_text


@pytest.mark.parametrize(("text", "key_text"), [("7,", "(id)=(7)"), (",", "(id)=(null)"), ("-1.5e+20,", "(id)=(-1.5e+20)")])
def test_keys_whose_text_needs_no_length_are_shown_as_in_errors(text: str, key_text: str) -> None:
    assert key_shown(table("id", bare=True), text) == key_text


def test_key_of_both_kinds_is_shown_as_in_errors() -> None:
    compared_table = replace(table("a", "b", "c", key=(0, 1, 2)), bare=(True, False, True))
    assert key_shown(compared_table, "7,3:x,y2026-11-26,") == "(a, b, c)=(7, x,y, 2026-11-26)"


def test_ranges_are_formed_by_division_for_integers_and_by_a_hash_for_other_keys() -> None:
    number, text, two = table("Id", bare=True), table("id"), table("a", "b", key=(0, 1), bare=True)
    assert digest.range_of(number, number.theirs) == 'abs(mod("Id", 251))'
    assert digest.range_of(text, text.theirs) == "substr(md5(concat(length(id::text), ':', id::text)), 1, 2)"
    assert digest.range_of(two, two.theirs) == "substr(md5(concat(a::text, ',', b::text, ',')), 1, 2)"
    assert [compared_table.ranges for compared_table in (number, text, two)] == [251, 256, 256]


@pytest.mark.parametrize("row", [("0", "x", "1"), ("0", "1", "9" * 30), (None, "1", "1"), ("0", None, "1"), ("0", "-", "")])
def test_invalid_answer_is_rejected(row: tuple[str | None, ...]) -> None:
    with pytest.raises(PostgresError, match="invalid response from publisher"):
        taken([("1", "1", "1"), row], DIGESTS)


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("key", ["", "x", "7", "x:1", "9:a", "-3:abc", ":::", "7,8", ",,"])
def test_invalid_key_is_shown_or_rejected(key: str, bare: bool) -> None:
    with contextlib.suppress(PostgresError):
        assert key_shown(table("id", bare=bare), key).startswith("(id)=(")


def test_range_has_about_a_thousand_rows() -> None:
    assert [digits_for(count) for count in (0, 1_000, 20_000, 300_000, 10_000_000, 10**9)] == [1, 1, 2, 3, 4, 4]


def test_columns_beyond_the_argument_limit_are_joined_in_several_calls() -> None:
    words = digest.joined([f"c{number}::text" for number in range(100)], [False] * 100)
    assert words.count("concat(") == 5
    assert digest.marks([f"c{number}::text" for number in range(100)]).count("concat_ws(") == 3


def test_table_without_columns_can_be_compared() -> None:
    assert digest.joined([], []) == "''"
    assert digest.marks([]) == "concat_ws(',', '')"
