"""Find out whether a statement reads the table that it writes. It must then also meet the policies for SELECT (`row_security.RULES`).

As in PostgreSQL (ACL_SELECT of requiredPerms), a statement reads the table if one of its expressions names a column of it. `UPDATE t SET
a = 1` does not read t, `UPDATE t SET a = a + 1` does. The expressions are bound by a planner that runs nothing. Called only for tables and
roles to which row security applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from postgast import pg_query_pb2 as pb

from headgate.analysis import from_clause as analysis
from headgate.analysis import select_list
from headgate.analysis.query import FromItem, PlanColumn
from headgate.catalog.relation.relation import Relation
from headgate.commands.dml import assignment
from headgate.commands.query.clause import from_clause
from headgate.commands.query.evaluation import table_oid_keys
from headgate.commands.query.planner import Planner
from headgate.expression.binding import binder, part_assignment
from headgate.expression.binding.scope import ScopeTable
from headgate.expression.node import Expression, SetToDefault
from headgate.sql.parser import has_condition, unwrap


def of_insert(planner: Planner, relation: Relation, node: pb.InsertStmt) -> bool:
    """Return whether an INSERT reads its table: in RETURNING, or to find conflicts of a named target."""
    if node.on_conflict_clause.HasField("infer"):
        return True
    bound = _Bound(planner, relation, node.relation)
    return bound.reads(bound.returned(node.returning_clause, bound.source(None)))


def of_change(planner: Planner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt) -> bool:
    bound = _Bound(planner, relation, node.relation)
    updating = node.DESCRIPTOR.name == "UpdateStmt"
    items = node.from_clause if updating else node.using_clause
    source = bound.source(analysis.analyse(bound.planner.analyser, items, None) if items else None)

    def expressions() -> Iterator[Expression]:
        if has_condition(node):
            yield bound.condition(node.where_clause, source, "WHERE")
        if updating:
            yield from bound.assigned(node.target_list, source)
        yield from bound.returned(node.returning_clause, source)

    return bound.reads(expressions())


def of_merge(planner: Planner, relation: Relation, node: pb.MergeStmt) -> bool:
    """Return whether a MERGE reads its table. The values of its INSERT actions cannot name columns of it."""
    bound = _Bound(planner, relation, node.relation)
    source = bound.source(analysis.item(bound.planner.analyser, node.source_relation, None))

    def expressions() -> Iterator[Expression]:
        yield bound.condition(node.join_condition, source, "MERGE")
        for clause in map(unwrap, node.merge_when_clauses):
            if clause.match_kind != pb.MERGE_WHEN_MATCHED:
                continue
            if clause.HasField("condition"):
                yield bound.condition(clause.condition, source, "MERGE WHEN")
            yield from bound.assigned(clause.target_list, source)

    return bound.reads(expressions())


class _Bound:
    """The clauses of one statement, bound by a planner that runs nothing."""

    def __init__(self, planner: Planner, relation: Relation, node: pb.RangeVar) -> None:
        self.planner = planner.nested(describing=True)
        self._relation = relation
        alias = node.alias.aliasname
        table = from_clause.named_table(self.planner, relation, alias or relation.name, None if alias else relation.schema)
        self._table: tuple[ScopeTable, Sequence[PlanColumn]] = table

    def source(self, others: FromItem | None) -> FromItem:
        """Return the names of the table and the other relations of the statement."""
        table, columns = self._table
        if others is None:
            return FromItem((table,), tuple(columns))
        return FromItem((table, *others.tables), (*columns, *others.star), others.merged)

    def condition(self, node: pb.Node, source: FromItem, construct: str) -> Expression:
        context = self.planner.context.within(construct=construct, aggregates=False)
        return binder.bind_condition(node, source.scope(None), construct, context=context)

    def assigned(self, targets: Sequence[pb.Node], source: FromItem) -> Iterator[Expression]:
        for value in assignment.set_list(targets, self.planner, self._relation, source.scope(None)).values():
            if not isinstance(value, SetToDefault):
                yield from part_assignment.operands(value)

    def returned(self, clause: pb.ReturningClause, source: FromItem) -> Iterator[Expression]:
        context = self.planner.context.within(construct="RETURNING", aggregates=False)
        for item in select_list.expand(clause.exprs, source, source.scope(None), context):
            yield item.expression

    def reads(self, expressions: Iterable[Expression]) -> bool:
        """Return whether one of the expressions, or a subquery in it, names a column of the table."""
        evaluation, (table, columns) = self.planner.evaluation, self._table
        for expression in expressions:
            evaluation.places(self.planner.prepare(expression))
        keys = {column.key for column in columns} | {table.row_key, *table_oid_keys(f"{table.name}.tableoid")}
        return not keys.isdisjoint(evaluation.named)
