"""System catalogs, and functions that only the catalog can answer, in a query on user tables: their rows become a small frame.

The catalog answers a query of all columns of that relation. Its text result is read into the stored types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from headgate.analysis.query import FromItem, PlanColumn, Query, Select, SelectItem, reference
from headgate.catalog.physical import one
from headgate.catalog.relation.relation import Relation
from headgate.commands.query import evaluation
from headgate.commands.query.plan import Plan
from headgate.commands.query.planner import Planner
from headgate.expression.duckdb.value import REGISTERED
from headgate.expression.node import Expression, Form, Relabel, TypeRef
from headgate.storage.spark.local_relation import local_frame
from headgate.types import registry
from headgate.types.resultset import ResultSet
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text


def read(planner: Planner, item: FromItem, columns: Sequence[PlanColumn]) -> Plan:
    """Return some columns of a FROM item that the catalog can answer by itself, under their own keys.

    A column of regclass or a similar type holds the name. Its oid is in one more column of the frame, for casts and comparisons.
    """
    from headgate.commands.query.catalog import answer as catalog

    named = [column for column in columns if column.type.oid in REGISTERED]
    oid = TypeRef(registry.OID)
    further = [PlanColumn(column.name, oid, evaluation.oid_key(column.key)) for column in named]
    casts = [Relabel(type=oid, arg=reference(column), form=Form.IMPLICIT) for column in named]
    targets: list[Expression] = [*map(reference, columns), *casts]
    wanted = (*columns, *further)
    selected = [SelectItem(column.name, target) for column, target in zip(wanted, targets, strict=True)]
    plan = frame_of(planner, catalog.run(planner, Query(Select(item, targets=tuple(selected)), wanted)), keys=[c.key for c in wanted])
    planner.evaluation.with_oids.update(column.key for column in named)
    return Plan(plan.frame, plan.columns[: len(columns)])


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


def frame_of(planner: Planner, result: ResultSet, keys: Sequence[str] = ()) -> Plan:
    """Convert a result in text form to a frame in stored types. `keys`: those of its columns, if they are to have given ones."""
    columns = columns_of(planner, result)
    if keys:
        columns = tuple(replace(column, key=key) for column, key in zip(columns, keys, strict=True))
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
