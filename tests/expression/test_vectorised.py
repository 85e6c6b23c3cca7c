"""Python functions over Arrow columns handle values of every plain type, NULL, and errors, which count only if the value is used."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.expression.spark.value import (
    BOOL,
    BYTES,
    DATE,
    DIGITS,
    FLOAT4,
    FLOAT8,
    INT4,
    INT8,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Env,
    Rep,
    Value,
    settle,
)
from headgate.expression.spark.vectorised import call
from headgate.storage.spark import failure

REPS = (BOOL, INT4, INT8, FLOAT4, FLOAT8, TEXT, DIGITS, BYTES, DATE, TIMESTAMP, TIMESTAMPTZ)


def column(name: str, rep: Rep) -> Value:
    return Value(rep, lambda env: env.columns[name])


def env(frame: DataFrame) -> Env:
    return Env({name: F.col(name) for name in frame.columns})


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    row = (
        "SELECT true bool, 7 int4, 8L int8, float('1.1') float4, double('-Infinity') float8, '\\u0001x' text, '1.10' digits, "
        "unhex('00ff') bytes, date'1960-02-29' date, timestamp_ntz'2024-02-29 23:59:59.999999' timestamp, "
        "timestamp'1969-12-31 23:59:59Z' timestamptz"
    )
    return spark.sql(f"{row} UNION ALL SELECT " + ", ".join(f"CAST(NULL AS {kind})" for _, kind in spark.sql(row).dtypes)).coalesce(1)


def test_values_of_every_type_are_returned_unchanged(frame: DataFrame) -> None:
    def same(value: Any) -> Any:
        return value

    def same_array(values: pa.Array) -> pa.Array:
        return values

    outputs = []
    for rep in REPS:
        argument = column(rep.name, rep)
        for index, called in enumerate(
            (
                call(same, rep, [call(same, rep, [argument])]),
                call(same, rep, [argument], raises=False),
                call(same_array, rep, [call(same_array, rep, [argument], whole=True)], whole=True),
                call(same_array, rep, [argument], raises=False, whole=True),
            )
        ):
            outputs.append(F.equal_null(settle(called)(env(frame)), F.col(rep.name)).alias(f"{rep.name}{index}"))
    rows = frame.select(*outputs).collect()
    assert [name for row in rows for name, equal in row.asDict().items() if not equal] == []


def test_error_counts_only_if_the_value_is_used(frame: DataFrame) -> None:
    def halve(number: int) -> int:
        if number % 2:
            raise PostgresError("22023", f"{number} is odd", detail="It has no half.")
        return number // 2

    def halves(numbers: pa.Array) -> pa.Array:
        if pc.any(pc.equal(pc.bit_wise_and(numbers, 1), 1)).as_py():
            raise PostgresError("22023", f"{numbers[0]} is odd", detail="It has no half.")
        return pc.divide(numbers, 2)

    for function, whole in ((halve, False), (halves, True)):
        halved = call(function, INT4, [call(function, INT4, [column("int4", INT4)], whole=whole)], whole=whole)
        unused = F.when(F.col("int4") == 8, halved.make(env(frame))).otherwise(-1)
        assert [row[0] for row in frame.select(unused).collect()] == [-1, -1]
        with pytest.raises(PySparkException, match="is odd") as caught:
            frame.select(halved.make(env(frame))).collect()
        error = failure.from_spark(caught.value)
        assert (error.sqlstate, error.message, error.detail) == ("22023", "7 is odd", "It has no half.")


def test_call_with_constant_arguments_is_computed_when_planned() -> None:
    calls = []

    def join(between: str, left: str, right: int) -> str:
        calls.append(1)
        return f"{left}{between}{right}"

    joined = call(
        join, TEXT, [Value(TEXT, lambda env: F.lit("x"), constant="x"), Value(INT4, lambda env: F.lit(1), constant="1")], prefix=("-",)
    )
    assert (joined.constant, calls) == ("x-1", [1])
    assert call(join, TEXT, [Value(TEXT, lambda env: F.lit(None), is_null=True), joined]).is_null
