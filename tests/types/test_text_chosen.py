"""Every text enters a column as it does in PostgreSQL, with the same value or the same error: chosen nasty texts."""

from __future__ import annotations

import pytest

INTEGERS = ["1", "+1", " 1 ", "-0", "007", "", "-", "1_0", "0x1f", "32768", "2147483648", "-2147483648", "99999999999",
            "9223372036854775808", "-9223372036854775808", "99999999999abc", "12abc", "1.5", "१", "\t5\n", "9" * 40]  # fmt: skip
FLOATS = ["nan", "-nan", "inf", "+Infinity", "1e400", "1e-400", "+1", "1.", "0x1p3", ".5", "-0", "1d", "1e", "", " 1.5 ", "1e15", "1e14",
          "999999999999999", "123456789012345680", "1e-5", "0.0001", "1e23", "5.684341886080801e-14", "5e-324", "9007199254740993", "1e16",
          "3.5e38", "1e-45", "1e-46", "1234567", "999999", "16777217", "33554430", "9.5367431640625e-07", "0e500", "0.0e-500", "2e308",
          "0." + "0" * 400 + "1", "1" * 400, "nan(1)"]  # fmt: skip
NUMERICS = ["1", "+1", " 1.50 ", "1e3", ".5", "5.", "-0", "-0.00", "NaN", "+nan", "inf", "-Infinity", "1e-3", "", "-", ".", "1.2.3", "1e",
            "1.239", "99.994", "99.995", "-99.995", "0.005", "-0.005", "1e131071", "1e131072", "1e-16383", "1e-16384", "1e2147483647",
            "0e100", "0e-5", "12345678901234567890123456789012345678901234567890.123", "1.e2", "9" * 50, "0." + "9" * 60,
            "0.0000001", "1 2", "1e 2"]  # fmt: skip
DATES = ["2020-01-01", "2020-02-30", "2020-13-01", "x", "", "0000-01-01", "0044-03-15 BC", "12345-01-01", "5874897-12-31", "5874898-01-01",
         "4714-11-24 BC", "4714-11-23 BC", "1/8/1999", "18/1/1999", "01/02/03", "January 8, 1999", "1999-Jan-08", "08-Jan-99", "19990108",
         "990108", "1999.008", "J2451187", "epoch", "infinity", "-infinity", " Infinity ", "inf", "2019-02-29", "20-1-1", " 2020-01-01 ", "2020-01-01T", "2020-01", "1 2 3",
         "Mon Jan 1 2020", "2020-366", "2021-366", "2020-01-01-", "Feb 30 2020", "2020-01-01 10:11"]  # fmt: skip
CLOCKS = [" 10:11", " 10:11:12", "T10:11:12", " 10:11:12.123456", " 10:11:12.1234567", " 10:11:12.9999999", " 10:11:12.0000005",
          " 10:11:12+02", " 10:11:12+05:30", " 10:11:12 +0530", " 10:11:12-03:30:15", " 10:11:12Z", " 10:11:12 UTC", " 10:11:12 EDT",
          " 10:11:12 America/New_York", " 10:11:12 Foo/Bar", " 24:00:00", " 24:00:01", " 10:60:00", " 10:11:60", " 12:05 AM", " 04:05 PM",
          " 13:05 PM", " 101112", " allballs", " 10:11:12+16", " 10:11:12 Foo", " 10", " 10:11.5", " 10:11:12 BC", " 10:11:12 GMT+3"]  # fmt: skip
MOMENTS = [*DATES, *(day + clock for day in ("2020-03-04", "2020-07-04") for clock in CLOCKS), "294246-01-01 00:00:00", "294277-01-01",
           "4714-11-24 00:00:00 BC", "4714-11-23 23:59:59 BC", "1883-11-18 12:00:00", "9999-12-31 23:59:59.9999999",
           "20200304T101112", "20200304101112", "2024-03-10 02:30:00", "2024-11-03 01:30:00", "2500-07-01 00:00:00",
           "3000-11-02 01:30:00", "1999-12-31 23:59:59.9995"]  # fmt: skip
TIMES = ["10:11:12", "10:11", "10:11:12.1234567", "24:00:00", "24:00:01", "10:60", "23:59:60", "10:11:12-03:30", "10:11:12 America/New_York",
         "2020-07-04 10:11:12 America/New_York", "04:05 PM", "101112", "1011", "x", "", "allballs", "10:11:12 EST", "10:11:12+05:30:15",
         "23:59:59.9999999", "10:11:12.120", "10", "10:11:12-00", "10:11:12.9995"]  # fmt: skip
INTERVALS = ["1 day", "1 year 2 mons 3 days 04:05:06.789", "-1 mon +1 day 02:03:04", "1-2", "-1-2", "1-2 3 4:05:06", "P1Y2M3DT4H5M6S", "P-1Y",
             "PT0.5S", "P", "PT", "1.5 years", "1.5 months", "1.5 weeks", "1.5 days", "1 hour ago", "5", "5.5", "1 day 2 days", "", "x",
             "-00:00:01", "100:00:00", "1 day -04:05", "@ 1 minute", "1h 2m 3s", "178000000 years", "9999999999 days", "2 days 1:00 1 hour",
             "60:61", "1 year -1 mon", "178956970 years 8 mons", "178956971 years", "2147483648 mons", "2147483648 days",
             "300000000 decades", "-178956971 years", "178956971 years ago", "178956970 years 7 mons"]  # fmt: skip
JSONS = ['{"b":1,"a":2,"aa":3,"a":4}', "[1, 2.50,1e5,-0,1E-3]", r'"a\u0041\n\u0001\u00e9\ud83d\ude00"', r'"\u0000"', r'"\ud800"', "nul",
         "NaN", " 1 ", '"x', '{"a":}', "[1,]", "", "[[],{}]", "01", "1.", '"\t"', r'"\/"', "{1:2}", "1e400", '"\x7f é"']  # fmt: skip
ADDRESSES = ["10.0.0.1", "10.0.0.0/8", "10.0.0.1/8", "10/8", "10.1", "192.168.1", "::1", "::1/64", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8", "::",
             "2001:DB8:0:0:1:0:0:1", "256.1.1.1", "1.2.3.4.5", "1.2.3.4/33", "x", "", "010.0.0.1", "::1/129", "10.0.0.1/32", "1.2.3/8"]  # fmt: skip
MACS = ["08:00:2b:01:02:03", "08-00-2b-01-02-03", "08002b:010203", "0800.2b01.0203", "08002b010203", "8:0:2B:1:2:3", "x", "08:00:2b:01:02"]
BITS = ["101", "B101", "X1F", "10", "102", "", "xg", "1010"]
ARRAYS = ["{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[2:3]={1,2}", "[0:1][2:3]={{1,2},{3,4}}", " { 1 , 2 } ", "{1,2", "1,2", "{1,,2}", "{{1,2},{3}}",
          "{1,{2}}", "{+1,02}", "{a}", "{{}}", "{1}x", "[1:3]={1,2}", "[3:2]={1}", '{"1"}', "{1 2}", "{{{{{{{1}}}}}}}", ""]  # fmt: skip
TEXT_ARRAYS = ['{a,"b c",NULL,"NULL","",d\\,e,"f\\"g"}', "{ a b , c }", '{a"b"}', "{é,😀}", '{"{}"}', '{"\t"}', '{"a', '{a\\"', "{nul}"]
STRINGS = ["", "a", "abcde", "abcde  ", "abcdef", "ab  ", "äöüßé", "äöüßé ", "😀😀😀😀😀😀", "  x", "e\u0301e\u0301e\u0301"]
UUIDS = ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
         "a0eebc999c0b4ef8bb6d6bb9bd380a11", "{a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc9-99c0b-4ef8-bb6d-6bb9bd380a11", ""]  # fmt: skip
BYTEAS = ["\\x", "\\xDEADbeef", "\\xde ad", "\\xd", "\\xdg", "abc", "a\\\\b", "\\001\\377", "\\400", "\\", "ä", "\\X00", ""]
BOOLS = ["t", "TRUE", " tr ", "y", "on", "o", "of", "1", "0", "n", "", "x", "10", "truee"]

CHOSEN: dict[str, list[str]] = {
    **dict.fromkeys(["int2", "int4", "int8"], INTEGERS), "oid": [*INTEGERS, "-1", "4294967295", "4294967296"], "bool": BOOLS,
    **dict.fromkeys(["float4", "float8"], FLOATS),
    **dict.fromkeys(["numeric", "numeric(4,2)", "numeric(2,2)", "numeric(38,10)", "numeric(5,-2)", "numeric(2,4)", "numeric(50,5)"], NUMERICS),
    **dict.fromkeys(["varchar(5)", "char(5)", "varchar", "text", "varchar(1)", "char(1)", "name"], STRINGS), "name": [*STRINGS, "x" * 62 + "ä"],
    '"char"': ["", "a", "ab", "\\101", "\\377", "ä"], "bytea": BYTEAS, "uuid": UUIDS, "date": DATES,
    **dict.fromkeys(["timestamp", "timestamp(3)", "timestamp(0)", "timestamptz", "timestamptz(2)"], MOMENTS),
    **dict.fromkeys(["time", "timetz", "time(3)", "timetz(0)"], TIMES),
    **dict.fromkeys(["interval", "interval(2)", "interval year", "interval day to minute", "interval minute"], INTERVALS),
    **dict.fromkeys(["json", "jsonb"], JSONS), **dict.fromkeys(["inet", "cidr"], ADDRESSES), "macaddr": MACS, "macaddr8": MACS,
    **dict.fromkeys(["bit(3)", "varbit(3)", "varbit"], BITS), "pg_lsn": ["16/B374D848", "0001/00", "1/", "x", "0/0"],
    "int4[]": ARRAYS, "text[]": TEXT_ARRAYS, "numeric(4,1)[]": ["{1.50,NaN}", "{1.239}", "{999.99}"], "date[]": ["{2020-01-01}", "{x}"],
    "timestamptz[]": ['{"2020-01-01 10:00:00-05"}'], "box[]": ['{"(1,2),(0,0)";"(1,1),(0,0)"}'],
}  # fmt: skip


@pytest.mark.parametrize("type_name", CHOSEN)
def test_chosen_texts_enter_a_column_as_in_postgresql(check, type_name: str) -> None:
    check(type_name, CHOSEN[type_name])


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Asia/Kolkata", "<+03>-03", "Australia/Lord_Howe", "EST5EDT"])
def test_a_timestamp_without_zone_belongs_to_the_zone_of_the_session(check, zone: str) -> None:
    check("timestamptz", MOMENTS, zone)
