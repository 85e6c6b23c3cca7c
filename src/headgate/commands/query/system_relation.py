"""A system catalog, or a function that only the catalog can answer, inside a query on user tables: its rows become a small frame.

The catalog answers a ``SELECT *`` of that relation alone; what it gives is text, which is read into the stored types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.catalog.relation import Relation
from headgate.commands.query.plan import Plan, PlanColumn
from headgate.expression.node import TypeRef
from headgate.sql import names
from headgate.sql.parser import parse
from headgate.types import registry
from headgate.types.resultset import ResultSet
from headgate.types.storage import arrow_type
from headgate.types.text import read_text

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner


def read(planner: Planner, node: Any, relation: Relation) -> Plan:
    """All rows of a system relation."""
    return answer(planner, f"SELECT * FROM {names.qualified(relation.schema, relation.name)}")


def answer(planner: Planner, sql: str) -> Plan:
    """The rows of a query that the catalog can answer by itself."""
    from headgate.catalog import query

    session = planner.session
    [statement] = parse(sql)
    result = query.answer(statement.node, sql, session.context, planner.transaction.cursor, session.dynamic)
    return frame_of(planner, result)


def frame_of(planner: Planner, result: ResultSet) -> Plan:
    """A result in text form as a frame in stored types."""
    columns = [
        PlanColumn(each.name, TypeRef(each.type_oid, each.typmod, _collation(each.type_oid)), planner.key(each.name))
        for each in result.columns
    ]
    batches = list(result.batches)
    fields = []
    for place, column in enumerate(columns):
        kind = arrow_type(column.type.oid, column.type.typmod)
        texts = pa.chunked_array([batch.column(place) for batch in batches], pa.string())
        value = read_text(texts, column.type.oid, column.type.typmod) if kind != pa.string() else texts
        fields.append(value)
    table = (
        pa.table(fields, names=[each.key for each in columns])
        if columns
        else pa.table({"none": pa.array([None] * sum(b.num_rows for b in batches), pa.bool_())})
    )
    return Plan(planner.session_spark.createDataFrame(table), tuple(columns))


def _collation(oid: int) -> int:
    found = registry.known().find(oid)
    return 0 if found is None else found.collation
