"""The binary forms of values are PostgreSQL's, byte for byte, and malformed bytes raise a PostgresError."""

from __future__ import annotations

import contextlib
import struct
from ipaddress import ip_network

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import PostgresError
from headgate.types import copy_text, registry, typmod
from headgate.types.binary import binary, copy_binary
from headgate.types.text import text

NUMBERS = st.decimals(allow_nan=False, allow_infinity=False).map(str)
NASTY_NUMBERS = ["0", "-1", "0.00", "10000", "1e8", "12345678.9012", "0.0001", "-0.00000000123", "NaN", "Infinity", "-Infinity", "1e50", "1e-50",
                 "12345678901234567890123456789012345678", "0.12345678901234567890123456789012345678", "123.4500", "5000.0000"]  # fmt: skip
ENDS = st.sampled_from(["infinity", "-infinity", "4713-01-01 BC", "294246-12-31"])
NETWORK = st.builds(lambda where, bits: str(ip_network((where, bits), strict=False)), st.ip_addresses(), st.integers(0, 32))
SHAPES = st.builds(
    lambda low, high, wide, value: f"[{low}:{low + high}][{wide}:{wide}]=" + array([array([f"{value + offset}"]) for offset in range(high + 1)]),
    st.integers(-9, 9), st.integers(0, 4), st.integers(-2, 2), st.integers(-(2**62), 2**62),
) | st.just("{}")  # fmt: skip


def array(items: list[str]) -> str:
    """Return the text of an array of these elements."""
    return "{" + ",".join(items) + "}"


def bracketed(bound: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts of ranges with these bounds, some of them infinite."""
    return st.builds("{}{},{}{}".format, st.sampled_from("[("), bound | st.just(""), bound | st.just(""), st.sampled_from("])"))


PAIR = st.builds("({!r},{!r})".format, st.floats(), st.floats())
POINTS = st.lists(PAIR, min_size=1, max_size=4).map(",".join)
TERM = st.sampled_from(["a", "b:A", "'c d':*b", "!é", "(a <2> (b <-> !c))", "!(a | b)"])
QUERY = st.lists(TERM, min_size=1, max_size=5).map(" & ".join) | st.lists(TERM, min_size=1, max_size=5).map(" | ".join)
VALUES = {
    "tsvector": st.lists(st.builds("{}:{}{}".format, st.sampled_from(["a", "b", "é", "'it''s'"]), st.integers(1, 9), st.sampled_from(["", "A", "b"])) | st.just("c")).map(" ".join), "tsquery": QUERY,
    "point": PAIR, **dict.fromkeys(["lseg", "box"], st.builds("{},{}".format, PAIR, PAIR)), "polygon": POINTS, "path": POINTS.map("[{}]".format) | POINTS.map("({})".format),
    "circle": st.builds("<{},{!r}>".format, PAIR, st.floats(min_value=0)), "line": st.builds("{{{!r},1,{!r}}}".format, st.floats(), st.floats()), "point[]": st.lists(PAIR.map('"{}"'.format)).map(array),
    **dict.fromkeys(["int2", "int4", "int8"], st.integers(-32768, 32767).map(str)), "bool": st.sampled_from(["t", "f"]),
    **dict.fromkeys(["float4", "float8"], st.floats(width=32).map(repr)),
    **dict.fromkeys(["numeric", "numeric(12,2)", "numeric(38,10)", "numeric(18,4)", "numeric(5,0)"], NUMBERS | st.sampled_from(NASTY_NUMBERS)),
    **dict.fromkeys(["text", "varchar(7)", "char(5)", "name"], st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))),
    "bytea": st.binary().map(lambda raw: "\\x" + raw.hex()), "date": st.dates().map(str) | ENDS, "timestamp": st.datetimes().map(str) | ENDS,
    "timestamptz": st.datetimes().map(str) | ENDS, "uuid": st.uuids().map(str), "time": st.times().map(str),
    "timetz": st.builds("{}{}".format, st.times(), st.sampled_from(["+02", "-03:30"])),
    "interval": st.builds("{} mons {} days {} s".format, st.integers(-99, 99), st.integers(-99, 99), st.integers(-(10**6), 10**6)),
    **dict.fromkeys(["json", "jsonb"], st.sampled_from(['{"a":1, "a" : 2}', "[]", "1", ' {"é": [null, "\\u00e9\\ud83d\\ude00"]}', "-0.10", "1e5"])),
    "inet": st.builds("{}/{}".format, st.ip_addresses(), st.integers(0, 32)), "cidr": NETWORK,
    "xid8": st.integers(0, 2**64 - 1).map(str), **dict.fromkeys(["int2vector", "oidvector"], st.lists(st.integers(0, 2**15 - 1), max_size=9).map(lambda items: " ".join(map(str, items)))),
    "money": st.integers(-(10**17), 10**17).map(lambda cents: f"{cents // 100}.{cents % 100:02}"), "varbit": st.text("01", max_size=20), "bit(9)": st.text("01", min_size=9, max_size=9), "oid": st.integers(0, 2**32 - 1).map(str),
    "macaddr8": st.binary(min_size=8, max_size=8).map(bytes.hex), "numeric(60,20)": NUMBERS, "numeric(5,-3)": st.integers(-(10**7), 10**7).map(str),
    "mood": st.sampled_from(["sad", "happy", "it's é"]), "jsonb[]": st.lists(st.sampled_from(["NULL", "1", '"[1, null]"', "null"])).map(array), "mood[]": st.lists(st.sampled_from(["sad", "happy", "NULL", '"it\'s é"'])).map(array),
    **dict.fromkeys(["numeric[]", "numeric(9,2)[]"], st.lists(st.integers(-(10**6), 10**6).map(lambda whole: f"{whole}.5")).map(array)),
    "float8[]": st.lists(st.floats().map(repr)).map(array), "bool[]": st.lists(st.sampled_from("tf")).map(array),
    "date[]": st.lists(st.dates().map(str) | ENDS.map('"{}"'.format)).map(array), "uuid[]": st.lists(st.uuids().map(str)).map(array),
    "timestamptz[]": st.lists(st.datetimes().map('"{}"'.format)).map(array), "int8[]": SHAPES, "inet[]": st.lists(st.ip_addresses().map(str)).map(array),
    **dict.fromkeys(["int4range", "int8range"], bracketed(st.integers(-99, 99).map(str)) | st.just("empty")), "numrange": bracketed(NUMBERS),
    "daterange": bracketed(st.dates().map(str) | ENDS), **dict.fromkeys(["tsrange", "tstzrange"], bracketed(st.datetimes().map(str) | ENDS)),
    "int4multirange": st.lists(bracketed(st.integers(-9, 9).map(str))).map(array), "tstzmultirange": st.lists(bracketed(st.datetimes().map(str))).map(array),
    "int4range[]": st.lists(bracketed(st.integers(-9, 9).map(str)).map('"{}"'.format)).map(array), "nummultirange": st.lists(bracketed(st.decimals(-3, 3, places=1).map(str))).map(array),
    "jsonpath": st.sampled_from(["$.a ? (@ > 1)", "strict $[1 to last].b", "1 + 2"]), "xml": st.sampled_from(["<a/>", "x", "", "<?xml version='1.0' standalone='yes'?><a/>", "<?xml version='1.0'?>\n<a>é</a>"]), "thing": st.builds('({},"{}",{}.5,{},"{}",{},)'.format, st.integers(-9, 9) | st.just(""), st.text("ab ,()", max_size=4), st.integers(-99, 99), st.sampled_from(["sad", ""]), st.sampled_from(["[1,2]", "empty"]), st.dates()),
    "thing[]": st.lists(st.integers(0, 9).map('"({},,,,,,)"'.format)).map(array),
    "macaddr": st.binary(min_size=6, max_size=6).map(bytes.hex), "pg_lsn": st.builds("{:X}/{:X}".format, st.integers(0, 99), st.integers(0, 2**32 - 1)),
    "int4[]": st.lists(st.integers(-9, 9)).map(lambda items: "{" + ",".join(map(str, items)) + "}"),
    "text[]": st.lists(st.text("ab ,\"\\{}", max_size=3)).map(lambda items: "{" + ",".join('"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in items) + "}"),
}  # fmt: skip


@pytest.mark.parametrize("type_name", VALUES)
def test_column_is_read_from_and_written_to_the_binary_form(oracle, type_name: str) -> None:
    oid, modifier = oracle.type_of(type_name)

    @settings(max_examples=settings.default.max_examples // 10)
    @given(st.lists(VALUES[type_name], min_size=1, max_size=30))
    def run(values: list[str]) -> None:
        as_text, raw = oracle.stored(type_name, values)
        rows = copy_binary.read_copy_binary(raw, 1, at=copy_binary.header_length(raw))
        assert (rows.ended, rows.consumed) == (True, len(raw))
        try:
            stored = binary.read_binary(np.frombuffer(raw, np.uint8), rows.starts[0], rows.lengths[0], oid, modifier)
        except PostgresError as refused:
            if not refused.message.startswith("cannot store"):
                raise
            return
        assert text.write_text(stored, oid).equals(copy_text.read_copy_text(as_text, 1)[0])
        copied_rows = copy_binary.write_copy_binary([binary.write_binary(stored, oid, modifier)])
        assert copy_binary.HEADER + copied_rows + copy_binary.TRAILER == raw

    run()


OIDS = [registry.INT4, registry.NUMERIC, registry.TEXT, registry.DATE, registry.TIMESTAMPTZ, registry.UUID, registry.JSONB, registry.INET,
        registry.VARBIT, registry.INTERVAL, registry.INT4_ARRAY, registry.TIMETZ, registry.PG_LSN, registry.BOOL, registry.MACADDR,
        registry.JSONPATH, registry.TSVECTOR, registry.TSQUERY, registry.POLYGON, registry.CIRCLE, registry.INT4RANGE, registry.TSTZRANGE, registry.NUMMULTIRANGE, registry.XID8, registry.INT2VECTOR, registry.OIDVECTOR, registry.VOID]  # fmt: skip


@given(st.sampled_from(OIDS), st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.sampled_from([-1, typmod.numeric(9, 2)]))
def test_malformed_bytes_are_an_error_with_a_sqlstate(oid: int, values: list[bytes], modifier: int) -> None:
    data = np.frombuffer(b"".join(values), np.uint8)
    lengths = np.array([len(value) for value in values], np.int32)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    with contextlib.suppress(PostgresError):  # anything else that is raised fails the test
        assert len(binary.read_binary(data, starts, lengths, oid, modifier if oid == registry.NUMERIC else -1)) == len(values)


def test_value_beyond_the_buffer_is_an_error() -> None:
    with pytest.raises(PostgresError, match="insufficient data"):
        binary.read_binary(np.zeros(3, np.uint8), np.array([0]), np.array([4], np.int32), registry.INT4)


def test_numeric_is_rounded_to_the_scale_of_its_column() -> None:
    payload = binary.write_binary(pa.array(["1.239"]), registry.NUMERIC)[0].as_py()
    data, start, size = np.frombuffer(payload, np.uint8), np.array([0]), np.array([len(payload)], np.int32)
    assert binary.read_binary(data, start, size, registry.NUMERIC, typmod.numeric(4, 2)).cast(pa.string()).to_pylist() == ["1.24"]
    with pytest.raises(PostgresError, match="numeric field overflow"):
        binary.read_binary(data, start, size, registry.NUMERIC, typmod.numeric(2, 2))


@pytest.mark.parametrize(
    ("flags", "element", "error"),
    [
        (0, 20_000, None),  # the sender's own type has another OID
        (0, registry.INT8, "binary data has array element type 20 \\(bigint\\) instead of expected 23 \\(integer\\)"),
        (2, registry.INT4, "incorrect binary data format"),
    ],
)
def test_array_of_another_server_is_read_if_its_type_can_be_the_same(flags: int, element: int, error: str | None) -> None:
    payload = struct.pack(">iiIiiii", 1, flags, element, 1, 1, 4, 7)
    column = np.frombuffer(payload, np.uint8), np.array([0]), np.array([len(payload)], np.int32)
    with pytest.raises(PostgresError, match=error) if error else contextlib.nullcontext():
        assert binary.read_binary(*column, registry.INT4_ARRAY).to_pylist() == ["{7}"]
