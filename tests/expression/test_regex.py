"""Regular expressions give PostgreSQL's match, groups, replacement or error for generated patterns. Java gives the same matches."""

from __future__ import annotations

import time
from random import Random

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.expression.functions.array import written
from headgate.expression.functions.regex import functions, java
from headgate.expression.functions.regex.parser import parse
from headgate.expression.implementation.character.text import like

ROUND = 1000
QUANTIFIERS = ("*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,1}?", "{2,}", "{0}", "{1}", "{1,2}?", "{2}?")
ATOMS = (
    "a", "b", "c", ".", "[ab]", "[^a]", "[a-c]", "[^[:digit:]x]", r"\d", r"\w", r"\W", r"\S", "[[:alpha:]]", "é", "1", " ", r"\n", r"\x61",
    "[[.hyphen.]a]", "[[=a=]]", r"[\w-]", "😀",
)  # fmt: skip
ORACLE = """
CREATE OR REPLACE FUNCTION pg_temp.judged(s text, p text) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN
  RETURN ARRAY[(s ~ p)::text, regexp_match(s, p)::text, regexp_replace(s, p, '<\\&,\\1>', 'g'), substring(s from p),
               regexp_split_to_array(s, p)::text, regexp_count(s, p)::text, regexp_instr(s, p, 1, 1, 1, 'i', 1)::text,
               (SELECT array_agg(m::text)::text FROM regexp_matches(s, p, 'g') m)];
EXCEPTION WHEN OTHERS THEN RETURN ARRAY[SQLSTATE, SQLERRM]; END $$
"""


def pattern(random: Random, depth: int) -> str:
    """Return a random pattern. Some are malformed."""
    kind = random.random()

    def part() -> str:
        return pattern(random, depth - 1)

    if depth <= 0 or kind < 0.3:
        return random.choice(ATOMS)
    if kind < 0.5:
        return "".join(part() for _ in range(random.randint(1, 3)))
    if kind < 0.66:
        return f"({part()}|{part()})" if kind < 0.6 else f"{part()}|{part()}"
    if kind < 0.8:
        return f"(?:{part()})" if kind < 0.72 else f"({part()})"
    if kind < 0.93:
        return part() + random.choice(QUANTIFIERS)
    if kind < 0.96:
        return random.choice(("^", "$", r"\m", r"\M", r"\y", r"\Y", r"\A", r"\Z", "[[:<:]]"))
    if kind < 0.98:
        return random.choice(("(?=", "(?!", "(?<=", "(?<!")) + part() + ")"
    return random.choice((r"\1", r"\2", "(", ")", "[", "{", "a{3,2}", r"\q", "[b-a]", "[[:x:]]", "*"))


def subjects(number: int, count: int) -> list[tuple[str, str]]:
    """Return pairs of a string and a pattern, some with embedded options and other flavours."""
    random = Random(number)
    pairs = []
    for _ in range(count):
        text = "".join(random.choice("aaabbcé1 A\n_-😀") for _ in range(random.randint(0, 9)))
        prefix = random.choice(("(?i)", "(?n)", "(?p)", "(?w)", "(?x)", "(?e)", "(?b)", "(?q)", "***:", "***=", "(?is)"))
        pairs.append((text, (prefix if random.random() < 0.1 else "") + pattern(random, 4)))
    return pairs


def evaluate(text: str, regex: str) -> list[str | None]:
    """Return the result of headgate's matcher in the form of the oracle's function."""
    try:
        return [
            str(functions.matches(3, text, regex)).lower(),
            functions.regexp_match(text, regex),
            functions.regexp_replace(text, regex, r"<\&,\1>", "g"),
            functions.substring(text, regex),
            functions.regexp_split_to_array(text, regex),
            str(functions.regexp_count(text, regex)),
            str(functions.regexp_instr(text, regex, 1, 1, 1, "i", 1)),
            written([row[0] for row in functions.regexp_matches(text, regex, "g")]) if functions.matches(3, text, regex) else None,
        ]
    except PostgresError as error:
        return [error.sqlstate, error.message]


@pytest.mark.parametrize("rounds", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_generated_patterns_match_as_in_postgresql(oracle: psycopg.Connection, rounds: int) -> None:
    oracle.execute(ORACLE)
    wrong = []
    for number in range(rounds):
        work = subjects(number, ROUND)
        columns = [pair[0] for pair in work], [pair[1] for pair in work]
        query = "SELECT pg_temp.judged(s, p) FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY u(s, p, o) ORDER BY o"
        for (text, regex), (expected,) in zip(work, oracle.execute(query, columns).fetchall(), strict=True):
            actual = evaluate(text, regex)
            if actual != expected:
                wrong.append((text, regex, expected, actual))
    assert wrong == []


def test_java_finds_the_matches_of_the_matcher(spark: SparkSession) -> None:
    """One query matches all patterns that Java can evaluate against many strings."""
    texts = [text for text, _ in subjects(1000, 150)]
    rows = []
    for _, regex in subjects(1001, 500):
        try:
            java_regex = java.written(parse(regex))
        except PostgresError:
            continue
        if java_regex is not None:
            rows += [(text, regex, java_regex, functions.matches(3, text, regex)) for text in texts]
    assert len(rows) > 150 * 200
    frame = spark.createDataFrame(pa.table(dict(zip(("text", "regex", "java", "expected"), zip(*rows, strict=True), strict=True))))
    wrong = frame.where(F.rlike("text", F.col("java")) != F.col("expected")).limit(5).collect()
    assert [row.asDict() for row in wrong] == []


@pytest.mark.parametrize(
    "regex",
    [
        r"(.*)\1c",
        "b[a-z]*[a-m]*x",
        "^a*b*a*c",
        "x[a-z]*1",
        "c(a|aa)+b",
        "^(a|aa)+$",
        "c(ab)*d",
        "(a|b|ab)(a|b|ab)" * 5,
        "(?=a*b)c",
        "(a{255}){255}b",
    ],
)
def test_pattern_that_takes_java_long_is_not_evaluated_by_java(regex: str) -> None:
    """A search in Java cannot be cancelled: `SELECT repeat('ab', 5000) ~ '(.*)\\1\\1c'` would hold its session and a processor."""
    assert java.written(parse(regex)) is None


def test_patterns_evaluated_by_java_take_linear_time(spark: SparkSession) -> None:
    texts = spark.createDataFrame(pa.table({"text": ["a" * 1_000_000, "ab" * 500_000, "1" * 999_999 + "a"]}))
    tests = [
        java.written(parse(regex)) for regex in ("a.*b.*c.*d", "^[ab]+[0-9]+$", "[0-9]+x", "^a*c", "b[a-z]*", ".*a.*b.*1$", "a[0-9]{1,3}b")
    ]
    tests += [like(pattern) for pattern in ("%a%b%a%c", "a%b%a%b%", "%" + "a%" * 300 + "c")]
    assert None not in tests
    began = time.monotonic()
    for row in texts.select(*[F.rlike("text", F.lit(java_test)).alias(f"c{index}") for index, java_test in enumerate(tests)]).collect():
        assert len(row) == len(tests)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("(a*)*b", (False, True, False)),
        ("(a|a)*b", (False, True, False)),
        ("^(a|aa)+$", (False, False, False)),
        ("(ab)*$", (True, True, True)),
        ("^((a|b)+,?)*$", (False, True, False)),
        ("(.*)(.*)(.*)z", (False, False, False)),
        ("(x+x+)+y", (False, False, False)),
    ],
)
def test_no_pattern_takes_exponential_time(regex: str, expected: tuple[bool, ...]) -> None:
    texts = ("a" * 40 + "!", "ab" * 3000, "x" * 5000 + "é")
    assert tuple(functions.matches(3, text, regex) for text in texts) == expected
