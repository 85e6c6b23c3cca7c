"""UPDATE and DELETE of few rows by the driver: looked up by their key, or in a small table, and computed column by column.

Called by `update`, `delete` and `on_conflict` before they plan a Spark job. What comes back are changed rows as `assignment` writes them;
None where the statement is not so simple (`table_rows`): it then goes its usual way. The table's lock is taken before rows are read, in
either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.commands.dml import assignment, current_row
from headgate.commands.dml.rows import many_rows
from headgate.commands.publication import replica_identity
from headgate.commands.query.driver import key_lookup
from headgate.commands.query.driver.table_rows import HeldTable, usual_way_says
from headgate.commands.query.planner import Planner
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Expression, SetToDefault
from headgate.sql.parser import walk
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.write import arrow_row
from headgate.types import buffers

_NOT_HERE = frozenset({"SubLink", "FuncCall", "MultiAssignRef"})


def updated(
    planner: Planner, relation: Relation, node: pb.UpdateStmt, name: tuple[str, str | None], *, keeps_keys: bool
) -> pa.Table | None:
    """The rows that an UPDATE changes: `old`, `new`, `file`, `row`."""

    def new(table: HeldTable) -> Callable[[pa.Table], pa.StructArray]:
        made = _set_list(table, node.target_list)
        return lambda rows: _new_rows(table, made, rows)

    return _changed(planner, relation, node, name, new, action="update", keeps_keys=keeps_keys)


def deleted(planner: Planner, relation: Relation, node: pb.DeleteStmt, name: tuple[str, str | None]) -> pa.Table | None:
    """The rows that a DELETE removes: the same with `new` NULL."""
    row = pa.struct(list(arrow_row(relation)))

    def new(_: HeldTable) -> Callable[[pa.Table], pa.Array]:
        return lambda rows: pa.nulls(rows.num_rows, row)

    return _changed(planner, relation, node, name, new, action="delete", keeps_keys=True)


def taken(planner: Planner, relation: Relation, clause: pb.OnConflictClause, name: str, rows: pa.Table) -> pa.Table | None:
    """The rows that ON CONFLICT DO UPDATE changes: `rows` has the stored row's columns, those of the proposed row, `file` and `row`."""
    if any(each.DESCRIPTOR.name in _NOT_HERE for each in walk(clause)):
        return None
    width = len(relation.columns)
    try:
        table = HeldTable(planner, relation, name, None, also="excluded")
        with usual_way_says():
            condition, made = table.where(clause), _set_list(table, clause.target_list)
        found = table.passing(rows, condition)
        old = _struct(found.select(range(width)).rename_columns([each.name for each in relation.columns]))
        return pa.table({"old": old, "new": _new_rows(table, made, found), "file": found["file"], "row": found["row"]})
    except NotColumnwise:
        return None


def _new_rows(table: HeldTable, made: dict[str, Expression], rows: pa.Table) -> pa.StructArray:
    """The rows with the new values; the table's columns come first in `rows`."""
    row = arrow_row(table.relation)
    values = dict(zip(made, table.values(rows, list(made.values())), strict=True))
    columns = [values.get(field.name, rows.column(place)) for place, field in enumerate(row)]
    if any(column.type != field.type for column, field in zip(columns, row, strict=True)):
        raise NotColumnwise("a value that is stored otherwise")
    return _struct(pa.table(columns, schema=row))


def _changed(
    planner: Planner,
    relation: Relation,
    node: pb.DeleteStmt | pb.UpdateStmt,
    name: tuple[str, str | None],
    new: Callable[[HeldTable], Callable[[pa.Table], pa.Array]],
    *,
    action: str,
    keeps_keys: bool,
) -> pa.Table | None:
    if planner.describing or node.HasField("with_clause") or any(each.DESCRIPTOR.name in _NOT_HERE for each in walk(node)):
        return None
    try:
        table = HeldTable(planner, relation, *name)
        with usual_way_says():
            condition, value = table.where(node), new(table)
            replica_identity.check(planner.transaction.cursor, relation, action)
        rows = table.passing(_among(table, node, condition, keeps_keys=keeps_keys), condition)
        old = _struct(rows.select([each.name for each in relation.columns]))
        return pa.table({"old": old, "new": value(rows), "file": rows[FILE], "row": rows[ROW]})
    except NotColumnwise:
        return None


def _set_list(table: HeldTable, targets: Sequence[pb.Node]) -> dict[str, Expression]:
    """The new values, by column."""
    found = {}
    for name, value in assignment.set_list(targets, table.planner, table.relation, table.scope).items():
        if isinstance(value, SetToDefault):
            raise NotColumnwise("DEFAULT")
        found[name] = table.prepared(value)
    return found


def _among(table: HeldTable, node: pb.DeleteStmt | pb.UpdateStmt, condition: Expression | None, *, keeps_keys: bool) -> pa.Table:
    """Rows among which are those that the statement means, and where each is; the table's write lock is taken."""
    planner, relation = table.planner, table.relation
    if current_row.is_asked(node):
        return current_row.positions(planner, relation, node, keeps_keys=keeps_keys)
    keys = None if condition is None else key_lookup.of_where(planner, relation, node.where_clause, table.scope)
    if keys is not None:
        return key_lookup.positions(planner, relation, keys, keeps_keys=keeps_keys)
    held = planner.transaction.held_positions(relation, keeps_keys=keeps_keys)
    if held is None or held.num_rows > many_rows.most(planner.session):
        raise NotColumnwise("many rows")
    return held


def _struct(rows: pa.Table) -> pa.StructArray:
    return buffers.whole(rows.to_struct_array())
