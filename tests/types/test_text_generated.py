"""Generated texts enter a column as in PostgreSQL, with the same value or the same error."""

from __future__ import annotations

import json
from ipaddress import ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

DIGITS = st.text("0123456789", max_size=25)
SIGN = st.sampled_from(["", "-", "+", " "])
NUMBER = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole}{fraction}{exponent}",
    SIGN, DIGITS, DIGITS.map(lambda digits: f".{digits}" if digits else ""), st.sampled_from(["", "", "", "e3", "E-7", "e+12", "e", " "]),
)  # fmt: skip
CLOCK = st.from_regex(r"\A([01][0-9]|2[0-4]):[0-5][0-9](:[0-6][0-9](\.[0-9]{1,8})?)?( ?[+-][01][0-9](:?[0-5][0-9])?|Z| [AP]M)?\Z")
DAY = st.from_regex(r"\A[0-9]{4}-[01][0-9]-[0-3][0-9]\Z")
MOMENT = st.one_of(
    st.datetimes().map(str),
    st.builds("{} {}".format, DAY, CLOCK),
    st.builds("{}T{}".format, DAY, CLOCK),
    DAY,
    st.from_regex(r"\A[0-9]{1,6}[-/][0-9]{1,3}[-/][0-9]{1,5}( BC)?\Z"),
    st.from_regex(r"\A(jan|Feb|MAR|april|Sept|dec) [0-9]{1,2},? [0-9]{2,4}( [0-9]{1,2}:[0-9]{2})?\Z"),
)
PART = st.builds(
    "{} {}".format, st.from_regex(r"\A[+-]?[0-9]{1,4}(\.[0-9]{1,4})?\Z"), st.sampled_from("year mons days hours min s weeks ms".split())
)
INTERVAL = st.one_of(st.lists(PART, min_size=1, max_size=4).map(" ".join), st.builds("{} {}".format, PART, CLOCK))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
).map(json.dumps)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
ARRAY = st.lists(st.none() | TEXT, max_size=4).map(
    lambda items: (
        "{" + ",".join("NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in items) + "}"
    )
)
WILD_ARRAY = st.text('{},"\\ aN1[]:=', max_size=12)
FLOAT = st.one_of(st.floats().map(repr), st.floats(width=32).map(repr), NUMBER, st.integers(0, 80).map(lambda power: repr(2.0**power)))

NETWORK = st.builds(lambda where, bits: str(ip_network((where, bits), strict=False)), st.ip_addresses(), st.integers(0, 32))
ADDRESS = st.builds("{}{}".format, st.ip_addresses(), st.just("") | st.integers(-1, 130).map("/{}".format))
MAC = st.builds(
    lambda raw, separator: separator.join(f"{byte:02x}" for byte in raw),
    st.binary(min_size=5, max_size=9),
    st.sampled_from(["", ":", "-", "."]),
)
AMOUNT = st.text("$-+(), .0159", max_size=12) | st.integers(-(2**63), 2**63 - 1).map(lambda cents: f"{cents / 100:.2f}")
SHAPED = st.builds(
    lambda low, high, items: f"[{low}:{high}]=" + array(list(map(str, items))),
    st.integers(-3, 3),
    st.integers(-3, 6),
    st.lists(st.integers(-9, 9), max_size=4),
)


def array(items: list[str]) -> str:
    """Return the text of an array of these elements."""
    return "{" + ",".join(items) + "}"


def bracketed(bound: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts of ranges with these bounds, some of them infinite."""
    return st.builds("{}{},{}{}".format, st.sampled_from("[("), bound | st.just(""), bound | st.just(""), st.sampled_from("])"))


WHOLE = st.integers(-5, 5).map(str) | st.integers(-(2**31), 2**31 - 1).map(str)
SMALL = st.decimals(-3, 3, places=1).map(str)
RANGE = {
    "int4range": bracketed(WHOLE) | st.text('[](),"\\ 12em', max_size=9) | st.just("empty"), "int8range": bracketed(WHOLE), "numrange": bracketed(SMALL | NUMBER),
    "daterange": bracketed(st.dates().map(str) | st.sampled_from(["infinity", "-infinity", "0044-03-15 BC"])),
    **dict.fromkeys(["tsrange", "tstzrange"], bracketed(st.datetimes().map('"{}"'.format) | MOMENT)),
}  # fmt: skip
SPANS = {
    "int4multirange": st.lists(bracketed(WHOLE)).map(array) | st.text('{}[](), "1', max_size=9), "nummultirange": st.lists(bracketed(SMALL)).map(array),
    "datemultirange": st.lists(bracketed(st.integers(1, 9).map("2020-01-0{}".format) | st.just("infinity"))).map(array),
    "tstzmultirange": st.lists(bracketed(st.datetimes().map('"{}"'.format))).map(array),
}  # fmt: skip
COORDINATE = st.integers(-99, 99).map(str) | FLOAT
PAIR = st.builds("({},{})".format, COORDINATE, COORDINATE)
SHAPE = {
    "point": PAIR | st.text("(), 1.5e-", max_size=9), **dict.fromkeys(["lseg", "box", "line"], st.builds("{},{}".format, PAIR, PAIR) | st.text("[](), 12", max_size=14)),
    **dict.fromkeys(["path", "polygon"], st.lists(PAIR, max_size=4).map(",".join) | st.builds("({})".format, st.lists(PAIR, max_size=4).map(",".join)) | st.text("[](), 12", max_size=14)),
    "circle": st.builds("<{},{}>".format, PAIR, COORDINATE) | st.text("<>(), 12", max_size=9),
}  # fmt: skip
QUERY = st.recursive(
    st.sampled_from(["a", "b:A", "'c d':*b", "é"]),
    lambda inner: st.builds("!{}".format, inner) | st.builds("({})".format, inner) | st.builds("{} {} {}".format, inner, st.sampled_from(["&", "|", "<->", "<3>"]), inner),
)  # fmt: skip
JSON_PATH = st.recursive(
    st.sampled_from(["$", "1.5", "$.a", "$x", '"s"', "$.b[*]", "$.**{1 to 2}.c", "-2", "$[1,2 to last]", "($ == 1)"]),
    lambda inner: st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*", "/", "%", "==", "<", ">=", "&&", "||", "starts with"]), inner)
    | st.builds("({})".format, inner) | st.builds("{}{}".format, st.sampled_from("-+!"), inner) | st.builds("{}.{}".format, inner, st.sampled_from(["k", "type()", '"q r"', "*"]))
    | st.builds("{} ? ({})".format, inner, inner) | st.builds("exists ({})".format, inner) | st.builds("({}) is unknown".format, inner),
    max_leaves=6,
)  # fmt: skip
SEARCH = {
    "jsonpath": JSON_PATH | st.text('$.@a1*[]()?=<&|" ', max_size=8),
    "tsvector": st.text("ab':,1 \\A*", max_size=10) | st.lists(st.builds("{}:{}{}".format, st.sampled_from("abc"), st.integers(1, 5), st.sampled_from(["", "A", "b"]))).map(" ".join),
    "tsquery": QUERY | st.text("ab':&|!()<->2 *", max_size=10),
}  # fmt: skip

GENERATED = {
    "int2": st.integers(-40000, 40000).map(str), "int4": NUMBER, "int8": NUMBER, "float8": FLOAT, "float4": FLOAT,
    "numeric": NUMBER, "numeric(10,3)": NUMBER, "numeric(38,20)": NUMBER, "numeric(60,2)": NUMBER, "numeric(3,-3)": NUMBER,
    "text": TEXT, "varchar(4)": TEXT, "char(4)": TEXT, "name": TEXT, "bytea": st.one_of(st.binary().map(lambda raw: "\\x" + raw.hex()), TEXT),
    "date": MOMENT, "timestamp": MOMENT, "timestamp(2)": MOMENT, "timestamptz": MOMENT, "time": CLOCK, "timetz": CLOCK, "interval": INTERVAL,
    "jsonb": JSON, "json": JSON, "uuid": st.uuids().map(str), "text[]": st.one_of(ARRAY, WILD_ARRAY), "bool": st.text("truefalsyno01 ", max_size=5),
    "inet": ADDRESS, "cidr": ADDRESS | NETWORK, "varbit(9)": st.text("01", max_size=12), "bit(3)": st.text("01", max_size=4),
    "money": AMOUNT, "money[]": st.lists(AMOUNT.map(lambda amount: '"' + amount + '"'), max_size=3).map(array), "macaddr": MAC, "macaddr8": MAC, "oid": NUMBER, "mood": st.sampled_from(["sad", "happy", "Sad", "", " sad", "it's é"]),
    "mood[]": st.lists(st.sampled_from(["sad", "happy", "NULL", "x"]), max_size=3).map(array), "int4[]": WILD_ARRAY | SHAPED,
    "numeric(6,2)[]": st.lists(NUMBER.map(str.strip).filter(bool), max_size=1).map(array), "timestamptz[]": st.lists(MOMENT.map('"{}"'.format), max_size=3).map(array),
    "thing": st.text('(),"\\\\ 1a', max_size=14) | st.builds("({},{},{},,,,)".format, NUMBER, TEXT.map(lambda word: '"' + word.replace("\\", "\\\\").replace('"', '""') + '"'), NUMBER),
    "xml": st.text("<>/ab='&;!-", max_size=8) | st.lists(st.sampled_from(["<a>", "</a>", "<b c='d'/>", "x", "&lt;", "<!-- -->", "<?p?>"])).map("".join),
    **SEARCH, **SHAPE, **RANGE, **SPANS, "numrange[]": st.lists(bracketed(SMALL).map('"{}"'.format)).map(array),
    "bool[]": st.lists(st.sampled_from(["t", "f", "NULL", "yes", "2"]), max_size=3).map(array), "float8[]": st.lists(st.floats().map(repr)).map(array),
}  # fmt: skip


LONG = ("numrange", "numrange[]", "nummultirange")


@pytest.mark.parametrize("type_name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else []) for name in GENERATED])
def test_generated_texts_enter_a_column_as_in_postgresql(check, type_name: str) -> None:
    @settings(max_examples=settings.default.max_examples // 5)
    @given(st.lists(GENERATED[type_name], min_size=1, max_size=30))
    def run(values: list[str]) -> None:
        check(type_name, values)

    run()


def test_malformed_array_is_shown_from_its_first_brace_on(check) -> None:
    check("int4[]", [" {", "  {1", " {1}x", " [1:1]={", " [1:2]={1}", " x", " {{1}"])
