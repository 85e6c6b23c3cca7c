"""Edge values of every type, for generated expressions: decimals with 38 digits, the first and the last value, infinity, constant arrays of
them.

It adds values and rules to the kinds of the other families, and decimals that use all 38 digits of a column.
"""

from __future__ import annotations

from tests.expression.grammar import Family, Kind

NINES = "9" * 38
UNEVEN = "12345678901234567890123456789012345678"
EDGES = Family(
    kinds=(
        Kind("wide", (("n0", "numeric(38,0)"), ("n10", "numeric(38,10)"), ("n38", "numeric(38,38)")), "numeric(38,0)"),
        Kind("rounded", (("nk", "numeric(4,-3)"), ("ns", "numeric(2,4)"), ("nb", "numeric(60,5)")), "numeric(60,5)"),
        Kind("moments", (("am", "timestamp[]"),), "timestamp[]"),
        Kind("instants", (("ay", "timestamptz[]"),), "timestamptz[]"),
        Kind("longs", (("al", "int8[]"),), "int8[]"),
        Kind("flags", (("ab", "bool[]"),), "bool[]"),
    ),
    values={
        "numeric(38,0)": ("0", "1", "-1", NINES, f"-{NINES}", UNEVEN, f"-{UNEVEN}", "7"),
        "numeric(38,10)": ("0", "1.5", f"{NINES[:28]}.{NINES[:10]}", f"-{NINES[:28]}.{NINES[:10]}", f"-{UNEVEN[:28]}.{UNEVEN[28:]}", "-0.0000000001"),
        "numeric(38,38)": ("0", f"0.{NINES}", f"-0.{NINES}", f"-0.{UNEVEN}", "1e-38", "-1e-38", "0.5"),
        "numeric(4,-3)": ("0", "1000", "-9999000", "9999000", "1499", "NaN"),
        "numeric(2,4)": ("0", "0.0099", "-0.0099", "0.0001", "NaN"),
        "numeric(60,5)": ("0", f"{NINES}{NINES[:17]}.{NINES[:5]}", f"-{NINES}{NINES[:17]}.{NINES[:5]}", f"{UNEVEN}.5", "NaN", "1"),
        "numeric": ("-Infinity", "9" * 4400, "1e1000", "-1e-1000", "9223372036854775807.5", "-9223372036854775808.5", "32767.5", "0.5", "-0.5", f"-{UNEVEN}"),
        "numeric(10,2)": ("-99999999.99", "0.50", "-0.50"),
        "float8": ("1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "9223372036854775807", "2147483647.5", "32767.5", "-32768.5", "0.5"),
        "float4": ("-3.4028235e38", "-Infinity", "-1e-45", "16777216", "0.5"),
        "date": ("-infinity", "4714-11-24 BC", "5874897-12-31", "294276-12-31", "294246-12-31", "0001-12-31 BC"),
        "timestamp": ("4714-11-24 00:00:00 BC", "294246-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999", "0001-12-31 23:59:59.999999 BC"),
        "timestamptz": ("-infinity", "4714-11-24 00:00:00+00 BC", "294246-12-31 23:59:59.999999+00", "9999-12-31 23:59:59.999999+00"),
        "timetz": ("00:00:00+15:59:59", "24:00:00-15:59:59"),
        "interval": (
            "178956970 years 7 mons", "2147483647 days", "-2147483648 days", "-2562047788:00:54.775807", "1 mon -30 days", "-1 day +24:00:00",
        ),
        "text": ("\x01", "\x02", "\x7f", "\U0010ffff", "infinity", "NaN", "2147483648", "-1", "{}", "\\x", "0044-03-15 BC"),
        "int4[]": ("[-2147483647:-2147483646]={1,2}", "[2147483646:2147483646]={7}", "{{{{{{1}}}}}}"),
        "text[]": ("{NULL}", "[-1:0]={a,NULL}", '{"\\\\","\\""}', "{{a,NULL},{NULL,b}}"),
        "numeric[]": (f"{{{NINES},-{NINES}}}", "{-Infinity,NaN,NULL}", "{1e-38}"),
        "float8[]": ("{-Infinity,NaN,NULL,5e-324}", "{-1.7976931348623157e308}"),
        "date[]": ("{infinity,-infinity,NULL}", '{"4714-11-24 BC",5874897-12-31}'),
        "timestamp[]": ("{}", "{infinity,-infinity,NULL}", '{"4714-11-24 00:00:00 BC"}', '{"2024-02-29 23:59:59.999999","1970-01-01"}', "{NULL}"),
        "timestamptz[]": ("{}", "{-infinity,infinity}", '{"294246-12-31 23:59:59.999999+00",NULL}', '{"1970-01-01 00:00:00+00"}'),
        "int8[]": ("{}", "{9223372036854775807,-9223372036854775808}", "{NULL,1}", "{{1,2},{3,NULL}}"),
        "bool[]": ("{}", "{t,f,NULL}", "{NULL}", "{{t},{f}}"),
        "jsonb": ("9" * 50, "9" * 4400, "-1e-1000", "1e-400", '{"a": 1e131071}', "[[[[[[[[1]]]]]]]]", "179769313486231580000000000000000000000", "-9223372036854775809"),
        "inet": ("0.0.0.0", "255.255.255.255/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::", "::/128", "128.0.0.0/1"),
        "cidr": ("255.255.255.255/32", "ffff::/16", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "0.0.0.0/32"),
        "varbit": ("1" * 64, "0" * 65, "1" + "0" * 31),
        "bytea": ("\\xff", "\\x5c", "\\x" + "00" * 40, "\\x80"),
        "oid": ("2147483647",),
        "pg_lsn": ("0/1", "FFFFFFFF/0", "0/FFFFFFFF", "7FFFFFFF/FFFFFFFF", "80000000/0"),
        "uuid": ("7fffffff-ffff-ffff-ffff-ffffffffffff", "80000000-0000-0000-0000-000000000000"),
        "char(4)": ("    ", "a   ", "\x7f"),
        "name": ("a" * 63,),
    },
    rules={
        "wide": (
            "abs({wide})", "(- {wide})", "(+ {wide})", "({wide} + {wide})", "({wide} - {wide})", "({wide} * {wide})", "({wide} / {wide})", "({wide} % {wide})",
            "round({wide}, {small}::int4)", "trunc({wide}, {small}::int4)", "ceil({wide})", "floor({wide})", "round({wide})", "trunc({wide})", "sign({wide})",
            "({numeric})::numeric(38,0)", "({numeric})::numeric(38,10)", "({wide})::numeric(38,38)", "({wide})::numeric(37,0)", "coalesce({wide}, {wide})",
            "greatest({wide}, {wide})", "CASE WHEN {boolean} THEN {wide} ELSE {wide} END", "nullif({wide}, {wide})", "({integer})::numeric(38,0)",
            "mod({wide}, {wide})", "div({wide}, {wide})", "({wide} + 1)", "({wide} * 10)", "({wide} - 0.5)", "({float})::numeric(38,10)",
        ),
        "rounded": (
            "({numeric})::numeric(4,-3)", "({numeric})::numeric(2,4)", "({rounded} + {rounded})", "abs({rounded})", "(- {rounded})", "({rounded} * {wide})",
            "({wide})::numeric(60,5)", "coalesce({rounded}, {rounded})", "({rounded})::numeric(5,-2)", "round({rounded}, -3)",
        ),
        "numeric": (
            "abs({wide})", "sqrt(abs({wide}))", "sqrt({wide})", "({wide} + {integer})", "({wide} / {numeric})", "ln(abs({wide}))", "({wide} ^ {tiny})",
            "trim_scale({wide})", "gcd({wide}, {wide})", "log(abs({wide}))", "({rounded} + {numeric})", "(({wide})::text)::numeric",
        ),
        "integer": ("({wide})::int8", "({wide})::int4", "({rounded})::int4", "scale({wide})", "min_scale({rounded})", "({longs})[{small}]",
                    "array_position({moments}, {moment})", "cardinality({instants})", "width_bucket({wide}, 0, 10, 5)"),
        "float": ("({wide})::float8", "({wide})::float4", "({rounded})::float8", "({rounded})::float4"),
        "string": ("({wide})::text", "({rounded})::text", "({moments})::text", "({longs})::text", "({flags})::text"),
        "moment": ("({moments})[{small}]", "({instant} AT TIME ZONE '{posix}')"),
        "instant": ("({instants})[{small}]", "({moment} AT TIME ZONE '{posix}')"),
        "moments": ("({moments} || {moment})", "array_remove({moments}, {moment})", "ARRAY[{moment}, {moment}]", "({days})::timestamp[]"),
        "longs": ("({longs} || {integer}::int8)", "({ints})::int8[]", "array_remove({longs}, {integer}::int8)"),
        "boolean": (
            "({wide} {op} {wide})", "({wide} {op} {numeric})", "({wide} {op} {integer})", "({wide} {op} {float})", "({wide} {op} {wide_literal})",
            "({rounded} {op} {wide})", "({rounded} {op} {numeric_literal})", "({wide} IS DISTINCT FROM {wide})", "({wide} IN ({wide_literal}, {wide_literal}, 0))",
            "(abs({wide}) > 5)", "(sqrt(abs({wide})) IS NOT NULL)", "({wide} BETWEEN {wide_literal} AND {wide})", "({numeric} {op} {numeric_literal})",
            "({moment} {op} ANY ({moment_list}))", "({moment} {op} ALL ({moment_list}))", "({instant} {op} ANY ({instant_list}))",
            "({instant} {op} ALL ({instant_list}))", "({day} {op} ANY ({day_list}))", "({day} {op} ALL ({day_list}))",
            "({numeric} {op} ANY ({numeric_list}))", "({wide} {op} ALL ({numeric_list}))", "({float}::float8 {op} ANY ({float_list}))",
            "({float}::float8 {op} ALL ({float_list}))", "({integer}::int8 {op} ANY ({long_list}))", "({integer}::int2 {op} ALL ('{{-32768,32767,NULL}}'::int2[]))",
            "({string}::text {op} ANY ({text_list}))", "({boolean} {op} ANY ({flag_list}))", "({bytes} {op} ANY ('{{\"\\\\\\\\x\",\"\\\\\\\\xff\",NULL}}'::bytea[]))",
            "({uuid} {op} ALL ('{{ffffffff-ffff-ffff-ffff-ffffffffffff,00000000-0000-0000-0000-000000000000}}'::uuid[]))", "({clock} {op} ANY ('{{24:00,00:00,NULL}}'::time[]))",
            "({span} {op} ANY ('{{-178956970 years -8 mons,2147483647 days,00:00}}'::interval[]))", "({oid} {op} ANY ('{{0,4294967295}}'::oid[]))",
            "({inet} {op} ANY ('{{0.0.0.0/0,::/0,NULL}}'::inet[]))", "({moments} {op} {moments})", "({moment} = ANY ({moments}))", "({instant} = ANY ({instants}))",
            "({longs} {op} {longs})", "({flags} {op} {flags})", "({longs} && {longs})", "({boolean} = ANY ({flags}))", "({moments} @> {moments})",
            "({ints} = ANY (ARRAY[{ints}, '{{1}}']))", "(c {op} ANY ('{{\"a   \",ab,\"\",NULL}}'::char(4)[]))", "({integer}::int4 {op} {int_literal})",
            "({moment} {op} '{moment_edge}'::timestamp)", "({day} {op} '{moment_edge}'::date)", "({instant} {op} '{instant_edge}'::timestamptz)",
            "({moment} IN ('infinity', '-infinity', {moment}))", "({moment} BETWEEN '-infinity' AND 'infinity')", "isfinite({day})", "isfinite({instant})",
            "({span} {op} '{span_edge}'::interval)", "({float} {op} '{float_edge}'::float8)", "({lsn} {op} 'FFFFFFFF/FFFFFFFF')",
        ),
    },
    choices={
        "posix": (
            "+05:30", "-05:30", "UTC+3", "<+0530>-05:30", "-08", "EST5EDT", "PST8PDT,M3.2.0,M11.1.0", "ABC3DEF", "A3", "8", "UTC-3:30:15", "nowhere",
            "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1", "PST8PDT,J69/26,J300", "PST8PDT,70,300", "+167", "+168", "posix/Europe/Rome", "",
        ),
        "wide_literal": (NINES, f"(-{NINES})", UNEVEN, f"(-{UNEVEN[:28]}.{UNEVEN[28:]})", f"0.{NINES}", "1e-38", f"{NINES}9", "0.0", "'NaN'"),
        "numeric_literal": ("'NaN'", "'Infinity'", "'-Infinity'::numeric", "0.00", "1e-20", "1e40", "(-0.5)", "32767.5"),
        "int_literal": ("(-2147483648)", "2147483647", "2147483648", "(-9223372036854775808)", "32767::int2", "0"),
        "moment_edge": ("infinity", "-infinity", "4714-11-24 BC", "294246-12-31", "0001-01-01", "9999-12-31"),
        "instant_edge": ("infinity", "-infinity", "4714-11-24 00:00:00+00 BC", "294246-12-31 23:59:59+00"),
        "span_edge": ("-178956970 years -8 mons", "178956970 years 7 mons", "2147483647 days", "-2562047788:00:54.775807", "0"),
        "float_edge": ("NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308"),
        "moment_list": (
            "ARRAY[timestamp '-infinity', '2024-02-29 23:59:59.999999', '1970-01-01']", "'{infinity,-infinity,NULL}'::timestamp[]", "'{}'::timestamp[]",
            "ARRAY[timestamp 'infinity']", "'{{infinity,1970-01-01},{-infinity,NULL}}'::timestamp[]", "NULL::timestamp[]", "ARRAY[NULL::timestamp, 'infinity']",
            "'[-5:-4]={-infinity,2024-01-01}'::timestamp[]",
        ),
        "instant_list": (
            "'{infinity,-infinity}'::timestamptz[]", "'{\"4714-11-24 00:00:00+00 BC\",NULL}'::timestamptz[]", "'{}'::timestamptz[]",
            "'{\"1970-01-01 00:00:00+00\",\"294246-12-31 23:59:59.999999+00\",infinity}'::timestamptz[]",
        ),
        "day_list": (
            "ARRAY[date 'infinity', '-infinity']", "'{\"4714-11-24 BC\",5874897-12-31,NULL}'::date[]", "'{}'::date[]", "ARRAY[date '1970-01-01', NULL, '2024-02-29']",
            "'{{infinity},{9999-12-31}}'::date[]",
        ),
        "numeric_list": (
            f"'{{{NINES},-{NINES},NULL}}'::numeric[]", "'{NaN,Infinity,-Infinity}'::numeric[]", "'{}'::numeric[]", "ARRAY[1.1, 1.10, 0.000]",
            f"ARRAY[{UNEVEN}, 1e-38]", "ARRAY['NaN'::numeric, 1]", "'{{1,2},{3,4}}'::numeric[]",
        ),
        "float_list": ("'{NaN,Infinity,-Infinity}'::float8[]", "'{0,-0,NULL}'::float8[]", "'{}'::float8[]", "ARRAY[1.5, 'NaN'::float8]", "'{5e-324,1.7976931348623157e308}'::float8[]"),
        "long_list": ("'{9223372036854775807,-9223372036854775808}'::int8[]", "'{NULL,1}'::int8[]", "'{}'::int8[]", "'{{1,2},{3,NULL}}'::int8[]", "ARRAY[-9223372036854775808, 0]"),
        "text_list": ("'{\"\",NULL,a}'::text[]", "'{}'::text[]", "ARRAY['', E'\\\\', 'é']", "'{{a,b},{c,NULL}}'::text[]", "'[0:0]={a}'::text[]", "NULL::text[]"),
        "flag_list": ("'{t,f}'::bool[]", "'{t,NULL}'::bool[]", "'{}'::bool[]", "ARRAY[true, NULL]"),
    },
)  # fmt: skip
