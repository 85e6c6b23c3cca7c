"""Evaluate SET lists, for UPDATE, MERGE and ON CONFLICT DO UPDATE. `changed_rows` writes the changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.analysis.query import PlanColumn
from headgate.catalog.relation.relation import Relation
from headgate.commands import stored_expression
from headgate.commands.dml.rows import storage_error
from headgate.commands.dml.rows.new_rows import Default, NewRows, default_of
from headgate.commands.query import row_by_row
from headgate.commands.query.driver import values_list
from headgate.commands.query.plan import Source, col
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.part_assignment import Target
from headgate.expression.binding.scope import Scope, column_of
from headgate.expression.node import Expression, SetToDefault
from headgate.sql.parser import ParseNode, beginning, unwrap
from headgate.storage.spark.persisted import persisted, places
from headgate.types.storage import spark_type


def set_list(
    targets: Sequence[pb.Node], planner: Planner, relation: Relation, scope: Scope, context: BindContext | None = None
) -> dict[str, Expression | SetToDefault]:
    """Return the new value of each column in the SET list, in the column's type. `context`: that of the planner if it is None.

    As in PostgreSQL, an error in any of the values comes before an error in a column's name.
    """
    context = (context or planner.context).within(construct="UPDATE", default=True)
    values: dict[str, Expression | SetToDefault] = {}
    parts: set[str] = set()
    for target, source in _bind_targets(targets, planner, scope, context):
        bound = source
        column = relation.existing_column(target.name, location=target.location)
        if target.name in values and not (target.indirection and target.name in parts):
            raise PostgresError("42601", f'multiple assignments to same column "{target.name}"')
        if target.indirection:
            parts.add(target.name)
            current = values.get(target.name) or column_of(scope.tables[0], target.name)
            part = Target(column.name, target.indirection, target.location, scope, context, binder.bind_raw)
            bound = part.store(current, bound)
        if not isinstance(bound, SetToDefault):
            with storage_error.entering(relation.name, column.name):
                constant = values_list.folded(bound, stored_expression.type_of(column))
                bound = constant if constant is not None else binder.assign(bound, stored_expression.type_of(column), column.name, context)
        if column.generated is not None and not isinstance(bound, SetToDefault):
            raise PostgresError(
                "428C9", f'column "{column.name}" can only be updated to DEFAULT', detail=f'Column "{column.name}" is a generated column.'
            )
        if column.identity == "a" and not isinstance(bound, SetToDefault):
            raise PostgresError(
                "428C9",
                f'column "{column.name}" can only be updated to DEFAULT',
                detail=f'Column "{column.name}" is an identity column defined as GENERATED ALWAYS.',
            )
        values[target.name] = bound
    return values


def _bind_targets(
    targets: Sequence[pb.Node], planner: Planner, scope: Scope, context: BindContext
) -> list[tuple[ParseNode, Expression | SetToDefault]]:
    row: Sequence[Expression] = ()
    values: list[tuple[ParseNode, Expression | SetToDefault]] = []
    for target in map(unwrap, targets):
        node = unwrap(target.val)
        if node.DESCRIPTOR.name != "MultiAssignRef":
            values.append((target, binder.bind_raw(node, scope, context)))
            continue
        if node.HasField("source"):  # only the first target of a row has it
            row = _row(unwrap(node.source), node.ncolumns, planner, scope, context)
        values.append((target, row[node.colno - 1]))
    return values


def _row(source: ParseNode, width: int, planner: Planner, scope: Scope, context: BindContext) -> Sequence[Expression]:
    """Return the values of ``SET (a, b) = (x, y)`` or ``= (SELECT …)``. Raise 42601 unless there are `width` of them."""
    if source.DESCRIPTOR.name == "SubLink":
        links = _columns_of(source, len(planner.analyser.select(unwrap(source.subselect), scope).columns))
        row: Sequence[Expression] = [binder.bind_raw(link, scope, context) for link in links]
    elif source.DESCRIPTOR.name == "RowExpr":
        row = binder.row_items(source, scope, context)
    else:
        message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression"
        raise not_supported(message, location=beginning(source))
    if len(row) != width:
        raise PostgresError("42601", "number of columns does not match number of values", location=source.location)
    return row


def _columns_of(node: pb.SubLink, width: int) -> list[pb.SubLink]:
    """Return a scalar subquery for each column of a subquery: ``(SELECT c1 FROM (SELECT …) AS source(c1, c2))``."""
    names = [f"c{number}" for number in range(1, width + 1)]
    targets = unwrap(node.subselect).target_list
    links = []
    for place, name in enumerate(names):
        select = pb.SelectStmt(limit_option=pb.LIMIT_OPTION_DEFAULT, op=pb.SETOP_NONE)
        select.target_list.add().res_target.val.column_ref.fields.add().string.sval = name
        item = select.from_clause.add().range_subselect
        item.subquery.CopyFrom(node.subselect)
        item.alias.aliasname = "source"
        for column in names:
            item.alias.colnames.add().string.sval = column
        location = beginning(unwrap(targets[place]).val) if len(targets) == width else node.location
        links.append(pb.SubLink(sub_link_type=pb.EXPR_SUBLINK, subselect=pb.Node(select_stmt=select), location=location))
    return links


def old_row(relation: Relation, columns: Sequence[PlanColumn]) -> Column:
    """Return the row as it is, as a struct with the relation's columns, over a frame that has it under the keys of `columns`."""
    names = {column.attnum: column.name for column in relation.columns}
    return F.struct(*[col(plan_column.key).alias(names[plan_column.attnum]) for plan_column in columns]).alias("old")


@dataclass(frozen=True)
class NewRow:
    """The new row as a struct with the relation's columns, over a frame that has the old row and may have further columns.

    The columns in `counted` receive numbers of a sequence. They are NULL until the changed rows are known (`numbered`).
    """

    frame: DataFrame
    row: Column
    counted: tuple[Default, ...] = ()


def new_row(
    targets: Sequence[pb.Node], planner: Planner, relation: Relation, columns: Sequence[PlanColumn], source: Source, frame: DataFrame
) -> NewRow:
    """Return the new row over `frame`, which has the old row under the keys of `columns`. `source`: the scope of the SET list."""
    assigned = set_list(targets, planner, relation, source.scope(None))
    named = [name for name, value in assigned.items() if not isinstance(value, SetToDefault)]
    frame, settled = row_by_row.settled(planner.evaluation, frame, [assigned[name] for name in named])
    assigned |= dict(zip(named, settled, strict=True))
    values, counted = [], []
    for plan_column in columns:
        column = relation.numbered(plan_column.attnum)
        assert column is not None
        value = assigned.get(column.name)
        if value is None:
            values.append(col(plan_column.key).alias(column.name))
        elif isinstance(value, SetToDefault):
            default = default_of(relation, column)
            if default.is_counted:
                counted.append(default)
                default = replace(default, expression=None)
            frame, default_value = default.column(planner, frame)
            values.append(default_value.alias(column.name))
        else:
            values.append(planner.column(value).alias(column.name))
    return NewRow(frame, F.struct(*values) if values else F.struct(), tuple(counted))


def numbered(planner: Planner, relation: Relation, changed: DataFrame, new: NewRow, until: ExitStack) -> DataFrame:
    """Return changes (`old`, `new`, and others) with sequence numbers in the counted columns. The rows stay persisted `until` then."""
    if not new.counted:
        return changed
    counted_rows = until.enter_context(persisted(changed))
    position_column, rows = places(counted_rows)
    writer, values = NewRows(planner, relation, violations=()), {}
    numbers: list[Column] = []
    for default in new.counted:
        value, number_columns = writer.numbered_column(default.of, default.expression, position_column, rows, len(numbers))
        values[default.of.name] = value.cast(spark_type(default.of.type_oid, default.of.typmod))
        numbers += number_columns
    fields = [values.get(column.name, F.col("new").getField(column.name)).alias(column.name) for column in relation.columns]
    selected = [F.struct(*fields).alias(name) if name == "new" else F.col(name) for name in changed.columns]
    return counted_rows.select("*", *numbers).select(*selected)
