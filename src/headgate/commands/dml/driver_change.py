"""UPDATE and DELETE of few rows in the driver: looked up by their key, or by a scan of the table, and computed column by column.

Called by `update`, `delete` and `on_conflict` before they plan a Spark job. The functions return changed rows in the form that `assignment`
writes, or None if the statement is not simple enough (`table_rows`), which is then executed by Spark. The table's lock is acquired before
rows are read, in both cases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.commands.dml import assignment, current_row
from headgate.commands.dml.returning import JOINED
from headgate.commands.dml.rows import many_rows
from headgate.commands.publication import replica_identity
from headgate.commands.query.driver import answer, key_lookup, table_scan
from headgate.commands.query.driver.computation import usual_way_says
from headgate.commands.query.driver.table_rows import HeldTable
from headgate.commands.query.planner import Planner
from headgate.expression import columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Expression, SetToDefault, SubLink, conjuncts, walk
from headgate.sql import parser
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.write import arrow_row
from headgate.types import buffers


def updated(
    planner: Planner, relation: Relation, node: pb.UpdateStmt, name: tuple[str, str | None], *, keeps_keys: bool
) -> pa.Table | None:
    """Return the rows that an UPDATE changes: `old`, `new`, `file`, `row`."""

    def new(table: HeldTable) -> Callable[[pa.Table], pa.StructArray]:
        values = _set_list(table, node.target_list)
        known = None
        if any(isinstance(part, SubLink) for value in values.values() for part in walk(value)):
            answer.check_rights(planner, tuple(values.values()))  # PostgreSQL runs these subqueries only if a row is changed
        else:
            known = _computed(table, values)

        def rows_of(rows: pa.Table) -> pa.StructArray:
            if not rows.num_rows:
                return pa.array([], pa.struct(list(arrow_row(relation))))
            return _new_rows(table, _computed(table, values) if known is None else known, rows)

        return rows_of

    return _compute_changes(planner, relation, node, name, new, action="update", keeps_keys=keeps_keys)


def deleted(planner: Planner, relation: Relation, node: pb.DeleteStmt, name: tuple[str, str | None]) -> pa.Table | None:
    """Return the rows that a DELETE removes, with `new` NULL."""
    row = pa.struct(list(arrow_row(relation)))

    def new(_: HeldTable) -> Callable[[pa.Table], pa.Array]:
        return lambda rows: pa.nulls(rows.num_rows, row)

    return _compute_changes(planner, relation, node, name, new, action="delete", keeps_keys=True)


def taken(planner: Planner, relation: Relation, clause: pb.OnConflictClause, name: str, rows: pa.Table) -> pa.Table | None:
    """Return the rows that DO UPDATE changes. `rows` has the columns of the stored and of the proposed row, `file`, `row` and `place`."""
    if any(node.DESCRIPTOR.name == "SubLink" for node in parser.walk(clause)):
        return None
    width = len(relation.columns)
    try:
        table = HeldTable.named(planner, relation, name, None, also="excluded")
        with usual_way_says():
            condition, new_values = table.where(clause), _computed(table, _set_list(table, clause.target_list))
        passing_rows = table.passing(rows, condition)
        old = _struct(passing_rows.select(range(width)).rename_columns([column.name for column in relation.columns]))
        new = _new_rows(table, new_values, passing_rows)
        return pa.table({"old": old, "new": new, "file": passing_rows["file"], "row": passing_rows["row"], JOINED: passing_rows["place"]})
    except NotColumnwise:
        return None


def _new_rows(table: HeldTable, expressions: dict[str, Expression], rows: pa.Table) -> pa.StructArray:
    """Return the rows with the new values. The table's columns come first in `rows`."""
    row = arrow_row(table.relation)
    values = dict(zip(expressions, table.values(rows, list(expressions.values())), strict=True))
    columns = [values.get(field.name, rows.column(index)) for index, field in enumerate(row)]
    if any(column.type != field.type for column, field in zip(columns, row, strict=True)):
        raise NotColumnwise("a value that is stored otherwise")
    return _struct(pa.table(columns, schema=row))


def _compute_changes(
    planner: Planner,
    relation: Relation,
    node: pb.DeleteStmt | pb.UpdateStmt,
    name: tuple[str, str | None],
    new: Callable[[HeldTable], Callable[[pa.Table], pa.Array]],
    *,
    action: str,
    keeps_keys: bool,
) -> pa.Table | None:
    if relation.rows_key in planner.frozen or planner.describing or node.HasField("with_clause"):
        return None
    try:
        table = HeldTable.named(planner, relation, *name, answered=functools.partial(answer.answered, planner))
        with usual_way_says():
            condition, value = table.where(node), new(table)
            replica_identity.check(planner.transaction.cursor, relation, action)
        rows = table.passing(_among(table, node, condition, keeps_keys=keeps_keys), condition)
        old = _struct(rows.select([column.name for column in relation.columns]))
        return pa.table({"old": old, "new": value(rows), "file": rows[FILE], "row": rows[ROW]})
    except NotColumnwise:
        return None


def _set_list(table: HeldTable, targets: Sequence[pb.Node]) -> dict[str, Expression]:
    values = {}
    planner = table.planner
    context = planner.context.within(subquery=planner.analysed_subquery)  # its values are computed before the statement writes
    for name, value in assignment.set_list(targets, planner, table.relation, table.scope, context).items():
        if isinstance(value, SetToDefault):
            raise NotColumnwise("DEFAULT")
        values[name] = value
    return values


def _computed(table: HeldTable, values: Mapping[str, Expression]) -> dict[str, Expression]:
    with usual_way_says():
        return {name: table.computed(value) for name, value in values.items()}


def _among(table: HeldTable, node: pb.DeleteStmt | pb.UpdateStmt, condition: Expression | None, *, keeps_keys: bool) -> pa.Table:
    """Return rows that include all matching ones, with their positions. Acquire the table's write lock."""
    planner, relation = table.planner, table.relation
    if current_row.is_asked(node):
        return current_row.positions(planner, relation, node, keeps_keys=keeps_keys)
    keys = None if condition is None else key_lookup.of_terms(planner, relation, table.star, conjuncts(condition))
    if keys is not None:
        return key_lookup.positions(planner, relation, keys, keeps_keys=keeps_keys)
    rows, most = planner.transaction.reader.held_positions(relation, keeps_keys=keeps_keys), many_rows.most(planner.session)
    if rows is None and condition is not None and columnwise.is_known(condition):
        return table_scan.positions(table, planner.transaction.reader.changing(relation, keeps_keys=keeps_keys), condition, most)
    if rows is None or rows.num_rows > most:
        raise NotColumnwise("many rows")
    return rows


def _struct(rows: pa.Table) -> pa.StructArray:
    return buffers.whole(rows.to_struct_array())
