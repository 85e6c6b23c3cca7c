"""Functions and patterns of strings and bytes under the C collation: ASCII case folding, order by bytes.

char(n) values reach these functions as in PostgreSQL: padded for LIKE and octet_length, without trailing blanks if the tree has a cast to
text. For regular expressions, see `regex`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.expression.duckdb import text as duckdb
from headgate.expression.functions import size_limit
from headgate.expression.functions.regex import similar
from headgate.expression.implementation.implementation import (
    ArrowForm,
    Guarded,
    Implementation,
    NotColumnwise,
    Operand,
    Raises,
    SparkForm,
    Table,
    native,
    silent,
)
from headgate.expression.node import Expression
from headgate.expression.spark.value import BOOL, BYTES, INT4, TEXT, Env, Value, after, of_columns, raising, refuse, settle
from headgate.expression.spark.vectorised import call, scalar
from headgate.storage.spark import failure

_INT_MAX = 2**31 - 1
_MOST_PADDED = (size_limit.ALLOCATED - size_limit.HEADER) // 4
"""Maximum length in characters of a padded string. PostgreSQL allocates four bytes for each character."""


def lower(column: Column) -> Column:
    """Convert ASCII letters to lower case (asc_tolower)."""
    return F.translate(column, string.ascii_uppercase, string.ascii_lowercase)


def upper(column: Column) -> Column:
    """Convert ASCII letters to upper case (asc_toupper)."""
    return F.translate(column, string.ascii_lowercase, string.ascii_uppercase)


def _substring(text: Column, start: Column, length: Column | None = None) -> Column:
    begin = start.cast("bigint")
    first = F.greatest(begin, F.lit(1).cast("bigint"))
    if length is None:
        return F.substring(text, first.cast("int"), F.lit(_INT_MAX))
    end = begin + length.cast("bigint")
    count = F.least(F.greatest(end - first, F.lit(0).cast("bigint")), F.lit(_INT_MAX).cast("bigint"))
    error = raising("22011", "negative substring length not allowed")
    return F.when(length < 0, error).otherwise(F.substring(text, first.cast("int"), count.cast("int")))


def _take_left(text: Column, count: Column) -> Column:
    size = F.length(text).cast("bigint")
    keep = F.when(count < 0, F.greatest(size + count, F.lit(0).cast("bigint"))).otherwise(count.cast("bigint"))
    return F.substring(text, F.lit(1), keep.cast("int"))


def _right(text: Column, count: Column) -> Column:
    size = F.length(text).cast("bigint")
    wide = count.cast("bigint")
    # The negative of the least integer overflows to itself in PostgreSQL, so nothing is skipped.
    skip = (
        F.when(count == -_INT_MAX - 1, F.lit(0).cast("bigint"))
        .when(count < 0, -wide)
        .otherwise(F.greatest(size - wide, F.lit(0).cast("bigint")))
    )
    return F.substring(text, F.least(skip + 1, F.lit(_INT_MAX).cast("bigint")).cast("int"), F.lit(_INT_MAX))


def _trim(function: Callable[..., Column]) -> Callable[..., Column]:
    def trim(text: Column, characters: Column | None = None) -> Column:
        trimmed_characters = F.lit(" ") if characters is None else characters
        return F.when(trimmed_characters == "", text).otherwise(function(text, trimmed_characters))

    return trim


def _pad(function: str) -> Callable[..., Column]:
    def pad(text: Column, size: Column, fill: Column | None = None) -> Column:
        filler = F.lit(" ") if fill is None else fill
        count = F.greatest(size, F.lit(0))

        def padded(fits: Column) -> Column:
            return F.call_function(function, text, F.when(fits, count).otherwise(0), filler)

        cut = F.substring(text, F.lit(1), count)
        return F.when(filler == "", cut).otherwise(_check_size(count, _MOST_PADDED, padded))

    return pad


def _split_part(text: Column, delimiter: Column, place: Column) -> Column:
    error = raising("22023", "field position must not be zero")
    whole = F.when((place == 1) | (place == -1), text).otherwise(F.lit(""))
    part = F.split_part(text, delimiter, F.when(place == 0, F.lit(1)).otherwise(place))
    return F.when(place == 0, error).when((delimiter == "") | (text == ""), whole).otherwise(part)


def _repeat(text: Column, count: Column) -> Column:
    times = F.greatest(count, F.lit(0))
    size = F.octet_length(text).cast("bigint") * times
    most = size_limit.ALLOCATED - size_limit.HEADER
    return _check_size(size, most, lambda fits: F.call_function("repeat", text, F.when(fits, times).otherwise(0)))


def _position(text: Column, part: Column) -> Column:
    return F.call_function("instr", text, part)


def _replace(text: Column, old: Column, new: Column) -> Column:
    return F.when(old == "", text).otherwise(F.replace(text, old, new))


def _overlay(text: Column, new: Column, start: Column, count: Column | None = None) -> Column:
    size = F.length(new) if count is None else count
    error = raising("22011", "negative substring length not allowed")
    wide = start.cast("bigint")
    head = F.substring(text, F.lit(1), F.least(wide - 1, F.lit(_INT_MAX).cast("bigint")).cast("int"))
    after = F.greatest(F.least(wide + size, F.lit(_INT_MAX).cast("bigint")), F.lit(1).cast("bigint")).cast("int")
    return F.when(start <= 0, error).otherwise(F.concat(head, new, F.substring(text, after, F.lit(_INT_MAX))))


def _ascii(text: Column) -> Column:
    first = F.substring(text, 1, 1)
    return F.when(text == "", F.lit(0)).otherwise(F.conv(F.hex(F.encode(first, "UTF-32")), 16, 10).cast("int"))


def _chr(number: Column) -> Column:
    code = F.when((number < 1) | (number > 0x10FFFF), F.lit(65)).otherwise(number)
    surrogate = (number >= 0xD800) & (number <= 0xDFFF)
    character = F.decode(F.unhex(F.lpad(F.hex(F.when(surrogate, F.lit(65)).otherwise(code)), 8, "0")), "UTF-32")
    return (
        F.when(number < 0, raising("22023", "character number must be positive"))
        .when(number == 0, raising("54000", "null character not permitted"))
        .when(
            number > 0x10FFFF,
            F.raise_error(F.concat(F.lit("headgate:54000:requested character too large for encoding: "), number.cast("string"))),
        )
        .when(
            surrogate, F.raise_error(F.concat(F.lit("headgate:54000:requested character not valid for encoding: "), number.cast("string")))
        )
        .otherwise(character)
    )


PRINTED_ALIKE = frozenset({"text", "digits", "int2", "int4", "int8", "decimal", "bool"})


def concat(node: Expression, args: Sequence[Value]) -> Value:
    """Concatenate the arguments, of types in PRINTED_ALIKE. NULL counts as the empty string."""
    texts = [_show(arg) for arg in args]
    return Value(TEXT, lambda env: F.concat(*(F.coalesce(text(env), F.lit("")) for text in texts)) if texts else F.lit(""))


def concat_ws(node: Expression, args: Sequence[Value]) -> Value:
    """Concatenate with a separator, skipping NULLs. All arguments are evaluated, even if the separator is NULL."""
    separator, texts = args[0].make, [_show(arg) for arg in args[1:]]
    if args[0].is_null:
        return after(texts, Value(TEXT, lambda env: F.lit(None).cast("string")))

    def make(env: Env) -> Column:
        separator_column = separator(env)
        joined = F.call_function("concat_ws", F.coalesce(separator_column, F.lit("")), *(text(env) for text in texts))
        evaluated = F.length(joined) >= 0  # forces evaluation: the optimizer would drop IS NOT NULL, because concat_ws is never NULL
        return F.when(evaluated & F.isnotnull(separator_column), joined)

    return Value(TEXT, make)


def _show(value: Value) -> Callable[[Env], Column]:
    if value.rep.name in ("text", "digits"):
        return settle(value)
    if value.rep.name in ("int2", "int4", "int8", "decimal"):
        return lambda env: value.make(env).cast("string")
    if value.rep == BOOL:
        return lambda env: F.when(value.make(env), F.lit("t")).when(~value.make(env), F.lit("f"))
    raise refuse(f"concat of {value.rep.name}")


def like(pattern: str) -> str | None:
    """Return a LIKE pattern as a Java regular expression for the whole string, or None if it ends in the escape character.

    Between two per cent signs, the first match is as good as any other. Atomic groups keep Java from backtracking.
    """
    pieces, place = [""], 0
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 1
            if place == len(pattern):
                return None
            pieces[-1] += _quote(pattern[place])
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else _quote(character)
        place += 1
    first, *others = pieces
    rest = "".join(f"(?>.*?{piece})" for piece in others[:-1] if piece) + "".join(f".*{piece}" for piece in others[-1:])
    return f"(?s)\\A{first}{rest}\\z"


def _quote(text: str) -> str:
    return re.sub(r"[^\w\s]|_", lambda match: "\\" + match[0] if match[0].isascii() else match[0], text)


def _like(*, negated: bool, fold: bool = False) -> SparkForm:
    exact = {
        (False, False): similar.like,
        (True, False): similar.not_like,
        (False, True): similar.ilike,
        (True, True): similar.not_ilike,
    }[negated, fold]

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        pattern = args[1].constant
        test = None
        if pattern is not None and args[0].constant is None:
            test = _matcher(similar.lower(pattern) if fold else pattern)
        if test is None:
            return call(exact, BOOL, args)

        def build(text: Column) -> Column:
            result = test(lower(text) if fold else text)
            return ~result if negated else result

        return of_columns(BOOL, build, args[0])

    return builder


def _matcher(pattern: str) -> Callable[[Column], Column] | None:
    """Return the cheapest exact test for a pattern (equality, prefix, suffix, infix or regular expression), or None if there is none."""
    if not re.search(r"[%_\\]", pattern):
        return lambda text: text == F.lit(pattern)
    bare = pattern.strip("%")
    if bare and not re.search(r"[%_\\]", bare):
        front, back = pattern.startswith("%"), pattern.endswith("%")
        if front and back:
            return lambda text: text.contains(F.lit(bare))
        return (lambda text: text.endswith(F.lit(bare))) if front else (lambda text: text.startswith(F.lit(bare)))
    expression = like(pattern)
    return None if expression is None else lambda text: F.rlike(text, F.lit(expression))


def _check_size(size: Column, most: int, build: Callable[[Column], Column]) -> Column:
    """Return what `build` builds. Raise 54000 if `size` exceeds PostgreSQL's limit `most`, and 53200 if it exceeds a node's limit.

    `build` receives a condition that is true if the value is small enough. Spark evaluates constant parts while it plans, including
    those that are never reached, so the Column must not contain a large constant result.
    """
    fits = size <= size_limit.HELD
    message = failure.told(PostgresError("53200", "out of memory", detail=f"A value has at most {size_limit.HELD} bytes here."))
    return F.when(size > most, raising("54000", "requested length too large")).when(~fits, raising("53200", message)).otherwise(build(fits))


def _by_words(*, negated: bool) -> ArrowForm:
    """Return the Arrow form of LIKE for a pattern that is a word, with % at either end or both."""

    def evaluate(value: Operand, pattern: Operand) -> Operand:
        if not isinstance(pattern, pa.Scalar) or not pattern.is_valid:
            raise NotColumnwise("LIKE with a pattern that is not a constant")
        words = str(pattern.as_py())
        middle = words.strip("%")
        if not middle or any(mark in middle for mark in "%_\\"):
            raise NotColumnwise(words)
        leading, trailing = words.startswith("%"), words.endswith("%")
        if leading and trailing:
            matched = pc.match_substring(value, middle)
        elif leading or trailing:
            matched = (pc.ends_with if leading else pc.starts_with)(value, middle)
        else:
            matched = pc.equal(value, pa.scalar(middle, value.type))
        return pc.invert(matched) if negated else matched

    return evaluate


IMPLEMENTATIONS: Table = {
    "lower": silent(native(TEXT, lower), arrow=pc.ascii_lower, duckdb=duckdb.LOWER),
    "upper": silent(
        native(TEXT, upper), arrow=pc.ascii_upper, duckdb="translate({0}, 'abcdefghijklmnopqrstuvwxyz', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ')"
    ),
    "textlen": silent(
        native(INT4, F.length),
        arrow=lambda value: pc.cast(pc.utf8_length(value), pa.int32()),
        duckdb="CAST(length({0}) AS INTEGER)",
        any_collation=True,
    ),
    "bpcharlen": silent(native(INT4, lambda column: F.length(F.rtrim(column)))),
    "textoctetlen": silent(native(INT4, F.octet_length), duckdb="CAST(strlen({0}) AS INTEGER)"),
    "bpcharoctetlen": Implementation(native(INT4, F.octet_length), null_first=True),
    "bit_length/25": Implementation(native(INT4, lambda a: F.octet_length(a) * F.lit(8)), null_first=True),
    "text_substr": Implementation(
        native(TEXT, _substring),
        null_first=True,
        duckdb=Guarded(
            "CASE WHEN {2} < 0 THEN <22011 negative substring length not allowed>"
            " ELSE substr({0}, greatest({1}, 1), greatest(CAST({1} AS BIGINT) + {2} - greatest({1}, 1), 0)) END"
        ),
    ),
    "text_substr_no_len": Implementation(native(TEXT, _substring), null_first=True, duckdb=Guarded("substr({0}, greatest({1}, 1))")),
    "text_left": Implementation(native(TEXT, _take_left), Raises.NEVER, null_first=True, duckdb="left({0}, {1})"),
    "text_right": Implementation(
        native(TEXT, _right), Raises.NEVER, null_first=True, duckdb="CASE {1} WHEN -2147483648 THEN {0} ELSE right({0}, {1}) END"
    ),
    "textpos": silent(native(INT4, _position), duckdb="CAST(instr({0}, {1}) AS INTEGER)"),
    "btrim": Implementation(native(TEXT, _trim(F.btrim)), Raises.NEVER, null_first=True, duckdb="trim({0}, {1})"),
    "btrim1": Implementation(native(TEXT, _trim(F.btrim)), Raises.NEVER, null_first=True, duckdb="trim({0}, ' ')"),
    "ltrim": Implementation(native(TEXT, _trim(F.ltrim)), Raises.NEVER, null_first=True, duckdb="ltrim({0}, {1})"),
    "ltrim1": Implementation(native(TEXT, _trim(F.ltrim)), Raises.NEVER, null_first=True, duckdb="ltrim({0}, ' ')"),
    "rtrim": Implementation(native(TEXT, _trim(F.rtrim)), Raises.NEVER, null_first=True, duckdb="rtrim({0}, {1})"),
    "replace_text": Implementation(native(TEXT, _replace), Raises.NEVER, null_first=True, duckdb="replace({0}, {1}, {2})"),
    "textcat": silent(
        native(TEXT, F.concat),
        arrow=lambda left, right: pc.binary_join_element_wise(left, right, ""),
        duckdb="({0} || {1})",
        any_collation=True,
    ),
    "text_reverse": silent(
        native(TEXT, F.reverse),
        duckdb="CASE WHEN strlen({0}) = length({0}) THEN reverse({0}) WHEN {0} IS NOT NULL"
        " THEN <0A000 reverse of text that is not plain ASCII is not supported here> END",
    ),
    "repeat": Implementation(
        native(TEXT, _repeat), null_first=True, duckdb="repeat({0}, hg.fitting({1}, strlen({0}) * CAST({1} AS BIGINT), 1073741819))"
    ),
    "lpad": Implementation(
        native(TEXT, _pad("lpad")),
        null_first=True,
        duckdb=Guarded("CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) ELSE lpad({0}, hg.fitting({1}, {1}, 268435454), {2}) END"),
    ),
    "rpad": Implementation(
        native(TEXT, _pad("rpad")),
        null_first=True,
        duckdb=Guarded("CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) ELSE rpad({0}, hg.fitting({1}, {1}, 268435454), {2}) END"),
    ),
    "lpad/25,23": Implementation(
        native(TEXT, _pad("lpad")), null_first=True, duckdb=Guarded("lpad({0}, hg.fitting({1}, {1}, 268435454), ' ')")
    ),
    "rpad/25,23": Implementation(
        native(TEXT, _pad("rpad")), null_first=True, duckdb=Guarded("rpad({0}, hg.fitting({1}, {1}, 268435454), ' ')")
    ),
    "split_part": Implementation(
        native(TEXT, _split_part),
        null_first=True,
        duckdb=Guarded(
            "CASE WHEN {2} = 0 THEN <22023 field position must not be zero> WHEN {1} = '' THEN CASE"
            " WHEN {2} IN (1, -1) THEN {0} ELSE '' END ELSE split_part({0}, {1}, {2}) END"
        ),
    ),
    "text_starts_with": silent(native(BOOL, F.startswith), duckdb="starts_with({0}, {1})"),
    "md5_text": silent(native(TEXT, F.md5), duckdb="md5({0})"),
    "ascii": Implementation(native(INT4, _ascii), null_first=True, duckdb="ascii({0})"),
    "chr": Implementation(
        native(TEXT, _chr),
        null_first=True,
        duckdb=Guarded(
            "CASE WHEN {0} < 0 THEN <54000 character number must be positive> WHEN {0} = 0"
            " THEN <54000 null character not permitted> WHEN {0} > 1114111 OR {0} BETWEEN 55296 AND 57343"
            " THEN <54000 requested character not valid for encoding> ELSE chr({0}) END"
        ),
    ),
    "textoverlay": Implementation(native(TEXT, _overlay), null_first=True),
    "textoverlay_no_len": Implementation(native(TEXT, _overlay), null_first=True),
    "textlike": Implementation(
        _like(negated=False), Raises.BY_PATTERN, arrow=_by_words(negated=False), duckdb=duckdb.like(), any_collation=True
    ),
    "textnlike": Implementation(
        _like(negated=True), Raises.BY_PATTERN, arrow=_by_words(negated=True), duckdb=duckdb.like(negated=True), any_collation=True
    ),
    "namelike": Implementation(_like(negated=False), null_first=True, duckdb=duckdb.like()),
    "namenlike": Implementation(_like(negated=True), null_first=True, duckdb=duckdb.like(negated=True)),
    "texticlike": Implementation(_like(negated=False, fold=True), Raises.BY_PATTERN, duckdb=duckdb.like(folded=True)),
    "texticnlike": Implementation(_like(negated=True, fold=True), Raises.BY_PATTERN, duckdb=duckdb.like(folded=True, negated=True)),
    "like_escape": silent(scalar(similar.like_escape, TEXT)),
    "byteaoctetlen": Implementation(native(INT4, F.octet_length), null_first=True, duckdb="CAST(octet_length({0}) AS INTEGER)"),
    "byteacat": Implementation(native(BYTES, F.concat), null_first=True),
    "bytea_substr": Implementation(
        native(BYTES, _substring),
        null_first=True,
        duckdb=Guarded(
            "CASE WHEN {2} < 0 THEN <22011 negative substring length not allowed>"
            " ELSE hg.bytes_from({0}, {1}, CAST({1} AS BIGINT) + {2} - 1) END"
        ),
    ),
    "bytea_substr_no_len": Implementation(
        native(BYTES, _substring), null_first=True, duckdb=Guarded("hg.bytes_from({0}, {1}, octet_length({0}))")
    ),
    "md5_bytea": Implementation(native(TEXT, F.md5), null_first=True),
}
