"""System catalogs, and functions that only the catalog can answer, in a query on user tables: their rows become a small frame.

The catalog answers a query of all columns of that relation. Its text result is read into the stored types.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headgate.analysis.query import PlanColumn, Query, RelationItem, every_column
from headgate.catalog.physical import one
from headgate.catalog.relation.relation import Relation
from headgate.commands.query.plan import Plan
from headgate.commands.query.planner import Planner
from headgate.expression.node import TypeRef
from headgate.storage.spark.local_relation import local_frame
from headgate.types import registry
from headgate.types.resultset import ResultSet
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text


def read(planner: Planner, item: RelationItem) -> Plan:
    return answer(planner, every_column(item, item.star))


def answer(planner: Planner, query: Query) -> Plan:
    """Return the rows of a query that the catalog can answer by itself."""
    from headgate.commands.query.catalog import answer as catalog

    return frame_of(planner, catalog.run(planner, query))


def sequence(planner: Planner, relation: Relation) -> Plan:
    """Return the one row of a sequence: last_value, log_cnt, is_called."""
    state = one(
        planner.transaction.cursor,
        "SELECT last_value, is_called FROM hg.sequence_state WHERE dbid = ? AND seqrelid = ?",
        [relation.database, relation.oid],
    )
    last, called = state if state is not None else (1, False)
    columns = tuple(
        PlanColumn(name, TypeRef(kind), planner.key(name), relation.oid, place)
        for place, (name, kind) in enumerate((("last_value", registry.INT8), ("log_cnt", registry.INT8), ("is_called", registry.BOOL)), 1)
    )
    values = [pa.array([last], pa.int64()), pa.array([0], pa.int64()), pa.array([called], pa.bool_())]
    return Plan(local_frame(planner.session_spark, pa.table(values, names=[column.key for column in columns])), columns)


def frame_of(planner: Planner, result: ResultSet) -> Plan:
    """Convert a result in text form to a frame in stored types."""
    columns = columns_of(planner, result)
    return Plan(local_frame(planner.session_spark, stored(columns, list(result.batches))), columns)


def columns_of(planner: Planner, result: ResultSet) -> tuple[PlanColumn, ...]:
    return tuple(
        PlanColumn(column.name, TypeRef(column.type_oid, column.typmod, _collation(column.type_oid)), planner.key(column.name))
        for column in result.columns
    )


def stored(columns: Sequence[PlanColumn], batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Convert rows from text form to stored types, with the keys of their columns as names."""
    fields = []
    for place, column in enumerate(columns):
        kind = arrow_type(column.type.oid, column.type.typmod)
        texts = pa.chunked_array([batch.column(place) for batch in batches], pa.string())
        fields.append(read_text(texts, column.type.oid, column.type.typmod) if kind != pa.string() else texts)
    if columns:
        return pa.table(fields, names=[column.key for column in columns])
    return pa.table({"none": pa.array([None] * sum(batch.num_rows for batch in batches), pa.bool_())})


def _collation(oid: int) -> int:
    pg_type = registry.known().find(oid)
    return 0 if pg_type is None else pg_type.collation
