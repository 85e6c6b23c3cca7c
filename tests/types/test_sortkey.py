"""Sort keys have the order and equality of PostgreSQL's values, for all pairs of chosen values and for generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.types import registry, sortkey
from headgate.types.text import text

CHOSEN = {
    "interval": ["1 day", "24:00:00", "1 mon", "30 days", "-1 day", "0", "1 year", "360 days", "-00:00:01", "178000000 years",
                 "-178000000 years", "1 day -24:00:00", "00:00:00.000001"],
    "timetz": ["12:00+00", "13:00+01", "11:00-01", "24:00:00+00", "00:00+00", "00:00:00.000001+15:59"],
    "inet": ["1.2.3.4", "1.2.3.4/24", "1.2.3.0/24", "1.2.0.0/16", "::1", "::/0", "0.0.0.0/0", "1.2.3.4/25", "1.2.3.5/24"],
    "cidr": ["1.2.3.0/24", "1.2.0.0/16", "::/0", "::1/128", "10.0.0.0/8"],
    "jsonb": ["[]", "null", '"a"', "1", "true", "[1]", "{}", '{"a":1}', '{"b":1}', '{"aa":1}', "[[]]", "[1,2]", "[null]", '["z"]', "1.0",
              '{"a":1,"b":2}', "-1", '"aa"', '""', "false", "[{}]", "[[1]]", "[true]", '{"a":1.0,"b":2}', "-1e3", "1e-5", "[1.0]", '"é"',
              '{"b":1,"aa":2}', "[1,[2]]", "[[1],2]", '["a","b"]', '["ab"]'],
    "money": ["0", "-0.01", "0.01", "10", "9", "-10", "-9", "1000", "999.99", "92233720368547758.07", "-92233720368547758.08"],
    "pg_lsn": ["0/1", "A/10", "A/9", "10/0", "9/FFFFFFFF"],
    "int4[]": ["{}", "{1}", "{1,2}", "{1,NULL}", "[0:0]={1}", "{{1}}", "{{1,2}}", "{{1},{2}}", "{2}", "{-1}", "{NULL}", "[2:3]={1,2}"],
    "text[]": ["{}", "{a}", "{a,b}", "{ab}", '{"a ",b}', '{""}', "{NULL}", '{"NULL"}', "{é}", "{a,NULL}"],
    "float8[]": ["{0}", "{-0}", "{NaN}", "{Infinity}", "{-Infinity}", "{1e-300}", "{-1e-300}", "{1,2}"],
    "numeric": ["1", "1.0", "NaN", "Infinity", "-Infinity", "0", "-0.5", "-0.50", "-0.51", "1e-10", "10", "9", "-10", "-9", "1e40", "99"],
    "date[]": ["{infinity}", "{-infinity}", "{2020-01-01}", "{0044-03-15 BC}", "{5874897-12-31}"],
    "xid8": ["0", "1", "10", "9", "18446744073709551615", "9223372036854775808"],
    "tsvector": ["", "a", "b", "a b", "a:1", "a:2", "a:1A", "a:1,2", "aa", "a:1 b", "a b:1", "é", "bbb", "a:1,2,3", "b:1B"],
    "tsquery": ["", "a", "b", "a:A", "a:*", "!a", "a & b", "b & a", "a | b", "a <-> b", "a <2> b", "aa", "é", "a & b & c", "a & (b | c)", "!a & b", "c", "d", "xyz", "zyx"],
    "thing": ["(1,a,,,,,)", "(1,,,,,,)", "(,a,,,,,)", "(,,,,,,)", "(2,a,,,,,)", "(-1,,,,,,)", "(10,a,,,,,)", "(1,b,,,,,)", "(1,a,1,,,,)", "(1,a,1.0,sad,,,)", "(1,a,1.0,happy,,,)"],
    "int4range": ["empty", "(,)", "(,1)", "(,2)", "[1,)", "[2,)", "[1,2)", "[1,3)", "[-1,3)", "[-10,3)", "[10,11)"],
    "numrange": ["[1,2]", "[1.0,2.00]", "(1,2]", "[1,2)", "(1,2)", "(,2]", "(,2)", "[1,)", "(1,)", "[-1,2]", "[1,NaN]", "empty"],
    "daterange": ["[-infinity,infinity]", "[-infinity,)", "(,infinity)", "[2020-01-01,2020-01-05)", "[0044-03-15 BC,2020-01-01)"],
    "tstzrange": ['["2020-01-01 10:00:00+02","2020-01-01 10:00:00+00"]', '["2020-01-01 08:00:00+00","2020-01-01 10:00:00+00"]', "(,2020-01-01)"],
    "nummultirange": ["{}", "{[1,2]}", "{[1.0,2]}", "{[1,2],[3,4]}", "{[1,2],[3,4),[5,6]}", "{(,1)}", "{(,)}", "{(1,2]}"],
    "bpchar": ["a", "a ", "ab", " a", ""],
    "varbit": ["1", "10", "100000001", "0", "", "11", "1001", "101"],
    '"char"': ["a", "\\377", "", "Z", "\\200"],
}  # fmt: skip


def _json(value: object) -> str:
    return {None: "null", True: "true", False: "false"}.get(value, value) if not isinstance(value, str) else value  # type: ignore[return-value, call-overload]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3).map(str) | st.text("ab\u00e9", max_size=2).map(lambda word: f'"{word}"'),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda elements: "[" + ",".join(map(_json, elements)) + "]")
        | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3).map(
            lambda members: "{" + ",".join(f'"{name}":{_json(value)}' for name, value in members.items()) + "}"
        )
    ),
    max_leaves=6,
).map(_json)
ENDS = st.integers(-3, 3).map(str) | st.just("")
RANGE = st.builds(lambda opening, low, high, closing: f"{opening}{low},{high}{closing}", st.sampled_from("[("), ENDS, st.integers(4, 6).map(str) | st.just(""), st.sampled_from("])"))  # fmt: skip
GENERATED = {
    **dict.fromkeys(["int4range", "numrange"], RANGE | st.just("empty")),
    "int4multirange": st.lists(RANGE, max_size=3).map(lambda items: "{" + ",".join(items) + "}"),
    "jsonb": JSON,
    "interval": st.builds(
        "{} mons {} days {} us".format,
        st.integers(-2, 2),
        st.integers(-61, 61),
        st.integers(-2, 2).map(lambda half_days: half_days * 43_200_000_000),
    ),
    "numeric": st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000).map(str),
    "int4[]": st.lists(st.integers(-2, 2) | st.just("NULL"), max_size=3).map(lambda elements: "{" + ",".join(map(str, elements)) + "}"),
    "inet": st.builds("{}.{}.0.{}/{}".format, st.integers(0, 3), st.integers(0, 255), st.integers(0, 3), st.integers(0, 32)),
}


def differences(oracle: Any, name: str, values: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of values whose keys compare differently than the values."""
    oid, modifier = oracle.type_of(name)
    texts = text.write_text(text.read_text(pa.array(values), oid, modifier), oid)
    keys = sortkey.keys(texts, oid, registry.known()).to_pylist()
    compared = oracle.connection.execute(
        f"WITH v(i, x) AS (SELECT i, x::{name} FROM unnest(%s::text[]) WITH ORDINALITY u(x, i))"
        " SELECT a.i - 1, b.i - 1, a.x < b.x, a.x = b.x FROM v a, v b",
        (list(values),),
    ).fetchall()
    return [
        (values[left], values[right])
        for left, right, less, same in compared
        if (keys[left] < keys[right]) != less or (keys[left] == keys[right]) != same
    ]


@pytest.mark.parametrize("name", CHOSEN)
def test_keys_of_chosen_values_have_the_order_of_the_values(oracle: Any, name: str) -> None:
    assert differences(oracle, name, CHOSEN[name]) == []


@pytest.mark.parametrize("name", GENERATED)
def test_keys_of_generated_values_have_the_order_of_the_values(oracle: Any, name: str) -> None:
    @settings(max_examples=10, derandomize=True, deadline=None)
    @given(st.lists(GENERATED[name], min_size=2, max_size=12))
    def agree(values: list[str]) -> None:
        assert differences(oracle, name, values) == []

    agree()
