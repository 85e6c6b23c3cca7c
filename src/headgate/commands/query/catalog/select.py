"""Compile an analysed query of system relations to DuckDB's SQL: WITH, set operations, grouping, ordering. `from_item` compiles FROM.

`query` creates a `CatalogQueryPlanner` per statement. `expression.duckdb` compiles the expressions. The planner generates the names of FROM
items and output columns (t1, c1), because DuckDB folds case and PostgreSQL's names are case-sensitive.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.analysis import row_width
from headgate.analysis.query import (
    FunctionItem,
    Grouped,
    GroupingClause,
    JoinItem,
    PlanColumn,
    Query,
    Select,
    SelectItem,
    SetOperation,
    Sort,
    Values,
    reference,
)
from headgate.commands.query.catalog import from_item, session_call
from headgate.commands.query.catalog.planner import CatalogPlanner
from headgate.commands.query.catalog.relation_source import Lookups, Source
from headgate.errors import not_supported
from headgate.expression import builtin, rewriting
from headgate.expression.binding.coercion import strip_implicit
from headgate.expression.duckdb import compiler, set_returning
from headgate.expression.duckdb.value import Facts
from headgate.expression.implementation.implementations import gathers
from headgate.expression.node import (
    Aggregate,
    CaseTest,
    ColumnRef,
    Const,
    Expression,
    FieldSelect,
    FuncExpr,
    OpExpr,
    SqlValue,
    SubLink,
    TypeRef,
    walk,
)
from headgate.types import registry as t


class CatalogQueryPlanner(CatalogPlanner):
    """Compiles the queries of one statement."""

    def resolve(self, text: str, kind: int, where: int | None) -> int:
        return session_call.resolve(self, text, kind, where)

    def session_call(self, node: FuncExpr) -> str | None:
        return session_call.session_call(self, node)

    def session_value(self, node: SqlValue) -> str:
        return session_call.session_value(self, node)

    def moment(self, node: Expression) -> int | None:
        return session_call.moment(self, node)

    # ---- queries -------------------------------------------------------------------------------------------------------------

    def query(self, query: Query, *, keep_order: bool = False, needed: Collection[int] | None = None) -> str:
        lead = self._with(query) if query.ctes else ""
        match query.body:
            case Select() as select:
                sql = self._select(query, select, keep_order=keep_order, needed=needed)
            case Values(cells):
                sql = self._values(query, cells)
            case SetOperation() as operation:
                sql = self._set_operation(query, operation, needed if operation.all else None)
        return f"{lead} {sql}" if lead else sql

    def _with(self, query: Query) -> str:
        parts = []
        for cte in query.ctes:
            if cte.query is None:
                raise not_supported("data-modifying statements in WITH are not supported in a query on system catalogs")
            name = self.alias("w")
            body, listed = self.query(cte.query), ""
            if cte.recursion is not None:
                self.ctes[cte.recursion.working] = name
                operation = "UNION ALL" if cte.recursion.all else "UNION"
                body = f"({body}) {operation} ({self._with_values(cte.recursion.term, cte.recursion.values)})"
                listed = f"({_numbered(cte.query.columns)})"
            self.ctes[cte] = name
            parts.append(f"{name}{listed} AS ({body})")
        return f"WITH {'RECURSIVE ' if query.recursive else ''}{', '.join(parts)}"

    def _with_values(self, query: Query, values: Sequence[Expression], needed: Collection[int] | None = None) -> str:
        """Return the SQL of a query whose columns have these values, each of which is an expression over the column at its place."""
        sql = self.query(query, needed=needed)
        if all(value == reference(column) for value, column in zip(values, query.columns, strict=True)):
            return sql
        alias = self.alias("u")
        self.columns.update((column.key, f"{alias}.c{place}") for place, column in enumerate(query.columns, 1))
        return f"SELECT {self._listed_columns([self.sql(value) for value in values])} FROM ({sql}) {alias}"

    @staticmethod
    def _listed_columns(values: Sequence[str]) -> str:
        return ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(values, 1)) or "NULL AS c0"

    def _set_operation(self, query: Query, operation: SetOperation, needed: Collection[int] | None) -> str:
        needed = None if query.sorts else needed
        left = self._with_values(operation.left, operation.left_values, needed)
        right = self._with_values(operation.right, operation.right_values, needed)
        word = row_width.WORDS[pb.SetOperation.ValueType(operation.op)]
        for column, *sides in zip(query.columns, operation.left_values, operation.right_values, strict=True):
            self._know_common(column, sides, word)
        return f"SELECT * FROM (({left}) {word}{' ALL' if operation.all else ''} ({right})) {self.alias('u')}{self._order_output(query)}"

    def _know_common(self, column: PlanColumn, values: Sequence[Expression], word: str) -> None:
        """Record the facts about a column that has the values of several expressions. Raise 0A000 for numeric values of several scales."""
        known = [self.facts_of(value) for value in values if not _is_null(value)]
        scales = {facts.scale for facts in known}
        if column.type.oid == t.NUMERIC and len(scales) > 1:
            raise not_supported(f"{word} of numeric values of several scales is not supported in a query on system catalogs")
        self.know(column.key, Facts(any(facts.zero_based for facts in known), scales.pop() if len(scales) == 1 else None))

    def _values(self, query: Query, cells: Sequence[Sequence[Expression]]) -> str:
        for column, values in zip(query.columns, cells, strict=True):
            self._know_common(column, values, "VALUES")
        rows = ", ".join(f"({', '.join(map(self.sql, row))})" for row in zip(*cells, strict=True))
        return f"SELECT * FROM (VALUES {rows}) {self.alias('v')}({_numbered(query.columns)}){self._order_output(query)}"

    def _order_output(self, query: Query) -> str:
        """Return ORDER BY and LIMIT of a set operation or VALUES, which orders by its columns (c1, c2)."""
        self.columns.update((column.key, f"c{place}") for place, column in enumerate(query.columns, 1))
        return _listed(" ORDER BY ", [_sort(sort, self.sql(sort.expression)) for sort in query.sorts]) + self._limit(query)

    # ---- SELECT --------------------------------------------------------------------------------------------------------------

    def _select(self, query: Query, select: Select, *, keep_order: bool, needed: Collection[int] | None) -> str:
        is_one_group = select.grouped is not None and not select.grouped.clause
        if needed is not None and not (select.distinct or select.on or query.sorts or is_one_group):
            targets = tuple(target if place in needed else _unneeded(target) for place, target in enumerate(select.targets))
            select = replace(select, targets=targets)
        saved, self.beside, self.lookups = (self.beside, self.lookups), {}, None
        try:
            return self._plain(query, select, keep_order=keep_order)
        finally:
            self.beside, self.lookups = saved

    def _plain(self, query: Query, select: Select, *, keep_order: bool) -> str:
        source = from_item.compile(self, select.source)
        if select.source.tables and not _is_list(select) and not source.sorted_by and not (select.grouped and select.grouped.clause):
            self.lookups = Lookups(frozenset(column.key for table in select.source.tables for column in table.columns))
        targets = [replace(target, expression=self._placed(target.expression, source)) for target in select.targets]
        where = "" if select.where is None else f" WHERE {self.sql(select.where)}"
        group = "" if select.grouped is None else self._group(select.grouped, source)
        if self.beside and select.grouped is not None:
            source, where, group = self._over_groups(select.grouped, f"{source.sql}{self._joined_lookups()}{where}{group}"), "", ""
        values = [self.sql(target.expression) for target in targets]
        for target, column in zip(targets, query.columns, strict=True):
            self.know(column.key, self.facts_of(target.expression))
        distinct = _listed("DISTINCT ON (", [self.sql(sort.expression) for sort in select.on], ") ") or (
            "DISTINCT " if select.distinct else ""
        )
        order = _listed(" ORDER BY ", [self._sort_key(sort, targets, source) for sort in query.sorts])
        if not order and keep_order and not group and source.sorted_by:
            order = f" ORDER BY {', '.join(source.sorted_by)}"
        from_sql = source.sql + self._joined_lookups()
        for call, alias in self.beside.items():
            rows = set_returning.rows(call, [self.sql(argument) for argument in call.args], self, in_from=True)
            from_sql += f"{', ' if from_sql else ''}LATERAL ({rows.table_sql}) {alias}"
        begin = f"SELECT {distinct}{self._listed_columns(values)}{' FROM ' if from_sql else ''}{from_sql}"
        return f"{begin}{where}{group}{order}{self._limit(query)}"

    def _joined_lookups(self) -> str:
        """Return the SQL of the lookup rows. From now on, none are added."""
        lookups, self.lookups = self.lookups, None
        return "" if lookups is None else lookups.sql

    def _over_groups(self, grouped: Grouped, query: str) -> Source:
        """Compute the groups in a subquery in FROM, because a set-returning call beside it takes them: ``(f(VARIADIC array_agg(a))).*``.

        `query`: its FROM clause and the clauses after it.
        """
        alias = self.alias("g")
        keys = [*grouped.items.values(), *grouped.aggregates.values(), *grouped.dependent.values()]
        listed = self._listed_columns([self.columns[key] for key in keys])
        self.columns.update((key, f"{alias}.c{place}") for place, key in enumerate(keys, 1))
        return Source(f"(SELECT {listed} FROM {query}) {alias}")

    def _placed(self, expression: Expression, source: Source) -> Expression:
        """Return the expression with the order of functions in FROM applied to order-dependent aggregates that have no ORDER BY.

        Fields of a set-returning call that is evaluated in FROM become columns of that FROM item.
        """
        if isinstance(expression, FieldSelect):
            expression = rewriting.rewrite(expression, self._set_beside)
        return self._sorted(expression, source)

    @staticmethod
    def _sorted(expression: Expression, source: Source) -> Expression:
        if not source.sorted_by:
            return expression
        number = TypeRef(t.INT8)
        order = tuple((ColumnRef(type=number, name="n", attnum=1, key=key), False, False) for key in source.sorted_by)

        def sorted_one(node: Expression) -> Expression | None:
            if isinstance(node, Aggregate) and not node.order and not node.distinct and gathers(node.function):
                return replace(node, order=order)
            return None

        return rewriting.rewrite(expression, sorted_one)

    def _set_beside(self, node: Expression) -> Expression | None:
        if not isinstance(node, FieldSelect) or not set_returning.is_query(node.arg) or not isinstance(node.arg, FuncExpr):
            return None
        alias = self.beside.setdefault(node.arg, self.alias("f"))
        place = [name for name, _ in node.arg.type.fields].index(node.name) + 1
        return ColumnRef(type=node.type, name=node.name, attnum=1, key=f"{alias}.c{place}")

    def _group(self, grouped: Grouped, source: Source) -> str:
        """Return GROUP BY and HAVING. Set the SQL of the columns of the groups."""
        if any(isinstance(key, GroupingClause) for key in grouped.clause):
            raise not_supported("GROUPING SETS are not supported in a query on system catalogs")
        for expressions in (grouped.items, grouped.aggregates, grouped.dependent):
            for expression, key in expressions.items():
                self.columns[key] = self.sql(self._sorted(expression, source))
                self.know(key, self.facts_of(expression))
        for key in grouped.dependent.values():
            self.columns[key] = f"first({self.columns[key]})"
        items = [
            # DuckDB would take a constant for the number of a column
            f"({self.columns[grouped.items[item]]} IS NULL)" if isinstance(item, Const) else self.columns[grouped.items[item]]
            for item in grouped.clause
            if isinstance(item, Expression)
        ]
        return _listed(" GROUP BY ", items) + ("" if grouped.having is None else f" HAVING {self.sql(grouped.having)}")

    def _sort_key(self, sort: Sort, targets: Sequence[SelectItem], source: Source) -> str:
        """Return the SQL of an item of ORDER BY: a column of the SELECT list, or an expression."""
        expression = self._placed(sort.expression, source)
        for place, target in enumerate(targets, 1):
            if target.expression == expression:
                compiler.check_order(expression, self)
                return _sort(sort, f"c{place}")
        return _sort(sort, compiler.sort_key(expression, self))

    def _limit(self, query: Query) -> str:
        limit = query.limit
        if limit is None:
            return ""
        if limit.with_ties:
            raise not_supported("WITH TIES is not supported in a query on system catalogs")
        counts = (("LIMIT", limit.count), ("OFFSET", limit.offset))
        clauses = "".join(f" {word} {self.sql(count)}" for word, count in counts if count is not None and not _is_null(count))
        if clauses and " OFFSET " not in clauses:
            clauses += " OFFSET 0"  # without OFFSET, DuckDB drops a LIMIT above a LEFT JOIN with an empty relation
        return clauses

    # ---- subqueries in expressions -------------------------------------------------------------------------------------------

    def subquery(self, node: SubLink) -> str:
        query: Query = node.query
        sql = self.query(query, keep_order=node.kind == "ARRAY")
        if node.kind in ("EXISTS", "ARRAY"):
            return f"{node.kind}({sql})"
        if node.kind == "EXPR":
            return f"({sql})"
        assert node.test is not None
        return self._quantified_test(node.test, node.kind, query, sql)

    def _quantified_test(self, test: Expression, kind: str, query: Query, sql: str) -> str:
        """Return the SQL of ``x op ANY/ALL (SELECT …)``: [NOT] IN if equivalent, otherwise an aggregate over the tests of all rows."""
        alias = self.alias("q")
        body = f"({sql}) {alias}"
        self.columns.update((column.key, f"{alias}.c{place}") for place, column in enumerate(query.columns, 1))

        def standing(node: Expression) -> Expression | None:
            return replace(reference(query.columns[max(node.location, 0)]), type=node.type) if isinstance(node, CaseTest) else None

        whole = rewriting.rewrite(test, standing)
        name = "=" if kind == "ANY" else "<>"
        if isinstance(whole, OpExpr) and builtin.operator(whole.operator).name == name and whole.args[0].type.oid != t.BPCHAR:
            left, right = (self.sql(operand) for operand in whole.args)
            self.sql(whole)  # raises an error if the operands cannot be compared
            return f"({left} {'' if kind == 'ANY' else 'NOT '}IN (SELECT {right} FROM {body}))"
        sql, decided = self.sql(whole), "TRUE" if kind == "ANY" else "FALSE"
        tests = f"bool_or({sql})" if kind == "ANY" else f"NOT bool_and({sql})"
        result = f"CASE WHEN {tests} THEN {decided} WHEN count(*) > count({sql}) THEN NULL ELSE NOT {decided} END"
        return f"(SELECT {result} FROM {body})"


def _unneeded(target: SelectItem) -> SelectItem:
    """Return an item with NULL in place of its value. If it returns a set, return it as it is."""
    if any(map(builtin.returns_set, walk(target.expression))):
        return target
    return replace(target, expression=Const(type=target.expression.type, value=None))


def _is_list(select: Select) -> bool:
    """Return whether commas separate the items of the FROM clause."""
    return isinstance(select.source, JoinItem | FunctionItem) and select.source.listed


def _is_null(expression: Expression) -> bool:
    expression = strip_implicit(expression)
    return isinstance(expression, Const) and expression.value is None


def _sort(sort: Sort, sql: str) -> str:
    """Return the SQL of an ORDER BY key, with the place of NULLs."""
    return f"{sql} {'DESC' if sort.descending else 'ASC'} NULLS {'FIRST' if sort.nulls_first else 'LAST'}"


def _numbered(columns: Sequence[PlanColumn]) -> str:
    return ", ".join(f"c{place}" for place, _ in enumerate(columns, 1))


def _listed(before: str, parts: Sequence[str], after: str = "") -> str:
    """Return the parts of a clause, or nothing if there are none."""
    return f"{before}{', '.join(parts)}{after}" if parts else ""
