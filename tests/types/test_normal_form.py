"""A text in normal form is stored without being parsed. It equals the result of parsing, for generated normal, odd and hostile texts.

Every column has texts of each kind, so that an effect of one text (an unclosed quote, a brace) on others would be noticed.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.types.test_text_generated import ADDRESS, ARRAY, INTERVAL, JSON, NETWORK, SHAPED, WILD_ARRAY

from headgate.errors import PostgresError
from headgate.types import normal_form
from headgate.types import registry as r
from headgate.types.base import json_text, log_position, network, number, string
from headgate.types.datetime import interval
from headgate.types.text import array
from headgate.types.text.text import read_text

WILD_JSON = st.one_of(
    st.text('{}[]":, 01-.eE+\\un"ab', max_size=14),
    st.lists(
        st.sampled_from(['"a"', '"b"', '""', '"\\u0001"', '"\\n"', '"\\u0041"', '"\\"', ": ", ":", ", ", ",", "{", "}", "[", "]", "1", "-0",
                         "0.50", "1e5", "1e1.5", "01", "true", "null", " ", "-0.0", "é", '"é\\\\"', "1.2.3", "tru", "\n"]),
        max_size=12,
    ).map("".join),
)  # fmt: skip
TEXT_ARRAY = st.lists(st.sampled_from(["a", '"a b"', "NULL", "null", '"NULL"', '""', '"é,"', '"a"', "", " ", '"a\\"', '"\\\\"', "}", "{"]),
                      max_size=5).map(lambda items: "{" + ",".join(items) + "}")  # fmt: skip


def normal_json(value: object) -> str:
    """Return the value as jsonb prints it, if jsonb can store it."""
    try:
        return json_text.normal(json.dumps(value, ensure_ascii=False))
    except PostgresError:
        return "{}"


def normal_interval(months: int, days: int, micros: int) -> str:
    """Return the interval as style postgres prints it."""
    return interval.Interval(months, days, micros).print()


FIELD = st.integers(-100, 100) | st.integers(-(2**31), 2**31 - 1)
NORMAL_INTERVAL = st.builds(
    normal_interval, FIELD, FIELD, st.integers(-(2**40), 2**40) | st.integers(-200, 200).map(lambda seconds: seconds * 10**6)
)


def integers(items: pa.StringArray) -> pa.StringArray:
    """Return the elements of an int4[]."""
    return number.write_integer(number.read_integer(items, r.INT4))


CASES = {
    "jsonb": (r.JSONB, st.one_of(JSON.map(json.loads).map(normal_json), JSON, WILD_JSON), json_text.normal),
    "json": (r.JSON, st.one_of(JSON, WILD_JSON), json_text.checked),
    "interval": (r.INTERVAL, st.one_of(NORMAL_INTERVAL, INTERVAL, NORMAL_INTERVAL.map(lambda text: text.replace("-", "+")),
                                       st.text("0123 -+:.yearsmond", max_size=12)), lambda text: interval.interval_of(text).print()),
    "inet": (r.INET, st.one_of(ADDRESS, st.text("0123:./f", max_size=12)), lambda text: network.inet_of(text, is_cidr=False)),
    "cidr": (r.CIDR, st.one_of(NETWORK, ADDRESS, st.text("0123:./f", max_size=12)), lambda text: network.inet_of(text, is_cidr=True)),
    "macaddr": (r.MACADDR, st.from_regex(r"\A([0-9a-fA-F]{1,2}[:-]){5}[0-9a-f]{2}\Z"), network.macaddr_of),
    "pg_lsn": (r.PG_LSN, st.text("0aF1/", max_size=10), log_position.lsn_of),
    "bytea": (r.BYTEA, st.one_of(st.binary().map(lambda raw: "\\x" + raw.hex()), st.text("\\xaF0 g", max_size=8)), string.bytea_of),
    "text[]": (r.TEXT_ARRAY, st.one_of(ARRAY, WILD_ARRAY, TEXT_ARRAY, SHAPED),
               lambda text: array._read_each(pa.array([text]), ",", lambda items: items)[0].as_py()),
    "int4[]": (r.INT4_ARRAY, st.one_of(SHAPED, WILD_ARRAY, st.lists(st.integers(-3000000000, 3000000000)).map(lambda numbers: "{" + ",".join(map(str, numbers)) + "}")),
               lambda text: array._read_each(pa.array([text]), ",", integers)[0].as_py()),
}  # fmt: skip
"""Type, texts, and the function that parses one text."""


def outcome(read: object, *arguments: object) -> object:
    """Return the result, or the error."""
    try:
        return read(*arguments)  # type: ignore[operator]
    except PostgresError as error:
        return error.sqlstate, error.message, error.detail


@pytest.mark.parametrize("examples", [10, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_column_is_read_as_each_of_its_texts_is(name: str, examples: int) -> None:
    """Both ways give the same values, and reject the same texts with the same messages."""
    oid, texts, slow = CASES[name]

    @settings(max_examples=examples, deadline=None)
    @given(st.lists(st.none() | texts, min_size=1, max_size=8))
    def check(column: list[str | None]) -> None:
        expected = [None if text is None else outcome(slow, text) for text in column]
        for text, alone in zip(column, expected, strict=True):
            result = outcome(lambda text=text: read_text(pa.array([text], pa.string()), oid)[0].as_py())
            assert result == alone, text
        accepted = [(text, value) for text, value in zip(column, expected, strict=True) if not isinstance(value, tuple)]
        read = read_text(pa.array([text for text, _ in accepted], pa.string()), oid).to_pylist()
        assert read == [value for _, value in accepted], column
        if len(accepted) < len(column):
            whole = outcome(lambda: read_text(pa.array(column, pa.string()), oid))
            refused = [value for value in expected if isinstance(value, tuple)]
            assert whole in (refused if name.endswith("[]") else refused[:1])  # of arrays, the braces are read before the elements

    check()


@pytest.mark.parametrize(
    ("texts", "judge"),
    [
        (["1 year 2 mons -3 days +04:05:06.7", "-1 years -2 mons +3 days", "00:00:00", "1 day"], normal_form.interval),
        (["10.0.0.1", "10.0.0.0/8", "2001:db8::1", "::1", "fe80::1:2/64"], normal_form.inet),
        (["10.0.0.0/8", "10.1.2.3/32", "172.16.0.0/12", "2001:db8::/32"], normal_form.cidr),
    ],
)
def test_text_printed_by_postgresql_is_recognized_as_normal(texts: list[str], judge: object) -> None:
    """Such values are not parsed one by one."""
    assert judge(pa.array(texts)).to_pylist() == [True] * len(texts)  # type: ignore[operator]


def test_documents_and_arrays_printed_by_postgresql_are_recognized_as_normal() -> None:
    """They have escapes, nested values, NULL and quoted elements."""
    documents = ['{"a": [1, -0.5, "x\\n\\""], "bb": {"c": null}}', '["é", {}, []]', '"alone"']
    assert normal_form.documents(pa.array(documents), json_text.normal).all()
    arrays = ["{}", "{1,NULL,-3}", '{"a b",c,"",NULL,"null"}', '{"x{y}","1,2"}']
    assert normal_form.arrays(pa.array(arrays), ",", lambda items: items).all()
