"""A row filter transforms UPDATEs as PostgreSQL's table says, and only published actions pass."""

from __future__ import annotations

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from headgate.changes import filter as row_filter

SCHEMA = "commit_lsn bigint, seq bigint, position bigint, op string, old struct<a:int,b:string>, new struct<a:int,b:string>"
MATCH, NOT, NULL = (10, "m"), (1, "n"), (None, "null")

CASES = [
    ("I", None, NOT, None),
    ("I", None, MATCH, ("I", None, MATCH)),
    ("I", None, NULL, None),
    ("D", NOT, None, None),
    ("D", MATCH, None, ("D", MATCH, None)),
    ("D", NULL, None, None),
    ("U", NOT, NOT, None),
    ("U", NOT, MATCH, ("I", None, MATCH)),
    ("U", MATCH, NOT, ("D", MATCH, None)),
    ("U", MATCH, MATCH, ("U", MATCH, MATCH)),
    ("U", NULL, MATCH, ("I", None, MATCH)),
    ("U", MATCH, NULL, ("D", MATCH, None)),
    ("U", NULL, NULL, None),
]


def above_five(side: str) -> Column:
    """a > 5"""
    return F.col(f"{side}.a") > 5


def test_every_case_of_the_update_transformation_is_applied(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 0, position, op, old, new) for position, (op, old, new, _) in enumerate(CASES)], SCHEMA)
    published_rows = {
        published_row["position"]: published_row for published_row in row_filter.apply(frame, above_five).toArrow().to_pylist()
    }

    def row(value: tuple[int | None, str] | None) -> dict[str, int | str | None] | None:
        return None if value is None else {"a": value[0], "b": value[1]}

    for position, (_, _, _, expected) in enumerate(CASES):
        if expected is None:
            assert position not in published_rows
        else:
            assert (published_rows[position]["op"], published_rows[position]["old"], published_rows[position]["new"]) == (
                expected[0],
                row(expected[1]),
                row(expected[2]),
            )


@pytest.mark.parametrize(
    ("published", "expected_operations"), [({"insert"}, "I"), ({"update", "delete"}, "UD"), ({"insert", "update", "delete"}, "IUD")]
)
def test_only_published_actions_pass(spark: SparkSession, published: set[str], expected_operations: str) -> None:
    frame = spark.createDataFrame([(1, 0, 0, "I", None, MATCH), (1, 0, 1, "U", NOT, MATCH), (1, 0, 2, "D", NOT, None)], SCHEMA)
    chosen = row_filter.actions(frame, **{action: action in published for action in ("insert", "update", "delete")})
    rows = chosen.orderBy("position").toArrow().to_pylist()
    assert "".join(row["op"] for row in rows) == expected_operations
