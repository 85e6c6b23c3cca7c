"""A filter passes the rows of a struct column that a WHERE of PostgreSQL passes. NULL does not pass."""

from __future__ import annotations

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from tests.expression.comparison import table_of

from headgate.rowfilter.filter import bind_filter, match
from headgate.sql.parser import parse_expression

TABLE = table_of((("a", "int4"), ("b", "text"), ("Odd name", "int4")))
DATA = [Row(a=1, b="x", o=None), Row(a=6, b=None, o=1), Row(a=None, b="x", o=2), Row(a=9, b="y", o=3)]


def test_null_counts_as_false(spark: SparkSession) -> None:
    frame = spark.createDataFrame(DATA, "a int, b string, o int").withColumnRenamed("o", "Odd name")
    frame = frame.withColumn("new", F.struct("a", "b", "Odd name")).withColumn(
        "old", F.lit(None).cast("struct<a:int,b:string,`Odd name`:int>")
    )
    more = bind_filter(parse_expression("a > 5"), TABLE)
    bound = bind_filter(parse_expression("b = 'x' AND \"Odd name\" >= 0"), TABLE)
    negative = bind_filter(parse_expression("NOT (b = 'x')"), TABLE)
    rows = frame.select(
        match(more, F.col("new")),
        match(bound, F.col("new")),
        match(negative, F.col("new")),
        match(negative, F.col("old")),
    ).collect()
    assert [tuple(row) for row in rows] == [
        (False, False, False, False),
        (True, False, False, False),
        (False, True, False, False),
        (True, False, True, False),
    ]
