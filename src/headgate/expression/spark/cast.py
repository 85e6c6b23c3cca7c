"""Casts in Spark: of dates and strings, by length and precision, through the text form, and to the stored form of a result.

Casts through text use the types' own readers and printers (`headgate.types.text.text`) inside Arrow functions, so that they accept,
refuse and print exactly what PostgreSQL does. Casts between numbers are in `number_cast`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from headgate.errors import PostgresError
from headgate.expression.functions import numeric
from headgate.expression.implementation import enum_type
from headgate.expression.implementation.datetime.infinity import date_to_timestamp, infinite_timestamp, timestamp_to_date
from headgate.expression.implementation.implementation import (
    Implementation,
    NotColumnwise,
    Operand,
    Raises,
    SparkForm,
    Table,
    native,
    silent,
)
from headgate.expression.implementation.number.numeric import exactly, rounded, spark_decimal
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
    of_columns,
    raising,
    refuse,
    rep_of,
    settle,
)
from headgate.types import buffers, registry, storage, typmod
from headgate.types.text import text
from headgate.types.text_column import TextSettings


def stored(value: Value, kind: TypeRef) -> Value:
    """Return the value in the storage form of its type: numeric(p,s) as that decimal, other numeric as text."""
    target = rep_of(kind.oid, kind.typmod)
    if value.rep == target:
        return value
    if value.rep.name == "decimal" and target == DIGITS:
        return Value(DIGITS, as_text(value))
    if target.name == "decimal":
        if value.rep.name == "decimal" and value.rep.scale <= target.scale and value.rep.whole <= target.whole:
            return of_columns(target, lambda column: column.cast(spark_decimal(target)), value)
        return Value(target, _to_stored_decimal(settle(exactly_modified(value, target.precision, target.scale)), target))
    return value


def _to_stored_decimal(shown: Make, target: Rep) -> Make:
    """Cast digits to a decimal, which cannot represent NaN."""

    def make(env: Env) -> Column:
        digits = shown(env)
        nan_error = raising("0A000", f"cannot store NaN in a column of type numeric({target.precision},{target.scale})")
        return F.when(digits == "NaN", nan_error).otherwise(digits).cast(spark_decimal(target))

    return make


_UNSIGNED = frozenset({registry.OID, registry.XID, registry.CID})


def _same_bits(value: Value, target: Rep) -> Value:
    """Cast between integer and oid. oids above 2147483647 correspond to negative integers."""
    limit = 1 << 32

    def build(column: Column) -> Column:
        number = column.cast("bigint")
        if target == INT4:
            return F.when(number >= limit // 2, number - limit).otherwise(number).cast("int")
        return F.when(number < 0, number + limit).otherwise(number)

    return of_columns(target, build, value)


def _small_to_integer(node: Expression, args: Sequence[Value]) -> Value:
    """Cast int2 to int4. The same function casts to oid and similar types, where a negative number becomes one above 2147483647."""
    wide = of_columns(INT4, lambda column: column.cast("int"), *args)
    return _same_bits(wide, INT8) if node.type.oid in _UNSIGNED else wide


def _network_to_address(value: Value) -> Value:
    """Cast cidr to inet, whose text omits a mask that is as long as the address."""
    if value.constant is not None:
        address = text.normal_form(value.constant, registry.INET)
        return Value(TEXT, lambda env: F.lit(address), constant=address)

    def build(network: Column) -> Column:
        whole = network.endswith("/128") | (network.endswith("/32") & ~network.contains(":"))
        return F.when(whole, F.substring_index(network, "/", 1)).otherwise(network)

    return of_columns(TEXT, build, value)


def relabel(value: Value, node: Relabel) -> Value:
    """Compile a cast that keeps PostgreSQL's representation. Raise 0A000 if the storage forms differ."""
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


def _to_precision(node: Expression, args: Sequence[Value]) -> Value:
    parts = typmod.numeric_parts(_modifier(node))
    if parts is None:
        return args[0]
    precision, scale = parts
    value = args[0]
    if typmod.decimal_parts(_modifier(node)) is None:
        return exactly_modified(value, precision, scale)
    if value.rep.name != "decimal":
        return exactly_modified(value, precision, scale)  # as text, because it may be NaN
    target = decimal(precision, scale)
    return of_columns(target, lambda column: column.cast(spark_decimal(target)), value)


def _to_precision_in_arrow(value: Operand, modifier: pa.Scalar) -> Operand:
    parts = typmod.decimal_parts(modifier.as_py())
    if parts is None:
        raise NotColumnwise("numeric that is stored as text")
    precision, scale = parts
    return rounded(value, scale).cast(pa.decimal128(precision, scale))


def exactly_modified(value: Value, precision: int, scale: int) -> Value:
    """Return the numeric rounded to numeric(precision, scale), as text."""

    def to_modifier(shown: str) -> str:
        return numeric.to_modifier(shown, precision, scale)

    return exactly(to_modifier, [value])


def _to_varchar(node: Expression, args: Sequence[Value]) -> Value:
    size = typmod.length(registry.VARCHAR, _modifier(node))
    return args[0] if size is None else _of_length(node, args[0], size, "character varying", lambda text: text)


def _to_varchar_in_arrow(value: Operand, modifier: pa.Scalar, _: pa.Scalar) -> Operand:
    size = typmod.length(registry.VARCHAR, modifier.as_py())
    if size is not None and (pc.max(pc.utf8_length(value)).as_py() or 0) > size:
        raise NotColumnwise("a text that is cut or rejected")
    return value


def _to_char(node: Expression, args: Sequence[Value]) -> Value:
    size = typmod.length(registry.BPCHAR, _modifier(node))
    return args[0] if size is None else _of_length(node, args[0], size, "character", lambda text: F.rpad(text, size, " "))


def _of_length(node: Expression, value: Value, size: int, name: str, finish: Callable[[Column], Column]) -> Value:
    """Return a text that is cut to a length. An implicit cast cuts only blanks."""
    assert isinstance(node, FuncExpr)
    explicit = node.args[2]

    def build(string: Column) -> Column:
        cut = finish(F.substring(string, 1, size))
        if isinstance(explicit, Const) and explicit.value == "t":
            return cut
        error = raising("22001", f"value too long for type {name}({size})")
        return F.when((F.length(string) > size) & (F.rtrim(F.substring(string, size + 1, 2**31 - 1)) != ""), error).otherwise(cut)

    return of_columns(TEXT, build, value)


def _moment_precision(rep: Rep) -> SparkForm:
    """Return the form of timestamp(n), which rounds to n digits of seconds. PostgreSQL counts from 2000, halves away from zero."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        digits = _modifier(node)
        if not 0 <= digits < 6:
            return args[0]
        unit = 10 ** (6 - digits)
        base = 946_684_800_000_000

        def build(source: Column) -> Column:
            endless = infinite_timestamp(source)
            micros = F.when(~endless, micros_of(source) - F.lit(base))
            half = F.lit(unit // 2)
            whole = F.when(micros >= 0, F.call_function("div", micros + half, F.lit(unit))).otherwise(
                -F.call_function("div", half - micros, F.lit(unit))
            )
            rounded = whole * F.lit(unit) + F.lit(base)
            return F.when(endless, source).otherwise(F.timestamp_micros(rounded) if rep == TIMESTAMPTZ else to_timestamp(rounded))

        return of_columns(rep, build, args[0])

    return builder


def micros_of(column: Column) -> Column:
    """Return microseconds since 1970 of a timestamp (read as UTC) or timestamptz."""
    return F.unix_micros(column.cast("timestamp"))


def via_text(value: Value, source: TypeRef, target: TypeRef) -> Value:
    """Cast through text (CoerceViaIO): print as the source type, read as the target type."""
    plain_text = printed(value, source)
    kind = registry.known().find(target.oid)
    if target.oid in (registry.TEXT, registry.VARCHAR, registry.BPCHAR):
        return plain_text
    if kind is None:
        raise refuse(f"a cast to {registry.format_type(target.oid)}")
    if kind.kind is registry.TypeKind.ENUM:
        return enum_type.read(plain_text, kind)
    return read_from(plain_text, target.oid)


def printed(value: Value, source: TypeRef) -> Value:
    return text_form(value, source, session_time.forms())


def text_form(value: Value, source: TypeRef, forms: TextSettings) -> Value:
    oid = source.oid
    if value.constant is not None and text.depends_on(oid, forms):
        constant_array = text.read_text(pa.array([value.constant], pa.string()), oid, source.typmod)
        constant_text = text.write_text(constant_array, oid, session=forms)[0].as_py()
        return Value(TEXT, lambda env: F.lit(constant_text), constant=constant_text)
    if value.rep.name in ("int2", "int4", "int8"):
        return of_columns(TEXT, lambda column: column.cast("string"), value)
    if value.rep.name in ("decimal", "digits"):
        digits = as_text(value)
        return Value(TEXT, settle(Value(DIGITS, digits, value.fallible)))
    if oid == registry.BPCHAR:
        return Value(TEXT, value.make, constant=value.constant)
    if value.rep == TEXT and not text.depends_on(oid, forms):
        return value
    if value.rep == BOOL:
        return of_columns(TEXT, lambda column: F.when(column, F.lit("t")).when(~column, F.lit("f")), value)
    types = registry.known()
    stored_type = storage.arrow_type(oid, source.typmod)  # computed here, because workers do not have the user-defined types

    def make(env: Env) -> Column:
        def shown(values: pa.Array) -> pa.Array:
            stored_values = values if values.type == stored_type else values.cast(stored_type)
            return text.write_text(stored_values, oid, session=forms, registry=types)

        return arrow_function(shown, StringType())(env.needed(value.make(env), calm=value.calm and value.raw is None))

    return Value(TEXT, make)


def read_from(value: Value, oid: int) -> Value:
    """Return the value that the type's input function reads from a text. An invalid text fails only if the value is needed."""
    rep = rep_of(oid)
    types = registry.known()
    forms = session_time.forms()

    def make(env: Env) -> Column:
        def input_form(texts: pa.Array) -> pa.Array:
            try:
                return _plain(text.read_text(texts, oid, -1, session=forms, registry=types), rep)
            except PostgresError:
                return pa.array([_read_one(item, oid, rep, types, forms) for item in texts.to_pylist()], pa.string())

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
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    return pc.cast(values, pa.string())


def _read_one(shown: str | None, oid: int, rep: Rep, types: registry.TypeRegistry, forms: TextSettings) -> str | None:
    if shown is None:
        return None
    try:
        read = text.read_text(pa.array([shown], pa.string()), oid, -1, session=forms, registry=types)
        plain_value: str | None = _plain(read, rep)[0].as_py()
        return plain_value
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
    "numeric": Implementation(_to_precision, arrow=_to_precision_in_arrow),
    "varchar": Implementation(_to_varchar, arrow=_to_varchar_in_arrow),
    "bpchar": _to_char,
    "rtrim1": Implementation(native(TEXT, F.rtrim), Raises.NEVER, null_first=True, duckdb="rtrim({0}, ' ')"),
    "booltext": silent(native(TEXT, lambda column: column.cast("string"))),
    "int4_bool": silent(native(BOOL, lambda column: column != 0)),
    "date_timestamp": native(TIMESTAMP, date_to_timestamp),
    "timestamp_date": native(DATE, timestamp_to_date),
    "timestamp_scale": _moment_precision(TIMESTAMP),
    "timestamptz_scale": _moment_precision(TIMESTAMPTZ),
    "name_text": lambda node, args: args[0],
}
