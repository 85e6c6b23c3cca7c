"""Spark's tasks encode a large write to the same bytes as the driver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pyspark.errors import PySparkException
from tests.storage.tables import DATABASE, INT4, INT8, TEXT, change, made, relation, rows

from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.errors import PostgresError
from headgate.publisher import tasks
from headgate.publisher.change_reader import ChangeReader
from headgate.publisher.decoded import ChangeCache
from headgate.publisher.published import FILTERED, Published
from headgate.publisher.rendering import Rendered, Renderer, ValueForm
from headgate.rowfilter.filter import bind_filter
from headgate.sql.parser import parse_expression
from headgate.storage import feed
from headgate.storage.delta import parquet
from headgate.storage.engine import Engine
from headgate.storage.transaction.log import TableWrite

COUNT = 400
SEND_TIME = 799_999_999_000_000
"""Microseconds since 2000."""


def table(oid: int, identity: ReplicaIdentity) -> Relation:
    """Return the description of a table."""
    return replace(relation(oid, f"t{oid}", id=INT8, n=INT4, v=TEXT), replica_identity=identity)


def large_writes(engine: Engine, described: Relation, monkeypatch: pytest.MonkeyPatch) -> list[TableWrite]:
    """Insert, update and delete rows in files of many row groups; return the three writes."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 37)
    monkeypatch.setattr(feed, "PIECE_ROWS", 10)
    made(engine, described)
    begin = engine.log.end
    for act in (
        lambda writer: writer.append(described, rows(described, *[(number, number % 10, f"v{number}") for number in range(COUNT)])),
        lambda writer: change(writer, described, "n < 9", v="concat(v, 'x')", n="(n + 1) % 10"),
        lambda writer: change(writer, described, "id % 2 = 0"),
    ):
        writer = engine.begin(DATABASE)
        act(writer)
        writer.commit()
    return [write for entry in engine.log.entries(begin, DATABASE, 10) for write in entry.writes]


def published(described: Relation, condition: str | None) -> Published:
    """Publish all operations of a table, filtered."""
    trees = {} if condition is None else dict.fromkeys(FILTERED, (bind_filter(parse_expression(condition), described).dump(),))
    return Published(described, described, frozenset(FILTERED), trees, (1, 2, 3), ("p",))


def sent(parts: list[Rendered]) -> tuple[bytes, list[int]]:
    """Return the bytes and the LSNs of frames."""
    return b"".join(bytes(part.frames.bytes()) for part in parts), np.concatenate([part.lsn for part in parts] or [[]]).tolist()


@pytest.mark.parametrize(
    ("condition", "identity"),
    [
        ("n > 3", ReplicaIdentity.FULL),
        pytest.param("n > 3", ReplicaIdentity.DEFAULT, marks=pytest.mark.slow),
        pytest.param(None, ReplicaIdentity.FULL, marks=pytest.mark.slow),
        pytest.param("v LIKE '%x'", ReplicaIdentity.FULL, marks=pytest.mark.slow),
        pytest.param("n + 1 > 3", ReplicaIdentity.FULL, marks=pytest.mark.slow),
    ],
)
def test_tasks_encode_a_write_to_the_bytes_of_the_driver(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, condition: str | None, identity: ReplicaIdentity
) -> None:
    described = table(28400, identity)
    writes = large_writes(engine, described, monkeypatch)
    plan = published(described, condition)
    for form in (ValueForm(), ValueForm(binary=True)):
        driver, by_tasks = (Renderer(ChangeReader(engine, ChangeCache(), DATABASE), form) for _ in range(2))
        expected = [sent(list(driver.large(plan, write, SEND_TIME))) for write in writes]
        assert [sent(list(tasks.encode(by_tasks, plan, write, SEND_TIME))) for write in writes] == expected
        assert sum(len(lsns) for _, lsns in expected) > 100
        assert by_tasks.judged.counts == driver.judged.counts


def test_pair_of_rows_divided_by_a_row_group_boundary_is_read_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    described = table(28401, ReplicaIdentity.FULL)
    updates = large_writes(engine, described, monkeypatch)[1]
    files = feed.WriteFiles.of(engine.tables, described, updates)
    cuts = files.cuts()
    assert len(cuts) > 10
    read = [row for cut in cuts for piece in files.pieces(cut) for row in piece.to_pylist()]
    assert [row["position"] for row in read] == [
        row["position"] for piece in feed.pieces(engine.tables, described, updates) for row in piece.to_pylist()
    ]
    assert all(row["old"]["id"] == row["new"]["id"] for row in read)
    assert len(read) == updates.changes


def test_rows_for_which_a_filter_is_not_exact_are_evaluated_by_the_driver_and_raise_its_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = table(28402, ReplicaIdentity.FULL)
    inserts = large_writes(engine, described, monkeypatch)[0]
    renderer = Renderer(ChangeReader(engine, ChangeCache(), DATABASE), ValueForm())
    with pytest.raises((PostgresError, PySparkException), match=r"division by zero|DIVIDE_BY_ZERO|22012"):
        list(tasks.encode(renderer, published(described, "100 / (id - 200) < 50"), inserts, SEND_TIME))


@pytest.mark.parametrize(("small", "streams", "by_tasks"), [("399", 1, True), ("400", 1, False), ("0", 1, True), ("0", 2, False)])
def test_tasks_encode_large_writes_of_a_single_stream(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, small: str, streams: int, by_tasks: bool
) -> None:
    described = table(28403, ReplicaIdentity.DEFAULT)
    inserts = large_writes(engine, described, monkeypatch)[0]
    monkeypatch.setattr(engine, "settings", {"small_batch_rows": small})
    shared = ChangeCache()
    for _ in range(streams):
        shared.enter(DATABASE)
    assert tasks.takes(Renderer(ChangeReader(engine, shared, DATABASE), ValueForm()), inserts) == by_tasks
