"""The driver or Spark's tasks evaluate a row filter on a batch of changes, with the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.storage.tables import INT4, TEXT, relation

from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.publisher import gate
from headgate.publisher.decoded import DecodedChanges
from headgate.publisher.published import FILTERED, Published, PublishedAction
from headgate.rowfilter.filter import bind_filter
from headgate.sql.parser import parse_expression
from headgate.storage.engine import Engine
from headgate.storage.write import arrow_row

T = replace(relation(26000, "t", a=INT4, b=TEXT), replica_identity=ReplicaIdentity.FULL)
CHANGES = [
    ("I", None, (1, "x")),
    ("I", None, (9, "x")),
    ("I", None, (None, "x")),
    ("U", (1, "x"), (2, "x")),
    ("U", (1, "x"), (8, "x")),
    ("U", (8, "x"), (1, "x")),
    ("U", (8, "x"), (9, "x")),
    ("D", (1, None), None),
    ("D", (9, None), None),
]
SENT = "0 I 0 0 I D U 0 D"


def changes() -> DecodedChanges:
    """Return the changes, each with its position in the log."""
    row = pa.struct(list(arrow_row(T)))

    def rows(side: int) -> pa.Array:
        return pa.array([None if change[side] is None else dict(zip("ab", change[side], strict=True)) for change in CHANGES], row)  # type: ignore[arg-type]

    places = pa.array(range(len(CHANGES)), pa.int64())
    table = pa.table(
        {"commit_lsn": places, "seq": places, "position": places, "op": [change[0] for change in CHANGES], "old": rows(1), "new": rows(2)}
    )
    return DecodedChanges(table, places.to_numpy())


def published(condition: str) -> Published:
    """Return the description of the table under a filter, for all operations."""
    tree = bind_filter(parse_expression(condition), T).dump()
    return Published(T, T, frozenset(FILTERED), dict.fromkeys(FILTERED, (tree,)), (1, 2))


def sent(engine: Engine, plan: Published) -> str:
    """Return the kinds of the messages under which the changes are sent."""
    return " ".join("0" if not letter else chr(letter) for letter in gate.verdicts(engine, changes(), plan))


@pytest.fixture
def tasks(spark: SparkSession) -> Callable[[], int]:
    """Return how many Spark tasks have ended since the last call."""
    context: Any = spark._jsparkSession.sparkContext()  # type: ignore[attr-defined]
    known_tasks: set[int] = set()

    def new() -> int:
        context.listenerBus().waitUntilEmpty()
        listed = context.statusStore().jobsList(None)
        fresh = [job for job in map(listed.apply, range(listed.size())) if job.jobId() not in known_tasks]
        known_tasks.update(job.jobId() for job in fresh)
        return sum(job.numCompletedTasks() for job in fresh)

    new()
    return new


@pytest.mark.parametrize(("small", "by_tasks"), [(1, False), (0, True)])
def test_filter_known_to_arrow_is_evaluated_by_the_driver_unless_small_batch_rows_is_0(
    engine: Engine, tasks: Callable[[], int], monkeypatch: pytest.MonkeyPatch, small: int, by_tasks: bool
) -> None:
    monkeypatch.setattr(engine, "settings", {"small_batch_rows": str(small)})
    plan = published("a > 7")
    assert sent(engine, plan) == SENT
    assert bool(tasks()) == by_tasks
    assert gate.needs_spark(engine, changes(), plan) == by_tasks
    assert not gate.needs_spark(engine, changes(), Published(T, T, frozenset({PublishedAction.INSERT})))


def test_filter_unknown_to_arrow_is_evaluated_by_tasks_if_small_batch_rows_is_0(
    engine: Engine, tasks: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = published("a + 1 > 8")
    for small in ("1000000", "0"):  # few rows are judged by Spark's optimizer, in the driver's Java
        monkeypatch.setattr(engine, "settings", {"small_batch_rows": small})
        assert sent(engine, plan) == SENT
        assert bool(tasks()) == (small == "0")
