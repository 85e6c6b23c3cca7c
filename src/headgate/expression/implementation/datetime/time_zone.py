"""timestamptz and time zones: AT TIME ZONE, casts between local times and instants, arithmetic and truncation in a zone.

A zone with one offset is plain arithmetic. For any other zone, an Arrow function looks the offsets up in the tz database
(`headgate.types.datetime.time_zone`), so that gaps and overlaps are PostgreSQL's. Functions that are STABLE in PostgreSQL use the zone of
`session_time`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from headgate.errors import PostgresError
from headgate.expression.duckdb.datetime import date_trunc, epoch, in_range, moved_in_zone
from headgate.expression.functions.datetime import time_of_day, timestamp
from headgate.expression.implementation.datetime.extract import NAMES, big, extracted, field_of, micros_of, whole, with_infinity
from headgate.expression.implementation.datetime.infinity import infinite_timestamp, timestamp_to_date, too_late
from headgate.expression.implementation.datetime.timestamp import (
    CALENDAR_UNITS,
    comparison,
    midnight,
    out_of_days,
    overlaps_spans,
    shifted,
    span_of,
    truncated,
    usual_span,
)
from headgate.expression.implementation.implementation import Implementation, SparkForm, Table
from headgate.expression.node import Expression
from headgate.expression.spark.common_subexpression import bound
from headgate.expression.spark.comparison import TESTS
from headgate.expression.spark.literal import to_timestamp
from headgate.expression.spark.session_time import local_now, now, session_zone
from headgate.expression.spark.units import truncation_unit
from headgate.expression.spark.value import (
    BOOL,
    DATE,
    FLOAT8,
    SPARK,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Env,
    Make,
    Rep,
    Value,
    arrow_function,
    decimal,
    raising,
    refuse,
)
from headgate.expression.spark.vectorised import call, scalar
from headgate.types.datetime import time_zone
from headgate.types.datetime.calendar import DAY, INFINITE_MICROS


def _offset_by(zone: time_zone.Zone, micros: Column, *, of_local: bool, env: Env) -> Column:
    """Return the zone's offset in microseconds at instants, or at local times."""
    if len(zone.offsets) == 1:
        return big(int(zone.offsets[0]) * 1_000_000)

    def zone_offset(values: pa.Array) -> pa.Array:
        seconds = np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64) // 1_000_000
        return pa.array((zone.of_local(seconds) if of_local else zone.at(seconds)) * 1_000_000, pa.int64())

    return arrow_function(zone_offset, LongType())(env.needed(micros))


def local_of(instant: Make, zone: time_zone.Zone) -> Make:
    """Convert a timestamptz to the local timestamp."""

    def make(env: Env) -> Column:
        micros = micros_of(instant(env))
        offset = _offset_by(zone, micros, of_local=False, env=env)
        return bound((micros, offset), lambda at, east: to_timestamp(_check_moved(at, F.try_add(at, east))))

    return make


def instant_of(local: Make, zone: time_zone.Zone) -> Make:
    """Convert a local timestamp to the timestamptz."""

    def make(env: Env) -> Column:
        micros = micros_of(local(env))
        offset = _offset_by(zone, micros, of_local=True, env=env)
        return bound((micros, offset), lambda at, east: F.timestamp_micros(_check_moved(at, F.try_subtract(at, east))))

    return make


def _check_moved(micros: Column, moved: Column) -> Column:
    """Return a moved timestamp. It raises 22008 before PostgreSQL's range and 0A000 after the last storable one. Infinity stays."""
    error = F.when(micros < 0, out_of_days().cast("bigint")).otherwise(too_late().cast("bigint"))
    stored = (moved >= big(timestamp.FIRST_DAY * DAY)) & (moved < big(INFINITE_MICROS))
    return F.when(F.abs(micros) == big(INFINITE_MICROS), micros).when(stored, moved).otherwise(F.when(F.isnotnull(micros), error))


def _zone_of(value: Value) -> time_zone.Zone | PostgresError:
    """Return the zone that a constant names, or PostgreSQL's error if there is none. Raise 0A000 for one that a node does not support."""
    assert value.constant is not None
    try:
        return timestamp.named_zone(value.constant)
    except PostgresError as error:
        if error.sqlstate == "0A000":
            raise
        return error


def _failing(error: PostgresError, rep: Rep, operand: Make) -> Value:
    """Return a value that raises the error unless the operand, a timestamp of either kind, is NULL or infinite."""
    kind = SPARK[rep.name]

    def make(env: Env) -> Column:
        moment = operand(env)
        return F.when(~infinite_timestamp(moment), raising(error.sqlstate, error.message).cast(kind)).otherwise(moment.cast(kind))

    return Value(rep, make)


def _at_zone(rep: Rep, convert: Callable[[Make, time_zone.Zone], Make]) -> SparkForm:
    """Return the form of timezone(zone, timestamp) and timezone(zone, timestamptz)."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        if args[0].constant is None:
            return call(timestamp.local_at if rep == TIMESTAMP else timestamp.instant_at, rep, args)
        zone = _zone_of(args[0])
        if isinstance(zone, PostgresError):
            return _failing(zone, rep, args[1].make)
        return Value(rep, convert(args[1].make, zone))

    return builder


def _at_offset(rep: Rep, sign: int) -> SparkForm:
    """Return the form of timezone(interval, timestamp) and timezone(interval, timestamptz)."""
    return lambda node, args: call(timestamp.moved_by_offset, rep, args, prefix=(sign,))


def _local(args: Sequence[Value], place: int, construct: str) -> Make:
    return local_of(args[place].make, session_zone(construct))


def _to_timestamp(node: Expression, args: Sequence[Value]) -> Value:
    return Value(TIMESTAMP, _local(args, 0, "a cast from timestamp with time zone to timestamp"))


def _to_date(node: Expression, args: Sequence[Value]) -> Value:
    local = _local(args, 0, "a cast from timestamp with time zone to date")
    return Value(DATE, lambda env: timestamp_to_date(local(env)))


def _to_time(node: Expression, args: Sequence[Value]) -> Value:
    construct = "a cast from timestamp with time zone to time"
    return call(time_of_day.local_of, TEXT, args, prefix=(session_zone(construct).name,))


def _to_timetz(node: Expression, args: Sequence[Value]) -> Value:
    construct = "a cast from timestamp with time zone to time with time zone"
    return call(time_of_day.zoned_of, TEXT, args, prefix=(session_zone(construct).name,))


def _time_with_zone(node: Expression, args: Sequence[Value]) -> Value:
    """Cast time to timetz, with the offset of the session's zone today."""
    construct = "a cast from time to time with time zone"
    return call(time_of_day.with_zone, TEXT, args, prefix=(session_zone(construct).name, local_now(construct) // DAY * DAY))


def _of_timestamp(node: Expression, args: Sequence[Value]) -> Value:
    return Value(TIMESTAMPTZ, _instant(args[0], "a cast to timestamp with time zone"))


def _instant(value: Value, construct: str) -> Make:
    """Convert a date, timestamp or timestamptz to an instant, by the session's zone."""
    if value.rep == TIMESTAMPTZ:
        return value.make
    return instant_of(midnight(value) if value.rep == DATE else value.make, session_zone(construct))


def _of_date_and_time(node: Expression, args: Sequence[Value]) -> Value:
    zone_name = session_zone("a cast to timestamp with time zone").name
    return call(time_of_day.on_date_in_zone, TIMESTAMPTZ, args, prefix=(zone_name,))


def _comparison(name: str) -> SparkForm:
    """Return the form of a comparison of a timestamptz with a date or timestamp."""
    test = TESTS[name]

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        left, right = (_instant(arg, "comparison with timestamp with time zone") for arg in args)
        return Value(BOOL, lambda env: test(left(env), right(env)))

    return builder


def _order(node: Expression, args: Sequence[Value]) -> Value:
    return comparison(*(_instant(arg, "comparison with timestamp with time zone") for arg in args))


def _plus(sign: int, *, flipped: bool = False) -> SparkForm:
    """Return the form of timestamptz ± interval: months and days by the local calendar, the rest by elapsed time."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        source, span = (args[1], args[0]) if flipped else (args[0], args[1])
        zone = session_zone("timestamp with time zone ± interval")
        constant = span_of(span, sign)
        if constant is None or not usual_span(constant) or (len(zone.offsets) > 1 and (constant.months or constant.days)):
            return call(timestamp.moved_in_zone, TIMESTAMPTZ, (source, span), prefix=(sign, zone.name))
        east = int(zone.offsets[0]) if len(zone.offsets) == 1 else 0
        local = local_of(source.make, time_zone.fixed(east, zone.name))
        instant = instant_of(lambda env: shifted(local(env), constant), time_zone.fixed(east, zone.name))
        return Value(TIMESTAMPTZ, instant)

    return builder


def _extract(*, numeric: bool) -> SparkForm:
    """Return the form of a field of a timestamptz, which is that of its local time, except for epoch and the zone's own fields."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        unit = field_of(args, numeric=numeric)
        if unit.name == "epoch":
            return with_infinity(unit, args[1], extracted(unit, Value(TIMESTAMP, args[1].make), numeric=numeric))
        local = _local(args, 1, f"extraction of {unit.written} from timestamp with time zone")
        if unit.name.startswith("timezone"):
            return with_infinity(unit, args[1], _zone_field(unit.name, local, args[1].make, numeric=numeric))
        return with_infinity(unit, args[1], extracted(unit, Value(TIMESTAMP, local), numeric=numeric, shown=NAMES["timestamptz"]))

    return builder


def _zone_field(name: str, local: Make, instant: Make, *, numeric: bool) -> Value:
    def make(env: Env) -> Column:
        east = whole(micros_of(local(env)) - micros_of(instant(env)), 1_000_000)
        if name == "timezone_hour":
            east = whole(east, 3600)
        elif name == "timezone_minute":
            east = whole(east, 60) % big(60)
        return east.cast("decimal(10,0)" if numeric else "double")

    return Value(decimal(10, 0) if numeric else FLOAT8, make)


def _truncate_in(args: Sequence[Value], zone: time_zone.Zone) -> Value:
    """Compile date_trunc of a timestamptz in a zone. Units below a day keep the offset. From a day on, the offset is recomputed."""
    unit = truncation_unit(args[0])
    local = local_of(args[1].make, zone)

    def cut(env: Env) -> Column:
        return truncated(unit, local(env), NAMES["timestamptz"])

    if unit.name in CALENDAR_UNITS:
        return Value(TIMESTAMPTZ, instant_of(cut, zone))

    def make(env: Env) -> Column:
        moment = args[1].make(env)
        truncated_instant = F.timestamp_micros(micros_of(moment) - (micros_of(local(env)) - micros_of(cut(env))))
        return F.when(infinite_timestamp(moment), moment).otherwise(truncated_instant)

    return Value(TIMESTAMPTZ, make)


def _truncate(node: Expression, args: Sequence[Value]) -> Value:
    return _truncate_in(args, session_zone("date_trunc of timestamp with time zone"))


def _truncate_at(node: Expression, args: Sequence[Value]) -> Value:
    if args[2].constant is None:
        raise refuse("date_trunc", "the time zone must be a constant")
    zone = _zone_of(args[2])
    if isinstance(zone, PostgresError):
        return _failing(zone, TIMESTAMPTZ, args[1].make)
    return _truncate_in(args, zone)


def _make_timestamptz(node: Expression, args: Sequence[Value]) -> Value:
    return call(timestamp.made_in_zone, TIMESTAMPTZ, args, prefix=(session_zone("make_timestamptz").name,))


def _age(node: Expression, args: Sequence[Value]) -> Value:
    return call(timestamp.age_in_zone, TEXT, args, prefix=(session_zone("age").name,))


def _age_today(node: Expression, args: Sequence[Value]) -> Value:
    midnight = local_now("age") // DAY * DAY
    today = Value(TIMESTAMPTZ, instant_of(lambda env: to_timestamp(big(midnight)), session_zone("age")))
    return _age(node, (today, args[0]))


def _comparisons() -> Table:
    table: Table = {}
    for name in TESTS:
        for kind in ("date", "timestamp"):
            table[f"{kind}_{name}_timestamptz"] = _comparison(name)
            table[f"timestamptz_{name}_{kind}"] = _comparison(name)
    for kind in ("date", "timestamp"):
        table[f"{kind}_cmp_timestamptz"] = table[f"timestamptz_cmp_{kind}"] = _order
    return table


IMPLEMENTATIONS: Table = {
    **_comparisons(),
    "timestamptz_zone": _at_zone(TIMESTAMP, local_of),
    "timestamp_zone": _at_zone(TIMESTAMPTZ, instant_of),
    "timestamptz_izone": _at_offset(TIMESTAMP, 1),
    "timestamp_izone": _at_offset(TIMESTAMPTZ, -1),
    "timetz_zone": lambda node, args: call(time_of_day.at_zone, TEXT, args, prefix=(now(),)),
    "timestamptz_timestamp": _to_timestamp,
    "timestamptz_date": _to_date,
    "timestamptz_time": _to_time,
    "timestamptz_timetz": _to_timetz,
    "time_timetz": _time_with_zone,
    "timestamp_timestamptz": _of_timestamp,
    "date_timestamptz": _of_timestamp,
    "timestamptz/1082,1083": _of_date_and_time,
    "timestamptz_pl_interval": Implementation(_plus(1), duckdb=moved_in_zone(in_range("{0} + {1}"))),
    "timestamptz_mi_interval": Implementation(_plus(-1), duckdb=moved_in_zone(in_range("{0} - {1}"), back=True)),
    "interval_pl_timestamptz/1186,1184": Implementation(_plus(1, flipped=True), duckdb=moved_in_zone(in_range("{1} + {0}"))),
    "extract_timestamptz": Implementation(_extract(numeric=True), duckdb=epoch),
    "timestamptz_part": Implementation(_extract(numeric=False), duckdb=epoch),
    "timestamptz_trunc": Implementation(_truncate, duckdb=date_trunc),
    "timestamptz_trunc_zone": _truncate_at,
    "make_timestamptz": _make_timestamptz,
    "make_timestamptz_at_timezone": scalar(timestamp.made_at_zone, TIMESTAMPTZ),
    "timestamptz_age": _age,
    "age/1184": _age_today,
    "float8_timestamptz": scalar(timestamp.of_epoch, TIMESTAMPTZ),
    **overlaps_spans(_plus(1), 1184),
}
