"""Casts: of dates and strings, by length and precision, through the text form; the stored form of a result. Numbers: `number_cast`.

Casts through text use the types' own readers and printers (`headgate.types.text.text`) inside Arrow functions, so that they accept,
refuse and print exactly what PostgreSQL does.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from headgate.errors import PostgresError
from headgate.expression.functions import numeric
from headgate.expression.implementation import enum_type
from headgate.expression.implementation.datetime.infinity import date_to_timestamp, infinite_timestamp, timestamp_to_date
from headgate.expression.implementation.implementation import Implementation, Raises, SparkForm, Table, silent
from headgate.expression.implementation.number.numeric import exactly, spark_decimal
from headgate.expression.node import Const, Expression, FuncExpr, Relabel, TypeRef
from headgate.expression.spark import session_time
from headgate.expression.spark.literal import to_timestamp
from headgate.expression.spark.value import (
    BOOL,
    BYTES,
    DATE,
    DIGITS,
    INT4,
    INT8,
    SPARK,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Env,
    Make,
    Rep,
    Value,
    arrow_function,
    as_text,
    decimal,
    fail,
    raising,
    refuse,
    rep_of,
    settle,
)
from headgate.types import buffers, registry, storage, typmod
from headgate.types.text import text
from headgate.types.text_column import TextSettings


def stored(value: Value, kind: TypeRef) -> Value:
    """The value in the storage form of its type: numeric(p,s) as that decimal, other numeric as text."""
    target = rep_of(kind.oid, kind.typmod)
    if value.rep == target:
        return value
    if value.rep.name == "decimal" and target == DIGITS:
        return Value(DIGITS, as_text(value))
    if target.name == "decimal":
        if value.rep.name == "decimal" and value.rep.scale <= target.scale and value.rep.whole <= target.whole:
            return Value(target, lambda env: value.make(env).cast(spark_decimal(target)))
        return Value(target, _to_stored_decimal(settle(exactly_modified(value, target.precision, target.scale)), target))
    return value


def _to_stored_decimal(shown: Make, target: Rep) -> Make:
    """The digits as a decimal, which has no NaN."""

    def make(env: Env) -> Column:
        made = shown(env)
        refused = raising("0A000", f"cannot store NaN in a column of type numeric({target.precision},{target.scale})")
        return F.when(made == "NaN", refused).otherwise(made).cast(spark_decimal(target))

    return make


_UNSIGNED = frozenset({registry.OID, registry.XID, registry.CID})


def _same_bits(value: Value, target: Rep) -> Value:
    """Between integer and oid, whose values above 2147483647 are the negative integers."""
    limit = 1 << 32

    def make(env: Env) -> Column:
        made = value.make(env).cast("bigint")
        if target == INT4:
            return F.when(made >= limit // 2, made - limit).otherwise(made).cast("int")
        return F.when(made < 0, made + limit).otherwise(made)

    return Value(target, make)


def _small_to_integer(node: Expression, args: Sequence[Value]) -> Value:
    """int2 → int4; the same function casts to oid and its like, where a negative number is one above 2147483647."""
    wide = Value(INT4, lambda env: args[0].make(env).cast("int"))
    return _same_bits(wide, INT8) if node.type.oid in _UNSIGNED else wide


def _network_to_address(value: Value) -> Value:
    """cidr → inet, whose text shows no mask that is as long as the address."""
    if value.constant is not None:
        shown = text.normal_form(value.constant, registry.INET)
        return Value(TEXT, lambda env: F.lit(shown), constant=shown)

    def make(env: Env) -> Column:
        made = value.make(env)
        whole = made.endswith("/128") | (made.endswith("/32") & ~made.contains(":"))
        return F.when(whole, F.substring_index(made, "/", 1)).otherwise(made)

    return Value(TEXT, make)


def relabel(value: Value, node: Relabel) -> Value:
    """A cast that keeps the representation; refused where storage differs (an oid as an integer is the same bigint or not)."""
    source, target = value.rep, rep_of(node.type.oid, node.type.typmod)
    if node.type.oid == registry.INET and node.arg.type.oid == registry.CIDR:
        return _network_to_address(value)
    if source == target or source.name in ("decimal", "digits"):
        return value
    if node.type.oid in _UNSIGNED or node.arg.type.oid in _UNSIGNED:
        return _same_bits(value, target)
    if source.name in ("int4", "int8") and target.name in ("int4", "int8"):
        return Value(target, lambda env: value.make(env).cast(SPARK[target.name]), constant=value.constant)
    raise refuse(f"a cast from {registry.format_type(node.arg.type.oid)} to {registry.format_type(node.type.oid)}")


def _modifier(node: Expression) -> int:
    assert isinstance(node, FuncExpr)
    second = node.args[1]
    assert isinstance(second, Const)
    assert second.value is not None
    return int(second.value)


def _is_explicit(node: Expression) -> bool:
    assert isinstance(node, FuncExpr)
    third = node.args[2]
    return isinstance(third, Const) and third.value == "t"


def _to_precision(node: Expression, args: Sequence[Value]) -> Value:
    parts = typmod.numeric_parts(_modifier(node))
    if parts is None:
        return args[0]
    precision, scale = parts
    value = args[0]
    if typmod.decimal_parts(_modifier(node)) is None:
        return exactly_modified(value, precision, scale)
    if value.rep.name != "decimal":
        return exactly_modified(value, precision, scale)  # text, since it may be NaN
    target = decimal(precision, scale)
    return Value(target, lambda env: value.make(env).cast(spark_decimal(target)))


def exactly_modified(value: Value, precision: int, scale: int) -> Value:
    """The numeric at numeric(precision, scale), as text."""

    def to_modifier(shown: str) -> str:
        return numeric.to_modifier(shown, precision, scale)

    return exactly(to_modifier, [value])


def _to_varchar(node: Expression, args: Sequence[Value]) -> Value:
    size = typmod.length(registry.VARCHAR, _modifier(node))
    if size is None:
        return args[0]
    explicit = _is_explicit(node)

    def make(env: Env) -> Column:
        shown = args[0].make(env)
        cut = F.substring(shown, 1, size)
        if explicit:
            return cut
        error = raising("22001", f"value too long for type character varying({size})")
        return F.when((F.length(shown) > size) & (F.rtrim(F.substring(shown, size + 1, 2**31 - 1)) != ""), error).otherwise(cut)

    return Value(TEXT, make)


def _to_char(node: Expression, args: Sequence[Value]) -> Value:
    size = typmod.length(registry.BPCHAR, _modifier(node))
    if size is None:
        return args[0]
    explicit = _is_explicit(node)

    def make(env: Env) -> Column:
        shown = args[0].make(env)
        cut = F.rpad(F.substring(shown, 1, size), size, " ")
        if explicit:
            return cut
        error = raising("22001", f"value too long for type character({size})")
        return F.when((F.length(shown) > size) & (F.rtrim(F.substring(shown, size + 1, 2**31 - 1)) != ""), error).otherwise(cut)

    return Value(TEXT, make)


def _moment_precision(rep: Rep) -> SparkForm:
    """timestamp(n): rounds to n digits of seconds, halves away from zero as PostgreSQL counts from 2000."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        digits = _modifier(node)
        if not 0 <= digits < 6:
            return args[0]
        unit = 10 ** (6 - digits)
        base = 946_684_800_000_000

        def make(env: Env) -> Column:
            source = args[0].make(env)
            endless = infinite_timestamp(source)
            micros = F.when(~endless, micros_of(source, rep) - F.lit(base))
            half = F.lit(unit // 2)
            whole = F.when(micros >= 0, F.call_function("div", micros + half, F.lit(unit))).otherwise(
                -F.call_function("div", half - micros, F.lit(unit))
            )
            done = whole * F.lit(unit) + F.lit(base)
            return F.when(endless, source).otherwise(F.timestamp_micros(done) if rep == TIMESTAMPTZ else to_timestamp(done))

        return Value(rep, make)

    return builder


def micros_of(column: Column, rep: Rep) -> Column:
    """Microseconds since 1970 of a timestamp (read as UTC) or timestamptz."""
    return F.unix_micros(column.cast("timestamp"))


def via_text(value: Value, source: TypeRef, target: TypeRef) -> Value:
    """CoerceViaIO: printed by the source type, read by the target type."""
    shown = printed(value, source)
    kind = registry.known().find(target.oid)
    if target.oid in (registry.TEXT, registry.VARCHAR, registry.BPCHAR):
        return shown
    if kind is None:
        raise refuse(f"a cast to {registry.format_type(target.oid)}")
    if kind.kind is registry.TypeKind.ENUM:
        return enum_type.read(shown, kind)
    return read_from(shown, target.oid)


def printed(value: Value, source: TypeRef) -> Value:
    """The text form of a value of the type, as the session prints it."""
    return text_form(value, source, session_time.forms())


def text_form(value: Value, source: TypeRef, forms: TextSettings) -> Value:
    """The text form of a value of the type under these settings."""
    oid = source.oid
    if value.constant is not None and text.depends_on(oid, forms):
        held = text.read_text(pa.array([value.constant], pa.string()), oid, source.typmod)
        written = text.write_text(held, oid, source.typmod, session=forms)[0].as_py()
        return Value(TEXT, lambda env: F.lit(written), constant=written)
    if value.rep.name in ("int2", "int4", "int8"):
        return Value(TEXT, lambda env: value.make(env).cast("string"))
    if value.rep.name in ("decimal", "digits"):
        made = as_text(value)
        return Value(TEXT, settle(Value(DIGITS, made, value.fallible)))
    if oid == registry.BPCHAR:
        return Value(TEXT, value.make, constant=value.constant)
    if value.rep == TEXT and not text.depends_on(oid, forms):
        return value
    if value.rep == BOOL:
        return Value(TEXT, lambda env: F.when(value.make(env), F.lit("t")).when(~value.make(env), F.lit("f")))
    types = registry.known()
    stored_type = storage.arrow_type(oid, source.typmod)  # a worker does not know the types that users made

    def make(env: Env) -> Column:
        def shown(values: pa.Array) -> pa.Array:
            held = values if values.type == stored_type else values.cast(stored_type)
            return text.write_text(held, oid, source.typmod, session=forms, registry=types)

        return arrow_function(shown, StringType())(env.needed(value.make(env), calm=value.calm and value.raw is None))

    return Value(TEXT, make)


def read_from(value: Value, oid: int) -> Value:
    """The value that the type's input function reads from text; a bad text fails only where the value is needed."""
    rep = rep_of(oid)
    types = registry.known()
    forms = session_time.forms()

    def make(env: Env) -> Column:
        def input_form(texts: pa.Array) -> pa.Array:
            try:
                return _plain(text.read_text(texts, oid, -1, session=forms, registry=types), rep)
            except PostgresError:
                return pa.array([_read_one(each, oid, rep, types, forms) for each in texts.to_pylist()], pa.string())

        return arrow_function(input_form, StringType())(env.needed(value.make(env), calm=value.calm and value.raw is None))

    read = settle(Value(TEXT, make, fallible=True))
    return Value(rep, lambda env: _from_plain(read(env), rep))


def _plain(values: pa.Array, rep: Rep) -> pa.Array:
    values = buffers.whole(values)
    if rep == DATE:
        values = values.cast(pa.int32())
    elif rep in (TIMESTAMP, TIMESTAMPTZ):
        values = values.cast(pa.int64())
    elif rep == BYTES:
        return pa.array([None if each is None else each.hex() for each in values.to_pylist()], pa.string())
    return pc.cast(values, pa.string())


def _read_one(shown: str | None, oid: int, rep: Rep, types: registry.TypeRegistry, forms: TextSettings) -> str | None:
    if shown is None:
        return None
    try:
        read = text.read_text(pa.array([shown], pa.string()), oid, -1, session=forms, registry=types)
        made: str | None = _plain(read, rep)[0].as_py()
        return made
    except PostgresError as error:
        return fail(error)


def _from_plain(shown: Column, rep: Rep) -> Column:
    if rep == DATE:
        return F.date_from_unix_date(shown.cast("int"))
    if rep == TIMESTAMP:
        return to_timestamp(shown.cast("bigint"))
    if rep == TIMESTAMPTZ:
        return F.timestamp_micros(shown.cast("bigint"))
    if rep == BYTES:
        return F.unhex(shown)
    return shown if rep in (TEXT, DIGITS) else shown.cast(SPARK[rep.name])


IMPLEMENTATIONS: Table = {
    "i2toi4": silent(_small_to_integer, arrow=lambda value: pc.cast(value, pa.int32())),
    "numeric": _to_precision,
    "varchar": _to_varchar,
    "bpchar": _to_char,
    "rtrim1": Implementation(
        lambda node, args: Value(TEXT, lambda env: F.rtrim(args[0].make(env))), Raises.NEVER, null_first=True, duckdb="rtrim({0}, ' ')"
    ),
    "booltext": silent(lambda node, args: Value(TEXT, lambda env: args[0].make(env).cast("string"))),
    "int4_bool": silent(lambda node, args: Value(BOOL, lambda env: args[0].make(env) != 0)),
    "date_timestamp": lambda node, args: Value(TIMESTAMP, lambda env: date_to_timestamp(args[0].make(env))),
    "timestamp_date": lambda node, args: Value(DATE, lambda env: timestamp_to_date(args[0].make(env))),
    "timestamp_scale": _moment_precision(TIMESTAMP),
    "timestamptz_scale": _moment_precision(TIMESTAMPTZ),
    "name_text": lambda node, args: args[0],
}
