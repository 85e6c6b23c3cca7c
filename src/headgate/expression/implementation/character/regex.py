"""POSIX regular expressions and SIMILAR TO: a constant pattern runs in Java if that is exact, otherwise in Python over Arrow.

An invalid constant pattern raises its error when a row is evaluated, as in PostgreSQL, not when the expression is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.expression.duckdb import regex as duckdb
from headgate.expression.duckdb.value import DuckdbForm
from headgate.expression.functions.regex import functions, java, similar
from headgate.expression.functions.regex.lexer import Flag
from headgate.expression.functions.regex.parser import parse
from headgate.expression.implementation.implementation import Implementation, SparkForm, Table
from headgate.expression.node import Expression
from headgate.expression.spark.value import BOOL, INT4, TEXT, Value, of_columns, raising
from headgate.expression.spark.vectorised import call, scalar


def _operator(*, negated: bool, fold: bool = False) -> SparkForm:
    flags = Flag.ADVANCED | (Flag.FOLD if fold else Flag(0))
    return lambda node, args: _matching(args, flags, negated=negated)


def _like(node: Expression, args: Sequence[Value]) -> Value:
    """Compile regexp_like, with constant flags or others."""
    letters = args[2].constant if len(args) > 2 else ""
    if letters is not None and args[1].constant is not None:
        try:
            return _matching(args[:2], functions.options(letters, "regexp_like()")[0], negated=False)
        except PostgresError:
            pass  # raised for each row
    return call(functions.regexp_like, BOOL, args)


def _matching(args: Sequence[Value], flags: Flag, *, negated: bool) -> Value:
    text, pattern = args[0], args[1].constant
    test = None
    if pattern is not None and text.constant is None and not text.is_null:
        try:
            test = _test(pattern, flags)
        except PostgresError as error:
            test = _failing(error)
    if test is None:
        return call(functions.differs if negated else functions.matches, BOOL, args[:2], prefix=(int(flags),))

    return of_columns(BOOL, lambda column: ~test(column) if negated else test(column), text)


def _failing(error: PostgresError) -> Callable[[Column], Column]:
    return lambda text: F.when(F.isnull(text), F.lit(None)).otherwise(raising(error.sqlstate, error.message)).cast("boolean")


def _test(pattern: str, flags: Flag) -> Callable[[Column], Column] | None:
    """Return the cheapest exact test in Spark: equality, prefix, suffix, infix or Java expression, or None if there is none."""
    parsed = parse(pattern, flags)
    plain = java.literal(parsed)
    if plain is not None:
        literal_text = plain.text
        if plain.at_start and plain.at_end:
            return lambda text: text == F.lit(literal_text)
        if plain.at_start:
            return lambda text: text.startswith(F.lit(literal_text))
        return (lambda text: text.endswith(F.lit(literal_text))) if plain.at_end else (lambda text: text.contains(F.lit(literal_text)))
    java_pattern = java.written(parsed)
    return None if java_pattern is None else lambda text: F.rlike(text, F.lit(java_pattern))


_REPLACE, _FROM = functions.regexp_replace, functions.regexp_replace_from


def _operators(name: str, spark: SparkForm, in_duckdb: DuckdbForm) -> Table:
    return dict.fromkeys((f"text{name}", f"name{name}"), Implementation(spark, duckdb=in_duckdb))


IMPLEMENTATIONS: Table = {
    **_operators("regexeq", _operator(negated=False), duckdb.matches()),
    **_operators("regexne", _operator(negated=True), duckdb.matches(negated=True)),
    **_operators("icregexeq", _operator(negated=False, fold=True), duckdb.matches("i")),
    **_operators("icregexne", _operator(negated=True, fold=True), duckdb.matches("i", negated=True)),
    **dict.fromkeys(("regexp_like", "regexp_like_no_flags"), _like),
    "regexp_match": scalar(functions.regexp_match, TEXT),
    "regexp_match_no_flags": Implementation(scalar(functions.regexp_match, TEXT), duckdb=duckdb.matched),
    **dict.fromkeys(("regexp_split_to_array", "regexp_split_to_array_no_flags"), scalar(functions.regexp_split_to_array, TEXT)),
    **dict.fromkeys(("regexp_count", "regexp_count_no_flags", "regexp_count_no_start"), scalar(functions.regexp_count, INT4)),
    **dict.fromkeys(
        (
            "regexp_instr", "regexp_instr_no_subexpr", "regexp_instr_no_flags", "regexp_instr_no_endoption", "regexp_instr_no_n",
            "regexp_instr_no_start",
        ),
        scalar(functions.regexp_instr, INT4),
    ),
    **dict.fromkeys(
        ("regexp_substr", "regexp_substr_no_subexpr", "regexp_substr_no_flags", "regexp_substr_no_n", "regexp_substr_no_start"),
        scalar(functions.regexp_substr, TEXT),
    ),
    **dict.fromkeys(("textregexreplace", "textregexreplace_noopt"), Implementation(scalar(_REPLACE, TEXT), duckdb=duckdb.replaced)),
    **dict.fromkeys(
        ("textregexreplace_extended", "textregexreplace_extended_no_flags", "textregexreplace_extended_no_n"), scalar(_FROM, TEXT)
    ),
    "textregexsubstr": Implementation(scalar(functions.substring, TEXT), duckdb=duckdb.extracted),
    "substring/25,25,25": scalar(functions.substring_similar, TEXT),
    **dict.fromkeys(("similar_to_escape_1", "similar_to_escape_2"), scalar(similar.similar_to_escape, TEXT)),
    "similar_escape": scalar(similar.similar_escape, TEXT, strict=False),
}  # fmt: skip
