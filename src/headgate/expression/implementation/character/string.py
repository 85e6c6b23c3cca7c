"""String functions that Spark does not have: quoting, format, concat of values of any type, normal forms, encodings, bytewise comparison.

The functions themselves are in `functions.string`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.duckdb import text as duckdb
from headgate.expression.functions import string
from headgate.expression.functions.regex import similar
from headgate.expression.implementation.character import text as compile_text
from headgate.expression.implementation.comparison import blank_padded, plain
from headgate.expression.implementation.implementation import Guarded, Implementation, SparkForm, Table, native
from headgate.expression.node import Expression, FuncExpr, OpExpr
from headgate.expression.spark import session_time
from headgate.expression.spark.cast import printed
from headgate.expression.spark.value import BOOL, BYTES, TEXT, Value, of_columns
from headgate.expression.spark.vectorised import Plain, call, scalar
from headgate.types.text.text import depends_on


def _print_arguments(node: Expression, args: Sequence[Value]) -> list[Value]:
    """Return the arguments as their output functions print them."""
    assert isinstance(node, (FuncExpr, OpExpr))
    return [_output(value, operand) for value, operand in zip(args, node.args, strict=True)]


def _output(value: Value, operand: Expression) -> Value:
    if value.is_null or (value.rep == TEXT and not depends_on(operand.type.oid, session_time.forms())):
        return Value(TEXT, value.make, constant=value.constant, is_null=value.is_null, raw=value.raw)
    if value.constant is not None and value.rep.name in ("bool", "int2", "int4", "int8", "digits", "decimal", "bytes"):
        constant_text = value.constant
        return Value(TEXT, lambda env: F.lit(constant_text), constant=constant_text)
    return printed(value, operand.type)


def _spreading(function: Callable[..., Plain], spread: Callable[..., Plain], native: SparkForm | None = None) -> SparkForm:
    """Return the form of a VARIADIC "any" function, over the arguments or over the elements of a VARIADIC array.

    `native` is Spark's own function, for arguments that Spark prints as PostgreSQL does.
    """

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        variadic = isinstance(node, FuncExpr) and node.variadic
        assert isinstance(node, (FuncExpr, OpExpr))
        forms = session_time.forms()
        alike = all(arg.rep.name in compile_text.PRINTED_ALIKE for arg in args)
        if native is not None and not variadic and alike and not any(depends_on(operand.type.oid, forms) for operand in node.args):
            return native(node, args)
        return call(spread if variadic else function, TEXT, _print_arguments(node, args), strict=False)

    return builder


def _unpad(value: Value) -> Value:
    return of_columns(TEXT, F.rtrim, value)


def _larger(a: Column, b: Column) -> Column:
    return F.when(a > b, a).otherwise(F.when(F.isnotnull(a), b))


def _smaller(a: Column, b: Column) -> Column:
    return F.when(a < b, a).otherwise(F.when(F.isnotnull(a), b))


def _translate(*columns: Column) -> Column:
    return F.call_function("translate", *columns)


def cut_to_name(text: str) -> str:
    """Truncate a text to a name of at most 63 bytes, never within a character."""
    return text.encode()[:63].decode(errors="ignore")


IMPLEMENTATIONS: Table = {
    "initcap": scalar(string.initcap, TEXT, raises=False),
    "translate": Implementation(native(TEXT, _translate), duckdb="translate({0}, {1}, {2})"),
    "quote_ident": Implementation(scalar(string.quote_ident, TEXT, raises=False), duckdb="hg.quote_ident({0})"),
    "quote_literal": Implementation(scalar(string.quote_literal, TEXT, raises=False), duckdb="hg.quote_literal({0})"),
    "quote_nullable": Implementation(
        scalar(string.quote_nullable, TEXT, strict=False, raises=False), duckdb="coalesce(hg.quote_literal({0}), 'NULL')"
    ),
    "parse_ident": scalar(string.parse_identifier, TEXT),
    "unistr": scalar(string.unistr, TEXT),
    "unicode_normalize_func": scalar(string.normalized, TEXT),
    "unicode_is_normalized": scalar(string.is_normalized, BOOL),
    "pg_convert_to": scalar(string.to_encoding, BYTES),
    "pg_convert_from": Implementation(
        scalar(string.from_encoding, TEXT),
        duckdb=Guarded(
            "CASE WHEN regexp_matches(hex({0}), '^(..)*00')"
            ' THEN <22021 invalid byte sequence for encoding "UTF8": 0x00>'
            " WHEN lower(replace({1}, '-', '')) IN ('utf8', 'unicode') THEN decode({0})"
            " ELSE error('unrecognized encoding: \"' || {1} || '\"') END"
        ),
    ),
    "text_concat": Implementation(_spreading(string.concat, string.concat_spread, compile_text.concat), duckdb=duckdb.concat),
    "text_concat_ws": Implementation(
        _spreading(string.concat_between, string.concat_between_spread, compile_text.concat_ws), duckdb=duckdb.concat_ws
    ),
    "text_format": Implementation(_spreading(string.format_text, string.format_spread), duckdb=duckdb.format_text),
    "text_format_nv": Implementation(scalar(string.format_text, TEXT, strict=False), duckdb=duckdb.format_text),
    "text_name": scalar(cut_to_name, TEXT, raises=False),
    "bpchar_name": lambda node, args: call(cut_to_name, TEXT, [_unpad(args[0])], raises=False),
    "text_larger": native(TEXT, _larger),
    "text_smaller": native(TEXT, _smaller),
    "nameiclike": Implementation(scalar(similar.ilike, BOOL), duckdb=duckdb.like(folded=True)),
    "nameicnlike": Implementation(scalar(similar.not_ilike, BOOL), duckdb=duckdb.like(folded=True, negated=True)),
    **{f"text_pattern_{name}": plain(name) for name in ("lt", "le", "gt", "ge")},
    **{f"bpchar_pattern_{name}": blank_padded(name) for name in ("lt", "le", "gt", "ge")},
}
