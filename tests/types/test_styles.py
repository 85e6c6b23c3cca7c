"""Dates and intervals are read in the order and printed in the style of DateStyle and IntervalStyle, as in PostgreSQL."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.types import registry
from headgate.types.text import text
from headgate.types.text_column import PLAIN, TextSettings

ORDERS = ("MDY", "DMY", "YMD")
DATE_STYLES = ("ISO", "SQL", "Postgres", "German")
INTERVAL_STYLES = ("postgres", "postgres_verbose", "sql_standard", "iso_8601")
ZONES = ("UTC", "GMT", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "America/Sao_Paulo", "<+05:30>-05:30", "Asia/Kathmandu")

DATES = [
    "03/02/2024", "13/02/2024", "02/13/2024", "2024-02-03", "99-01-02", "01-02-99", "01-Feb-03", "Feb-01-03", "03-Feb-01", "2003-Feb-01",
    "01-2003-Feb", "Feb-2003-01", "31-Feb-12", "32-Feb-01", "01 Feb 03", "Feb 01 03", "03 Feb 01", "1 2 3", "13 2 3", "2024 2 3", "3 2 2024",
    "1/8/1999", "18/1/1999", "1/18/1999", "99-08-Jan", "08-Jan-99", "January 8, 1999", "19990108", "990108", "J2451187", "1999.008", "99.008",
    "03.02.2024", "03.02.24", "24.02.03", "03-02-24", "24-02-03", "0044-03-15 BC", "15/03/0044 BC", "03/15/0044 BC", "01-31-12345",
    "31-01-12345", "12345-01-31", "infinity", "-infinity", "epoch", "Sat Feb 03 2024", "Sat 03 Feb 2024", "Sat 3 2 2024", "2/3", "02-2024",
    "1999-01-08", "1999-18-01", "100-01-02", "01-02-100", "001-02-03", "1-1-1", "00-01-01", "01-01-00", "5874897-12-31", "4714-11-24 BC",
    "9999-12-31", "10000-01-01", "0001-01-01", "0001-12-31 BC", "99/Feb/01", "Feb/99/01", "1-2-3 BC", "20240203", "240203", "2024-034",
]  # fmt: skip
CLOCKS = [
    "", " 10:11:12", " 10:11:12.5", " 00:00:00.000001", " 23:59:59.999999", " 101112", " 10:11 PM", "T10:11:12", " 10:11:12+02",
    " 10:11:12.120 America/New_York", " 04:05:06 EST",
]  # fmt: skip
MOMENTS = [
    f"{date}{clock}" for index, date in enumerate(DATES) for clock in (CLOCKS[index % len(CLOCKS)], CLOCKS[(index + 1) % len(CLOCKS)])
]
MOMENTS += [
    "Sat Feb 03 10:11:12 2024", "Sat 03 Feb 10:11:12.5 2024 CET", "Sat Feb 03 10:11:12 2024 EST", "02/03/2024 10:11:12.5 PST", "03.02.2024 10:11:12 CET",
    "1883-11-18 12:00:00", "2024-10-27 02:30:00", "2024-03-31 02:30:00", "2500-07-01 00:00:00", "3000-01-01 00:00:00",
    "12345-06-07 08:09:10", "0044-03-15 12:00:00 BC", "10:11:12 03/02/2024", "Feb 3 10:11:12 2024 GMT", "1900-01-01 00:00:00",
]  # fmt: skip
INTERVALS = [
    "1 day", "-1 day", "1-2", "-1-2", "1-2 3 4:05:06", "-1-2 3 4:05:06", "-1 2:03:04", "1 2:03:04", "+1 -2:03:04", "-1 +2:03:04", "-1 -2:03:04",
    "-1-2 +3 -4:05:06.7", "1 year 2 mons 3 days 04:05:06.789", "-1 year -2 mons +3 days -04:05:06.789", "1 year -3 days", "-1 mon +1 day 02:03:04",
    "-1 day 2 hours", "-1 year 2 days", "-1 years -2 mons", "-2 mons 3 days ago", "1 mon ago", "0", "0 days", "-0:00:01", "00:00:00.5", "-00:00:00.5",
    "-00:00:01.5", "00:00:01", "-00:00:01", "00:01:00", "-00:01:00", "01:00:00", "-01:00:00", "100:00:00", "-1 second", "1 sec", "2 secs", "-1 min 1 sec",
    "1 day -00:00:01", "-1 day +00:00:01", "1 mon -1 day +00:00:01", "-1 mon 1 day -00:00:01", "P1Y2M3DT4H5M6.7S", "P-1Y2M", "PT-0.5S", "-PT1M",
    "-1.5 days", "-1.5 months 2 days", "-1 week 2 days", "- 1 2:03", "-1 1", "-5", "-5.5", "1 +1", "@ 1 year 2 mons 3 days ago", "@ 1 day -1 hour ago",
    "-1 day 1:00 ago", "178000000 years", "-178000000 years", "2147483647 days", "-2147483648 days", "9223372036854775807 us",
    "-9223372036854775807 us", "11 mons", "-11 mons", "12 mons", "1 day 1 day", "-", "-x", "-1 -", "--1", "1 day -", "-1-13", "1-2-3",
]  # fmt: skip
SMALL = st.integers(0, 40)
NUMBERS = st.builds(
    lambda first, second, third, delimiter, era: f"{first}{delimiter}{second}{delimiter}{third}{era}",
    st.one_of(SMALL, st.integers(0, 3000)).map(str), SMALL.map(str) | SMALL.map("{:02}".format), st.one_of(SMALL.map("{:02}".format), st.integers(0, 12000).map(str)),
    st.sampled_from("-/. "), st.sampled_from(["", "", "", " BC", " 10:11:12", " 10:11:12.25"]),
)  # fmt: skip
NAMED = st.lists(
    st.sampled_from(["Feb", "january", "03", "3", "31", "99", "1999", "2024", "12:13:14", "Sat"]), min_size=2, max_size=5, unique=True
).flatmap(lambda words: st.sampled_from([" ", "-", ", "]).map(lambda between: between.join(words)))
TYPED = st.one_of(NUMBERS, NAMED, st.datetimes().map(str), st.dates().map(str))
PART = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 99),
    st.sampled_from(["", " days", " mons", ":05:06", ":07", "-3", ".5"]),
)
SPANS = st.lists(PART, min_size=1, max_size=4).map(" ".join)
STYLES = [
    pytest.param(style, order, marks=[] if number % 3 == ORDERS.index(order) else [pytest.mark.slow])
    for number, style in enumerate(DATE_STYLES)
    for order in ORDERS
]


@pytest.mark.parametrize(("style", "order"), STYLES)
@pytest.mark.parametrize("type_name", ["date", "timestamp", "timestamptz"])
def test_chosen_dates_are_read_and_printed_as_datestyle_says(check, type_name: str, style: str, order: str) -> None:
    values = [*DATES, *MOMENTS] if type_name == "date" else MOMENTS
    check(type_name, values, "America/New_York", TextSettings(date_style=style, date_order=order))


@pytest.mark.parametrize(("style", "order"), STYLES)
@pytest.mark.parametrize("type_name", ["date", "timestamp(1)", "timestamptz"])
def test_generated_dates_are_read_and_printed_as_datestyle_says(check, type_name: str, style: str, order: str) -> None:
    @settings(max_examples=settings.default.max_examples // 5)
    @given(st.lists(TYPED, min_size=1, max_size=30), st.sampled_from(ZONES))
    def run(values: list[str], zone: str) -> None:
        check(type_name, values, zone, TextSettings(date_style=style, date_order=order))

    run()


@pytest.mark.parametrize("style", INTERVAL_STYLES)
@pytest.mark.parametrize("type_name", ["interval", "interval(1)", "interval day to minute", "interval year"])
def test_chosen_intervals_are_read_and_printed_as_intervalstyle_says(check, type_name: str, style: str) -> None:
    check(type_name, INTERVALS, "UTC", TextSettings(interval_style=style))


@pytest.mark.parametrize("style", INTERVAL_STYLES)
def test_generated_intervals_are_read_and_printed_as_intervalstyle_says(check, style: str) -> None:
    @settings(max_examples=settings.default.max_examples // 5)
    @given(st.lists(SPANS, min_size=1, max_size=30))
    def run(values: list[str]) -> None:
        check("interval", values, "UTC", TextSettings(interval_style=style))

    run()


@pytest.mark.parametrize(("style", "order"), STYLES)
def test_elements_of_arrays_are_read_and_printed_in_the_same_way(check, style: str, order: str) -> None:
    session = TextSettings(date_style=style, date_order=order, interval_style="sql_standard")
    check("date[]", ["{03/02/2024,NULL,infinity}", "{}", "{{01-Feb-03},{0044-03-15 BC}}"], "UTC", session)
    check("timestamptz[]", ['{"03/02/2024 10:11:12.5","2024-07-01 00:00:00+02"}'], "Europe/Berlin", session)
    check("timestamp[]", ['[0:1]={"2024-02-03 10:11:12",NULL}'], "UTC", session)
    check("interval[]", ['{"-1 2:03:04",1-2,"1 day -1:00"}'], "UTC", session)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("style", DATE_STYLES)
def test_timestamp_with_time_zone_shows_the_zone_of_its_instant(oracle, zone: str, style: str) -> None:
    instants = [seconds * 1_000_000 + 500_000 for seconds in range(-4_000_000_000, 40_000_000_000, 86_400 * 401 + 3601)]
    values = pa.array([*instants, None, -62_167_219_200_000_001], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    texts = text.write_text(values, registry.TIMESTAMPTZ, session=TextSettings(zone, date_style=style)).to_pylist()
    plain = text.write_text(values, registry.TIMESTAMPTZ).to_pylist()
    query = "SELECT format('%%s', x::timestamptz) FROM unnest(%s::text[]) WITH ORDINALITY u(x, n) ORDER BY n"
    with oracle.under(zone, TextSettings(zone, date_style=style)):
        expected = [row[0] or None for row in oracle.connection.execute(query, (plain,))]
    assert texts == expected


@pytest.mark.parametrize("order", ORDERS)
def test_common_iso_forms_mean_the_same_in_every_order_and_are_stored_in_the_same_form(order: str) -> None:
    session = TextSettings(date_order=order, date_style="German", interval_style="sql_standard")
    for oid, value in ((registry.DATE, "2024-02-03"), (registry.TIMESTAMP, "2024-02-03 10:11:12.5"), (registry.INTERVAL, "1 day 02:03:04")):
        assert text.read_text(pa.array([value]), oid, session=session).equals(text.read_text(pa.array([value]), oid))
    dates = registry.by_oid(registry.DATE).array
    assert text.read_text(pa.array(["{2024-02-03}"]), dates, session=session).to_pylist() == ["{2024-02-03}"]
    assert text.normal_form("2024-02-03", registry.DATE, session=session) == "2024-02-03"
    assert text.normal_form("-1 2:03:04", registry.INTERVAL, session=session) == "-1 days -02:03:04"
    assert text.normal_form("-1 2:03:04", registry.INTERVAL, session=PLAIN) == "-1 days +02:03:04"


def test_column_of_arrays_without_rows_is_printed_in_every_style() -> None:
    moments = registry.by_oid(registry.TIMESTAMPTZ).array
    assert len(text.write_text(pa.array([], pa.string()), moments, session=TextSettings("Asia/Tokyo", date_style="German"))) == 0
