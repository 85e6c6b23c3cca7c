"""The numeric functions and the date and time family of generated expressions: times, intervals, zones, fields, powers, logarithms."""

from __future__ import annotations

from tests.expression.grammar import Family, Kind

MOMENTS = Family(
    kinds=(
        Kind("instant", (("y", "timestamptz"), ("z", "timestamptz")), "timestamptz"),
        Kind("clock", (("h", "time"),), "time"),
        Kind("zoned", (("w", "timetz"),), "timetz"),
        Kind("span", (("u", "interval"),), "interval"),
    ),
    values={
        "timestamptz": ("2024-11-03 05:30:00+00", "infinity", "0044-03-15 12:00:00+00 BC"),
        "timestamp": ("infinity", "-infinity", "0044-03-15 12:00:00 BC"),
        "date": ("infinity", "0044-03-15 BC"),
        "time": ("00:00:00", "24:00:00", "23:59:59.999999", "10:20:30.5", "12:00:00"),
        "timetz": ("00:00:00+00", "24:00:00-15:59", "10:20:30.5+02", "09:20:30.5+01", "12:00:00-05:30:15"),
        "interval": (
            "00:00:00", "1 mon", "30 days", "-1 years -2 mons +3 days -04:05:06.7", "1 day", "24:00:00", "-00:00:00.000001",
            "40 days 30:00:00", "2562047788:00:54.775807", "-178956970 years -8 mons",
        ),
    },
    rules={
        "integer": (
            "width_bucket({numeric}, 0, 10, 5)", "width_bucket({float}, {float}, 10, 3)", "gcd({integer}, {integer})", "scale({numeric})",
            "lcm({integer}, {integer})", "({integer} << {small})", "({integer} >> {small})", "({integer} # {integer})", "(~ {integer})",
            "min_scale({numeric})",
        ),
        "numeric": (
            "sqrt({numeric})", "exp({numeric})", "ln({numeric})", "log({numeric})", "log({numeric}, {numeric})", "power({numeric}, {numeric})",
            "({numeric} ^ {tiny})", "gcd({numeric}, {numeric})", "trim_scale({numeric})", "factorial({small})",
            "extract({part} from {day})", "extract({part} from {moment})", "extract({part} from {instant})", "extract({part} from {clock})",
            "extract({part} from {zoned})", "extract({part} from {span})",
        ),
        "float": (
            "date_part('{part}', {moment})", "date_part('{part}', {span})", "date_part('{part}', {clock})", "power({float}, {float})",
            "exp({float})", "ln({float})", "log({float})", "cbrt({float})", "sin({float})", "atan2({float}, {float})", "tand({float})",
            "degrees({float})", "radians({float})", "({float} ^ {integer})", "acosh({float})", "cosd({integer})", "({numeric})::float4",
        ),
        "boolean": (
            "({clock} {op} {clock})", "({zoned} {op} {zoned})", "({span} {op} {span})", "({instant} {op} {moment})", "({instant} {op} {day})",
            "({span} BETWEEN {span} AND {span})", "({span} IN ('1 mon', {span}))", "({clock} IS DISTINCT FROM {clock})",
            "(({moment}, {moment}) OVERLAPS ({moment}, {span}))", "(({clock}, {clock}) OVERLAPS ({clock}, {span}))", "isfinite({moment})",
            "({day} < 'infinity')",
        ),
        "string": (
            "({span})::text", "({clock})::text", "({zoned})::text", "({instant})::text", "to_char({moment}, 'YYYY-MM-DD HH24:MI:SS.US')",
            "to_char({span}, 'YYYY MM DD HH24:MI')",
        ),
        "moment": (
            "({moment} + {span})", "({moment} - {span})", "({day} - {span})", "({day} + {clock})", "date_trunc('{part}', {moment})",
            "({instant} AT TIME ZONE '{zone}')", "date_bin({span}, {moment}, {moment})", "make_timestamp(2024, {small}, 3, 4, 5, {float})",
            "({instant})::timestamp", "({moment} + interval '1 month')", "({day} - interval '1 day 01:00')",
        ),
        "instant": (
            "({moment} AT TIME ZONE '{zone}')", "({instant} + {span})", "({instant} - {span})", "({day})::timestamptz",
            "({moment})::timestamptz", "date_trunc('{part}', {instant}, '{zone}')", "({day} + {zoned})", "greatest({instant}, {instant})",
            "({moment} AT TIME ZONE {span})",
        ),
        "clock": (
            "({clock} + {span})", "({clock} - {span})", "({moment})::time", "({zoned})::time", "({span})::time", "({clock})::time(1)",
            "make_time({small}, 2, {float})", "coalesce({clock}, {clock})", "({instant})::time",
        ),
        "zoned": (
            "({zoned} + {span})", "({zoned} AT TIME ZONE interval '-03:30')", "({instant})::timetz", "({zoned})::timetz(0)",
            "least({zoned}, {zoned})",
        ),
        "span": (
            "({span} + {span})", "({span} - {span})", "(- {span})", "({span} * {float})", "({span} / {float})", "({moment} - {moment})",
            "({clock} - {clock})", "({instant} - {instant})", "age({moment}, {moment})", "justify_hours({span})", "justify_days({span})",
            "justify_interval({span})", "make_interval({small}, {small}, 0, {integer}, {small}, 0, {float})",
            "date_trunc('{part}', {span})", "({span})::interval day to minute", "({clock})::interval", "greatest({span}, {span})",
            "CASE WHEN {boolean} THEN {span} END", "({span})::interval(2)", "nullif({span}, {span})",
        ),
    },
    choices={
        "part": (
            "century", "day", "decade", "dow", "doy", "epoch", "hour", "isodow", "isoyear", "julian", "microseconds", "millennium",
            "milliseconds", "minute", "month", "quarter", "second", "timezone", "week", "year",
        ),
        "zone": ("UTC", "Europe/Rome", "America/New_York", "PST", "UTC+3", "Asia/Kathmandu"),
        "tiny": ("2", "3", "(-1)", "0.5", "1.5"),
    },
)  # fmt: skip
