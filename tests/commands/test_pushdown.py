"""Spark pushes a term of WHERE to the files exactly if their statistics agree with PostgreSQL's comparison."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from tests.storage.tables import DATABASE, made, relation

from headgate.catalog.relation.relation import Column
from headgate.commands import stored_expression
from headgate.commands.query import pushdown
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.sql.parser import parse_expression
from headgate.storage import write
from headgate.storage.delta import delta_table
from headgate.storage.engine import Engine
from headgate.storage.spark.local_relation import local_frame
from headgate.types import registry as r
from headgate.types import typmod

KINDS: dict[str, tuple[int, int]] = {
    "i": (r.INT4, -1), "b": (r.BOOL, -1), "f": (r.FLOAT8, -1), "d": (r.DATE, -1), "ts": (r.TIMESTAMP, -1), "tz": (r.TIMESTAMPTZ, -1),
    "n": (r.NUMERIC, typmod.numeric(10, 2)), "plain": (r.NUMERIC, -1), "t": (r.TEXT, -1), "v": (r.VARCHAR, 20), "c": (r.BPCHAR, 7),
    "u": (r.UUID, -1), "j": (r.JSONB, -1), "by": (r.BYTEA, -1),
}  # fmt: skip
COLUMNS = [Column(number, name, *kind) for number, (name, kind) in enumerate(KINDS.items(), 1)]

PUSHED = """
i = 5
i + 1 > 3 AND NOT b
d = '2020-01-01'
'2020-01-01' < d
d IN ('2020-01-01', '0001-01-01')
ts >= '2020-01-01 10:00'
tz <= '9999-12-31 10:00+00'
n = 5
n < 12.345
n IN (1, 2)
t = 'x'
t > 'a' || 'b'
v = 'x'
u = 'c4ca4238-a0b9-2382-0dcc-509a6f75849b'
"""
NOT_PUSHED = """
d = 'infinity'
d > '-infinity'
d < '0001-01-01 BC'
d > '10000-01-01'
d IN ('2020-01-01', 'infinity')
ts < 'infinity'
tz = '2020-01-01 BC'
d = ts
d > '2020-01-01'::timestamp
d > '2020-01-01'::date + 1
d <> '2020-01-01'
f > 1
f IS DISTINCT FROM 1
plain = 5
c = 'x'
t LIKE 'x%'
t = v
t = ANY ('{x,y}'::text[])
lower(t) = 'x'
t = 'x' OR f = 1
j = '{}'
by = 'x'
"""


def _bound(condition: str) -> bool:
    scope = stored_expression.scope_of(COLUMNS, "t")
    return pushdown.is_exact(binder.bind_condition(parse_expression(condition), scope, "WHERE", context=BindContext()))


@pytest.mark.parametrize("condition", PUSHED.strip().split("\n"))
def test_term_with_exact_statistics_is_pushed_down(condition: str) -> None:
    assert _bound(condition)


@pytest.mark.parametrize("condition", NOT_PUSHED.strip().split("\n"))
def test_term_without_exact_statistics_is_not_pushed_down(condition: str) -> None:
    assert not _bound(condition)


MOMENTS = [(19000, 1_700_000_000_000_999), (2**31 - 1, 2**63 - 1), (-(2**31), -(2**63)), (-800_000, -70_000_000_000_000_000), (0, 0)]
"""Days and microseconds since 1970: an ordinary moment, infinity, -infinity, one before the year 1, and 1970."""
TEXTS = ["", "k", "k" * 40, "k" * 32 + "\U0010ffff", "é\U0001f600", "Z" * 33, None]
COMPARED = [
    *(f"{name} {operator} {kind}'{value}'"
      for name, kind, values in (
          ("d", "date", ("2022-01-08", "1970-01-01", "0001-01-01", "9999-12-31")),
          ("ts", "timestamp_ntz", ("2023-11-14 22:13:20.000999", "1970-01-01 00:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59")),
          ("tz", "timestamp", ("2023-11-14 22:13:20.000999Z", "2023-11-14 22:13:20Z", "1970-01-01 00:00:00Z", "0001-01-01 00:00:00Z")),
          ("t", "", ("k", "k" * 32, "k" * 40, "é", "Z" * 33)))
      for value in values
      for operator in ("=", "<=", ">")),
    *(f"n {operator} {value}BD" for operator in ("=", ">") for value in ("-99999999.99", "0.00", "12.34", "99999999.99")),
    "d IN (date'2022-01-08', date'1970-01-01')",
]  # fmt: skip


def _files(engine: Engine) -> DataFrame:
    """Return the rows of a table that has a file for each of the moments and texts, by either writer."""
    table = relation(28300, "edges", id=r.INT8, d=r.DATE, ts=r.TIMESTAMP, tz=r.TIMESTAMPTZ, n=(r.NUMERIC, typmod.numeric(10, 2)), t=r.TEXT)
    made(engine, table)
    schema = write.arrow_row(table)
    for number, text in enumerate(TEXTS):
        day, moment = MOMENTS[number % len(MOMENTS)]
        amount = ["-99999999.99", "0", "12.34", "99999999.99", None][number % 5]
        for offset, by_spark in ((0, False), (100, True)):
            writer = engine.begin(DATABASE)
            plain = [[number + offset], [day], [moment], [moment], [amount], [text]]
            types = [pa.int64(), pa.int32(), pa.int64(), pa.int64(), pa.string(), pa.string()]
            columns = [pa.array(values, kind) for values, kind in zip(plain, types, strict=True)]
            rows = pa.table([column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
            writer.append(table, local_frame(engine.spark, rows) if by_spark else rows)
            writer.commit()
    return engine.tables[DATABASE, table.oid].frame(engine.tables.visible[DATABASE, table.oid].state)


@pytest.mark.slow
@pytest.mark.parametrize("listed_files", [100, 0])
def test_pushed_comparisons_find_every_row(engine: Engine, monkeypatch: pytest.MonkeyPatch, listed_files: int) -> None:
    monkeypatch.setattr(delta_table, "RESIDENT_ROWS", -1)
    monkeypatch.setattr(delta_table, "LISTED_FILES", listed_files)
    monkeypatch.setattr(write, "SMALL_ROWS", -1)
    frame = _files(engine)
    different = []
    for condition in COMPARED:
        pushed, whole = frame.where(condition), frame.where(f"coalesce({condition}, false)")
        plans = [variant._jdf.queryExecution().executedPlan().toString() for variant in (pushed, whole)]
        assert [bool(re.search(r"PushedFilters: \[[^\]]", plan)) for plan in plans] == [True, False], condition
        if sorted(pushed.select("id").toArrow()["id"].to_pylist()) != sorted(whole.select("id").toArrow()["id"].to_pylist()):
            different.append(condition)
    assert different == []
