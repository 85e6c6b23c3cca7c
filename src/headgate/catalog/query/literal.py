"""Text of a literal → DuckDB SQL of a type: PostgreSQL's input functions for the types that catalogs hold.

Errors are PostgreSQL's (22P02, 22003, 22007, 22008). The reg… types need the catalog and are the rewriter's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from headgate.catalog.physical import duckdb_type
from headgate.catalog.query.value import STRINGS, VECTORS, element_of, quote
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.types import registry as t
from headgate.types.datetime import calendar, interval
from headgate.types.text.text import read_scalar
from headgate.types.text_column import PLAIN, TextSettings

_RANGES = {
    t.INT2: (-(2**15), 2**15 - 1), t.INT4: (-(2**31), 2**31 - 1), t.INT8: (-(2**63), 2**63 - 1), t.OID: (-(2**31), 2**32 - 1),
    t.XID: (-(2**31), 2**32 - 1), t.CID: (-(2**31), 2**32 - 1), t.XID8: (0, 2**64 - 1),
}  # fmt: skip
_TRUE = {"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"}
_FALSE = {"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"}


def sql(text: str, type_oid: int, position: int | None = None, forms: TextSettings = PLAIN) -> str:
    """The literal, read under the session's settings, as DuckDB SQL of the type's storage type."""
    try:
        return _sql(text, type_oid, forms)
    except PostgresError as error:
        error.position = position
        raise


def _sql(text: str, type_oid: int, forms: TextSettings) -> str:
    if type_oid in _RANGES:
        return _integer(text, type_oid)
    if type_oid == t.BOOL:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise PostgresError("22P02", f'invalid input syntax for type boolean: "{text}"')
        return "TRUE" if word in _TRUE else "FALSE"
    if type_oid == t.PG_LSN:
        return f"CAST({int(Lsn.parse(text))} AS UBIGINT)"
    if type_oid == t.CHAR:
        return quote(text[:1])
    if type_oid == t.NAME:
        return quote(text.encode()[:63].decode(errors="ignore"))
    if type_oid in STRINGS:
        return quote(text)
    if type_oid == t.BYTEA:
        return f"from_hex({quote(text[2:] if text.startswith(chr(92) + 'x') else text.encode().hex())})"
    if type_oid in VECTORS:
        return _list(text.split(), VECTORS[type_oid], forms)
    element = element_of(type_oid)
    if element is not None:
        return _list(read_array(text), element, forms)
    if type_oid in (t.FLOAT4, t.FLOAT8, t.NUMERIC):
        return _number(text, type_oid)
    if type_oid in (t.TIMESTAMP, t.TIMESTAMPTZ, t.DATE, t.INTERVAL):
        return _time(text, type_oid, forms)
    if type_oid == t.TIME:
        return f"CAST({quote(text.strip())} AS {duckdb_type(type_oid)})"
    return quote(text)


def read_array(text: str) -> list[str | None]:
    """The elements of a one-dimensional array literal; 22P02 for anything else."""
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise PostgresError(
            "22P02", f'malformed array literal: "{text}"', detail='Array value must start with "{" or dimension information.'
        )
    found: list[str | None] = []
    rest = body[1:-1].strip()
    while rest:
        matched = re.match(r'"((?:[^"\\]|\\.)*)"\s*(,|$)|([^,{}"]*?)\s*(,|$)', rest, re.DOTALL)
        if matched is None or (matched[1] is None and not matched[3]):
            raise PostgresError("22P02", f'malformed array literal: "{text}"')
        if matched[1] is not None:
            found.append(re.sub(r"\\(.)", r"\1", matched[1], flags=re.DOTALL))
        else:
            found.append(None if matched[3].upper() == "NULL" else re.sub(r"\\(.)", r"\1", matched[3]))
        rest = rest[matched.end() :].lstrip()
    return found


def _list(elements: Sequence[str | None], element: int, forms: TextSettings) -> str:
    listed = ", ".join("NULL" if each is None else _sql(each, element, forms) for each in elements)
    return f"CAST([{listed}] AS {duckdb_type(element)}[])"


def _integer(text: str, type_oid: int) -> str:
    shown = t.format_type(type_oid)
    if not re.match(r"\s*[+-]?\d+\s*\Z", text):
        raise PostgresError("22P02", f'invalid input syntax for type {shown}: "{text}"')
    number = int(text)
    low, high = _RANGES[type_oid]
    if not low <= number <= high:
        raise PostgresError("22003", f'value "{text}" is out of range for type {shown}')
    if type_oid in (t.OID, t.XID, t.CID) and number < 0:
        number += 2**32
    return f"CAST({number} AS {duckdb_type(type_oid)})"


def _number(text: str, type_oid: int) -> str:
    word = text.strip()
    if type_oid == t.NUMERIC:
        if not re.match(r"[+-]?(\d+\.?\d*|\.\d+)\Z", word):
            raise PostgresError("22P02", f'invalid input syntax for type numeric: "{text}"')
        return decimal(word)
    if not re.match(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)\Z", word, re.IGNORECASE):
        raise PostgresError("22P02", f'invalid input syntax for type {t.format_type(type_oid)}: "{text}"')
    return f"CAST({quote(word)} AS {duckdb_type(type_oid)})"


def decimal(word: str) -> str:
    """A numeric constant with its own scale; 0A000 beyond 38 digits."""
    digits = word.lstrip("+-")
    whole, _, fraction = digits.partition(".")
    width = max(len(whole.lstrip("0")) + len(fraction), 1)
    if width > 38:
        raise PostgresError("0A000", "numeric constants of more than 38 digits are not supported here")
    return f"CAST({quote(word)} AS DECIMAL({max(width, len(fraction) + 1) if width < 38 else 38},{len(fraction)}))"


def _time(text: str, type_oid: int, forms: TextSettings) -> str:
    value = read_scalar(text, type_oid, session=forms)
    if type_oid == t.INTERVAL:
        found = interval.normal(value.as_py())
        return f"(to_months({found.months}) + to_days({found.days}) + to_microseconds({found.micros}))"
    number = value.cast(pa.int32() if type_oid == t.DATE else pa.int64()).as_py()
    if abs(number) == (calendar.INFINITE_DAY if type_oid == t.DATE else calendar.INFINITE_MICROS):
        return f"CAST('{'-' if number < 0 else ''}infinity' AS {duckdb_type(type_oid)})"
    return f"(DATE '1970-01-01' + {number})" if type_oid == t.DATE else f"make_timestamp({number})"
