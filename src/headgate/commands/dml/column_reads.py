"""Find out whether a statement reads the table that it writes. It must then also meet the policies for SELECT (`row_security.RULES`).

As in PostgreSQL (ACL_SELECT of requiredPerms), a statement reads the table if one of its expressions names a column of it. `UPDATE t SET
a = 1` does not read t, `UPDATE t SET a = a + 1` does. The expressions are bound by a planner that runs nothing. Called only for tables and
roles to which row security applies, and by `execute` for tables with BEFORE STATEMENT triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from postgast import pg_query_pb2 as pb

from headgate.analysis import from_clause as analysis
from headgate.analysis import select_list
from headgate.analysis.query import FromItem, PlanColumn, Query, RelationItem, parts
from headgate.catalog.relation.relation import Relation
from headgate.commands import privilege
from headgate.commands.dml import assignment
from headgate.commands.query.clause import from_clause
from headgate.commands.query.evaluation import table_oid_keys
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.session import Session
from headgate.expression.binding import binder, part_assignment
from headgate.expression.binding.scope import EMPTY, ScopeTable
from headgate.expression.node import ColumnRef, Expression, SetToDefault
from headgate.sql.parser import ParseNode, has_condition, unwrap


def of_insert(planner: QueryPlanner, relation: Relation, node: pb.InsertStmt) -> bool:
    """Return whether an INSERT reads its table: in RETURNING, or to find conflicts of a named target."""
    if node.on_conflict_clause.HasField("infer"):
        return True
    bound = _Bound(planner, relation, node.relation)
    return bound.reads(bound.returned(node.returning_clause, bound.source(None)))


def of_change(planner: QueryPlanner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt) -> bool:
    bound = _Bound(planner, relation, node.relation)
    return bound.reads(_of_change(bound, node)[1])


def of_merge(planner: QueryPlanner, relation: Relation, node: pb.MergeStmt) -> bool:
    """Return whether a MERGE reads its table. The values of its INSERT actions cannot name columns of it."""
    bound = _Bound(planner, relation, node.relation)
    return bound.reads(_of_merge(bound, node)[1])


def permit(node: ParseNode, session: Session, relation: Relation) -> None:
    """Raise 42501 without the rights to read the columns that the clauses of a statement name, also in subqueries.

    A statement checks them again when it runs. It is called before BEFORE STATEMENT triggers fire. Relations inside views are not checked.
    """
    if privilege.is_superuser(session.begin_statement().cursor, session.context.user):
        return
    planner = QueryPlanner(session, session.begin_statement(), {n: parameter.type_oid for n, parameter in enumerate(session.parameters, 1)})
    planner.with_queries(node)
    bound = _Bound(planner, relation, node.relation)
    source, expressions = _CLAUSES[node.DESCRIPTOR.name](bound, node)
    bound.permit(source, tuple(expressions))


def _of_change(bound: _Bound, node: pb.DeleteStmt | pb.UpdateStmt) -> tuple[FromItem, Iterator[Expression]]:
    """Return the relations and the expressions of an UPDATE or DELETE."""
    updating = node.DESCRIPTOR.name == "UpdateStmt"
    items = node.from_clause if updating else node.using_clause
    others = analysis.analyse(bound.planner.analyser, items, None) if items else None
    source = bound.source(others)

    def expressions() -> Iterator[Expression]:
        if has_condition(node):
            yield bound.condition(node.where_clause, source, "WHERE")
        if updating:
            yield from bound.assigned(node.target_list, source)
        yield from bound.returned(node.returning_clause, source)

    return others or FromItem(), expressions()


def _of_merge(bound: _Bound, node: pb.MergeStmt) -> tuple[FromItem, Iterator[Expression]]:
    """Return the relations and the expressions of a MERGE, without the values of INSERT."""
    others = analysis.item(bound.planner.analyser, node.source_relation, None)
    source = bound.source(others)

    def expressions() -> Iterator[Expression]:
        yield bound.condition(node.join_condition, source, "MERGE")
        for clause in map(unwrap, node.merge_when_clauses):
            if clause.match_kind != pb.MERGE_WHEN_MATCHED:
                continue
            if clause.HasField("condition"):
                yield bound.condition(clause.condition, source, "MERGE WHEN")
            yield from bound.assigned(clause.target_list, source)

    return others, expressions()


def _of_insert(bound: _Bound, node: pb.InsertStmt) -> tuple[Query | None, Iterator[Expression]]:
    """Return the query and the expressions of an INSERT."""
    query, planner = unwrap(node.select_stmt), bound.planner
    context = planner.context.within(construct="VALUES", default=True, sets=True)

    def expressions() -> Iterator[Expression]:
        for row in query.values_lists if query is not None else ():
            yield from (binder.bind_raw(item, EMPTY, context) for item in unwrap(row).items)
        clause = node.on_conflict_clause
        if clause.action == pb.ONCONFLICT_UPDATE:
            excluded, columns = from_clause.named_table(planner, bound.relation, "excluded", None)
            source = bound.source(FromItem((excluded,), columns))
            yield from bound.assigned(clause.target_list, source)
            if clause.HasField("where_clause"):
                yield bound.condition(clause.where_clause, source, "WHERE")
        yield from bound.returned(node.returning_clause, bound.source(None))

    return None if query is None or query.values_lists else planner.analyse(query), expressions()


_CLAUSES: dict[str, Callable[[_Bound, ParseNode], tuple[FromItem | Query | None, Iterator[Expression]]]] = {
    "InsertStmt": _of_insert, "UpdateStmt": _of_change, "DeleteStmt": _of_change, "MergeStmt": _of_merge,
}  # fmt: skip


class _Bound:
    """The clauses of one statement, bound by a planner that runs nothing."""

    def __init__(self, planner: QueryPlanner, relation: Relation, node: pb.RangeVar) -> None:
        self.planner = planner.nested(describing=True)
        self.relation = relation
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
        for value in assignment.set_list(targets, self.planner, self.relation, source.scope(None)).values():
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

    def permit(self, source: FromItem | Query | None, expressions: tuple[Expression, ...]) -> None:
        """Raise 42501 unless the role may read the columns that are named of the table and of the other relations."""
        nodes = list(parts((source, expressions)))
        keys = {node.key for node in nodes if isinstance(node, ColumnRef)}
        cursor, role = self.planner.transaction.cursor, self.planner.role
        own = [column.attnum for column in self._table[1] if column.key in keys]
        privilege.check_columns(cursor, role, self.relation, "SELECT", own)
        for item in (node for node in nodes if isinstance(node, RelationItem)):
            privilege.readable(cursor, role, item.relation)
            privilege.check_columns(cursor, role, item.relation, "SELECT", [column.attnum for column in item.star if column.key in keys])
