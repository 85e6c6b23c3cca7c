"""Time zone names, abbreviations and POSIX specifications have PostgreSQL's meaning at any instant, in both directions."""

from __future__ import annotations

from random import Random

import psycopg
import pyarrow as pa
import pytest

from headgate.errors import PostgresError
from headgate.expression.functions.datetime import timestamp
from headgate.types import registry
from headgate.types.text import text

MOMENTS = [
    "1970-01-01", "2024-02-29 23:59:59.999999", "2024-03-10 02:00", "2024-03-10 02:30", "2024-03-10 07:30", "2024-03-10 10:00", "2024-11-03 01:30",
    "2024-11-03 05:59:59", "2024-10-27 01:00", "2024-06-30", "2026-04-05 03:00", "1995-07-01", "1900-01-01", "1811-07-01", "1769-07-01", "1600-01-01",
    "0044-03-15 BC", "4713-06-06 BC", "2444-12-31 23:59:59", "2445-05-01", "2500-07-01", "9999-12-31 23:59:59", "290000-03-01 12:00", "infinity",
]  # fmt: skip
CHOSEN = [
    "+05:30", "-05:30", "UTC+3", "UTC-3:30:15", "<+0530>-05:30", "-08", "+8", "8", "EST5EDT", "PST8PDT,M3.2.0,M11.1.0", "ABC", "ABC3", "abc3def", "A3", "",
    "+167", "+168", "+0530", "XX+05:30:99", "XX+05:30:60", "Z", "zulu", "europe/rome", "posix/Europe/Rome", ":UTC", "Europe", "now", "LMT", "posixrules",
    "America/New_York ", "+05:30:", "+05:3", "PST8PDT,M3.2.0/2,M11.1.0/02:30", "PST8PDT,70,300", "PST8PDT,J69/26,J300", "PST8PDT,M3.2.0", "5 ",
    "PST8PDT7,M3.2.0/2,M11.1.0/2", "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1", "BRST+3BRDT+2,M10.3.0,M2.3.0", "Foo/Bar 5", "A5B,0/0,J365/25", "A5B,M1.1.0,M1.1.0/3",
]  # fmt: skip

JUDGE = """
CREATE OR REPLACE FUNCTION pg_temp.at_zone(zone text, at timestamptz) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN RETURN (at AT TIME ZONE zone)::text; EXCEPTION WHEN OTHERS THEN RETURN '!' || SQLSTATE; END $$;
CREATE OR REPLACE FUNCTION pg_temp.at_zone(zone text, at timestamp) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN RETURN (at AT TIME ZONE zone)::text; EXCEPTION WHEN OTHERS THEN RETURN '!' || SQLSTATE; END $$;
SET timezone = 'UTC'
"""
QUERY = "SELECT pg_temp.at_zone(%s, at::timestamptz), pg_temp.at_zone(%s, at::timestamp) FROM unnest(%s::text[]) WITH ORDINALITY u(at, n) ORDER BY n"


@pytest.fixture(scope="module")
def judge(oracle) -> psycopg.Connection:
    oracle.connection.execute(JUDGE)
    return oracle.connection


def posix(random: Random) -> str:
    """Draw a POSIX time zone specification, or one that is almost valid."""

    def clock(*hours: int) -> str:
        return f"{random.choice(['', '-', '+'])}{random.choice(hours)}{random.choice(['', '', ':30', ':45:15', ':3', ':60', ':'])}"

    def name() -> str:
        return random.choice(["EST", "abc", "A", "<+05>", "<x y>", "Foo/Bar", "é", "ß", "", "<-03", "<>"])

    def rule() -> str:
        day = random.choice(["J", "J", "", ""]) + random.choice(["1", "59", "60", "61", "300", "365", "366", "0"])
        week = f"M{random.choice([1, 2, 3, 10, 12, 13])}.{random.choice([1, 2, 5, 5, 6])}.{random.choice([0, 1, 6, 7])}"
        return random.choice([day, week, week]) + random.choice(["", "", "/" + clock(0, 2, 24, 26, 167, 168)])

    specification = name() + clock(0, 1, 3, 5, 8, 11, 15, 100, 168)
    if random.random() < 0.8:
        specification += name() + random.choice(["", "", clock(0, 2, 4, 7)])
        specification += random.choice(["", f",{rule()},{rule()}", f",{rule()},{rule()}", f";{rule()},{rule()}", f",{rule()}"])
    return specification


def outcome(name: str, moment: str, *, zoned: bool) -> str:
    source, function = (registry.TIMESTAMPTZ, timestamp.local_at) if zoned else (registry.TIMESTAMP, timestamp.instant_at)
    kind = pa.timestamp("us") if zoned else pa.timestamp("us", tz="UTC")
    try:
        micros = function(name, text.read_scalar(moment, source).cast(pa.int64()).as_py())
    except PostgresError as error:
        return f"!{error.sqlstate}"
    values = pa.array([micros], pa.int64()).cast(kind)
    return str(text.write_text(values, registry.TIMESTAMP if zoned else registry.TIMESTAMPTZ)[0])


def compare(judge: psycopg.Connection, zones: list[str]) -> int:
    """Compare each zone at each instant. Return how many of them are zones."""
    valid_zones = 0
    for name in zones:
        rows = judge.execute(QUERY, (name, name, MOMENTS)).fetchall()
        for moment, (local, instant) in zip(MOMENTS, rows, strict=True):
            assert outcome(name, moment, zoned=True) == local, f"timestamptz '{moment}' AT TIME ZONE '{name}'"
            assert outcome(name, moment, zoned=False) == instant, f"timestamp '{moment}' AT TIME ZONE '{name}'"
        valid_zones += not rows[0][0].startswith("!")
    return valid_zones


@pytest.mark.slow
def test_posix_time_zone_has_postgresqls_offsets(judge: psycopg.Connection) -> None:
    random = Random(15)
    assert compare(judge, CHOSEN) > 20
    assert compare(judge, [posix(random) for _ in range(300)]) > 50


@pytest.mark.slow  # nine seconds
def test_abbreviation_has_its_meaning_at_the_instant(judge: psycopg.Connection) -> None:
    names = [row[0] for row in judge.execute("SELECT abbrev FROM pg_timezone_abbrevs ORDER BY 1")]
    assert compare(judge, names) == len(names)


@pytest.mark.parametrize("zone", ["+05:30", "abc3def", "PST8PDT,M3.2.0,M11.1.0", "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1", "posix/Europe/Rome"])
def test_session_reads_and_writes_instants_in_a_posix_time_zone(oracle, zone: str) -> None:
    from tests.types.conftest import compare as entered

    entered(
        oracle,
        "timestamptz",
        ["2024-03-10 02:30", "2024-11-03 01:30", "2024-06-30 12:00 +05", "1600-07-01", "2024-03-10 07:30 ABC3DEF", "9999-12-31"],
        zone,
    )
    entered(oracle, "timetz", ["10:00", "10:00 MSK", "2024-07-01 10:00 xyz4zyx"], zone)


def test_zone_with_leap_seconds_is_rejected() -> None:
    with pytest.raises(PostgresError) as raised:
        timestamp.named_zone("right/Europe/Rome")
    assert raised.value.sqlstate == "0A000"
