"""Translate a SELECT on system relations to DuckDB SQL: WITH, set operations, grouping, ordering. `from_item` translates FROM.

`query` creates a `CatalogPlanner` per statement. `expression.binding` binds expressions, and `expression.duckdb` compiles them. The planner
generates the names of FROM items and output columns (t1, c1), because DuckDB folds case and PostgreSQL's names are case-sensitive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.analysis import grouping, grouping_sets, ordering, row_width, select_list, sublink
from headgate.analysis.analyser import mentions
from headgate.analysis.query import GroupingClause, PlanColumn, SelectItem, Sort
from headgate.catalog import namespace, system_view
from headgate.catalog.physical import Cursor
from headgate.catalog.session import SessionContext
from headgate.commands.query.catalog import from_item, session_call
from headgate.commands.query.catalog.relation_source import CatalogQuery, CatalogSource, Cte, Lookups, OutputColumn, SourceColumn
from headgate.commands.query.catalog.session_call import Acting
from headgate.commands.session import Parameter
from headgate.errors import not_supported
from headgate.expression import builtin, rewriting
from headgate.expression.binding import binder, literal, window
from headgate.expression.binding.coercion import coerce, resolve_unknown, strip_implicit
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.duckdb import compiler, set_returning, value
from headgate.expression.duckdb.value import NOTHING_KNOWN, Env, Facts
from headgate.expression.implementation.implementations import gathers
from headgate.expression.node import (
    UNKNOWN,
    Aggregate,
    CaseTest,
    ColumnRef,
    Const,
    Expression,
    FieldSelect,
    FuncExpr,
    OpExpr,
    Param,
    SqlValue,
    SubLink,
    TypeRef,
    walk,
)
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry as t


class CatalogPlanner(Env):
    """The planner of one statement."""

    def __init__(
        self,
        context: SessionContext,
        cursor: Cursor,
        dynamic: Mapping[str, system_view.Provider],
        functions: Mapping[str, Callable[..., object]],
        parameters: Sequence[Parameter] = (),
        *,
        describing: bool = False,
    ) -> None:
        self.context = context
        self.cursor = cursor
        self.dynamic = dynamic
        self.functions = functions
        self.parameters = parameters
        self.describing = describing
        self.tables: dict[str, pa.Table] = {}
        self.acting: list[tuple[Acting, tuple[Expression, ...]]] = []
        self.guarded: list[tuple[str, str]] = []
        """(SQL of a column, its relation) of the columns that the user may not read. The finished query must not contain them."""
        self.facts = {}
        self.rows = {}
        self.view_depth = 0
        self.kept_view = True
        """Whether the compiled part of a view depends only on values that do not change within the session."""
        self.path_cache: dict[tuple[str, ...], dict[str, int]] = {}
        self.lookups: Lookups | None = None
        """The lookup rows that may be joined to the SELECT being compiled (`relation_source`), or None."""
        self.announced = context.announced
        self.ctes: dict[str, Cte] = {}
        self.beside: dict[FuncExpr, str] = {}
        """Set-returning calls of the current SELECT list that are evaluated in FROM, with their aliases there."""
        self._aliases = 0
        self.inferred = {number: parameter.type_oid for number, parameter in enumerate(parameters, 1)}
        self.binding = BindContext(forms=context.forms, parameters=self.inferred, infer=describing, subquery=self._bound_subquery)
        schemas = session_call.schema_oids(self)
        oids = (schemas if "pg_catalog" in schemas else {"pg_catalog": namespace.PG_CATALOG, **schemas}).values()
        self.path = f"[{', '.join(map(str, oids))}]"
        self.database = str(context.database)
        self.time_zone = context.time_zone
        self.in_utc = context.time_zone in ("UTC", "Etc/UTC", "GMT")

    def sizes(self) -> str:
        """Return the name of the table with the disk sizes of relations."""
        return self._table_of("relation_sizes", [pa.int64()] * 4)

    def blockers(self) -> str:
        """Return the name of the table of processes and the processes that block them."""
        return self._table_of("blockers", [pa.int32(), pa.list_(pa.int32())])

    def _table_of(self, subject: str, kinds: Sequence[pa.DataType]) -> str:
        """Return the name of a table with the rows that the node computes about a subject now. It is filled once for a query."""
        name = f"hg_{subject}"
        self.kept_view = False
        if name not in self.tables:
            provider = None if self.describing else self.dynamic.get(subject)
            rows = [] if provider is None else list(provider())
            self.tables[name] = pa.table({f"c{n + 1}": pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)})
        return name

    def alias(self, letter: str = "t") -> str:
        """Return a name that is unique in the statement."""
        self._aliases += 1
        return f"{letter}{self._aliases}"

    def sql(self, expression: Expression) -> str:
        """Return the SQL of an expression."""
        return compiler.compile(expression, self)

    def resolve(self, text: str, kind: int, where: int | None) -> int:
        """Return the oid for the text of a reg… literal (`session_call`)."""
        return session_call.resolve(self, text, kind, where)

    def session_call(self, node: FuncExpr) -> str | None:
        """Return the SQL of a session function's value, or None for other functions (`session_call`)."""
        return session_call.session_call(self, node)

    def session_value(self, node: SqlValue) -> str:
        """Return the SQL of CURRENT_USER, CURRENT_DATE and similar values (`session_call`)."""
        return session_call.session_value(self, node)

    def moment(self, node: Expression) -> int | None:
        """Return now() and similar values in microseconds since 1970, or None for other expressions (`session_call`)."""
        return session_call.moment(self, node)

    def parameter(self, node: Param) -> Const:
        """Return the value of a parameter; NULL while the statement is only described."""
        self.kept_view = False
        text = None if self.describing else self.parameters[node.number - 1].text
        read_value = None if text is None else literal.read(text, node.type.oid, node.type.typmod, self.binding)
        return Const(type=node.type, value=read_value, location=node.location)

    # ---- SELECT --------------------------------------------------------------------------------------------------------------

    def select(self, node: ParseNode, outer: Scope | None, *, keep_order: bool = False) -> CatalogQuery:
        """Plan a SELECT, VALUES or set operation."""
        saved = dict(self.ctes)
        try:
            lead = self._with(node, outer) if node.HasField("with_clause") else ""
            if node.op != pb.SETOP_NONE:
                query = self._set_operation(node, outer)
            elif node.values_lists:
                query = self._values(node, outer)
            else:
                query = self._plain(node, outer, keep_order=keep_order)
        finally:
            self.ctes = saved
        if not lead:
            return query
        return CatalogQuery(query.columns, lambda types: f"{lead} {query.build(types)}")

    def types_of(self, query: CatalogQuery) -> list[TypeRef]:
        """Return the types of a query's columns, with text for unknown."""
        text = TypeRef(t.TEXT, -1, self.binding.collation_of_type(t.TEXT))
        return [text if column.type.oid == t.UNKNOWN else column.type for column in query.columns]

    def shown(self, query: CatalogQuery, alias: str, names: Sequence[str] = ()) -> list[SourceColumn]:
        """Return the columns of a query that is the FROM item `alias`. `names` replace those of the first columns."""
        shown_columns = []
        for place, (column, kind) in enumerate(zip(query.columns, self.types_of(query), strict=True), 1):
            name = names[place - 1] if place <= len(names) else column.name
            facts = column.facts if column.facts != NOTHING_KNOWN else self.facts_of(column.expression)
            shown_columns.append(SourceColumn(name, kind, f"{alias}.c{place}", column.relation, column.attnum, facts=facts))
        return shown_columns

    def facts_of(self, expression: Expression) -> Facts:
        """Return facts about an expression that its type does not have: array bounds and numeric scale."""
        scale = value.scale(expression, self) if expression.type.oid == t.NUMERIC else None
        return Facts(value.zero_based(expression, self), scale)

    def inner_select(self, node: ParseNode, outer: Scope | None, *, keep_order: bool = False) -> CatalogQuery:
        """Plan a nested SELECT. Raise 0A000 if it calls a function with side effects."""
        before = len(self.acting)
        query = self.select(unwrap(node), outer, keep_order=keep_order)
        if len(self.acting) > before:
            raise not_supported(f"function {self.acting[-1][0].name} is not supported in a subquery")
        return query

    def _with(self, node: ParseNode, outer: Scope | None) -> str:
        parts = []
        for item in node.with_clause.ctes:
            cte = unwrap(item)
            inner = unwrap(cte.ctequery)
            if inner.DESCRIPTOR.name != "SelectStmt":
                raise not_supported("data-modifying statements in WITH are not supported in a query on system catalogs")
            name = self.alias("w")
            aliases = names.strings(cte.aliascolnames)
            if node.with_clause.recursive and inner.op != pb.SETOP_NONE and mentions(inner.rarg, cte.ctename):
                base = self.select(inner.larg, outer)
                self.ctes[cte.ctename] = Cte(name, tuple(self.shown(base, name, aliases)))
                step = self.select(inner.rarg, outer)
                row_width.require_equal_sides(inner, base.columns, step.columns)
                types = self.types_of(base)
                body = f"({base.build(types)}) {'UNION ALL' if inner.all else 'UNION'} ({step.build(types)})"
                listed = ", ".join(f"c{place}" for place in range(1, len(types) + 1))
                parts.append(f"{name}({listed}) AS ({body})")
            else:
                query = self.select(inner, outer)
                self.ctes[cte.ctename] = Cte(name, tuple(self.shown(query, name, aliases)))
                parts.append(f"{name} AS ({query.build(self.types_of(query))})")
        return f"WITH {'RECURSIVE ' if node.with_clause.recursive else ''}{', '.join(parts)}"

    def _set_operation(self, node: pb.SelectStmt, outer: Scope | None) -> CatalogQuery:
        left, right = self.select(node.larg, outer), self.select(node.rarg, outer)
        row_width.require_equal_sides(node, left.columns, right.columns)
        word = row_width.WORDS[node.op]
        columns = [self._unite(a, b, word) for a, b in zip(left.columns, right.columns, strict=True)]

        def build(types: Sequence[TypeRef]) -> str:
            body = f"({left.build(types)}) {word}{' ALL' if node.all else ''} ({right.build(types)})"
            return f"SELECT * FROM ({body}) {self.alias('u')}{self._order_output(node, columns)}"

        return CatalogQuery(columns, build)

    def _unite(self, left: OutputColumn, right: OutputColumn, word: str) -> OutputColumn:
        """Return the result column of a set operation from the columns of both sides."""
        sides = [_standing(column) for column in (left, right)]
        if all(side.type.oid == t.UNKNOWN for side in sides):
            return replace(left, expression=Const(type=UNKNOWN, value=None))
        _, kind = binder.unify(sides, word, self.binding)
        known = [column.facts if column.facts != NOTHING_KNOWN else self.facts_of(column.expression) for column in (left, right)]
        scales = {known_facts.scale for side, known_facts in zip((left, right), known, strict=True) if not _is_null(side.expression)}
        if kind.oid == t.NUMERIC and len(scales) > 1:
            raise not_supported(f"{word} of numeric values of several scales is not supported in a query on system catalogs")
        facts = Facts(any(known_facts.zero_based for known_facts in known), scales.pop() if len(scales) == 1 else None)
        standing = ColumnRef(type=kind, name=left.name, attnum=1, key="")
        return OutputColumn(left.name, standing, "", facts=facts)

    def _order_output(self, node: pb.SelectStmt, columns: Sequence[OutputColumn]) -> str:
        """Return ORDER BY and LIMIT of a set operation or VALUES, which orders by its columns (c1, c2)."""
        types = [resolve_unknown(_standing(column), self.binding).type for column in columns]
        outputs = [PlanColumn(column.name, kind, f"c{place}") for place, (column, kind) in enumerate(zip(columns, types, strict=True), 1)]
        sorts = ordering.by_output(node.sort_clause, outputs)
        return _listed(" ORDER BY ", [_sort(sort, self.sql(sort.expression)) for sort in sorts]) + self._limit(node, sorts)

    def _values(self, node: pb.SelectStmt, outer: Scope | None) -> CatalogQuery:
        context, scope = self.binding.within(construct="VALUES"), Scope((), outer)
        lists, listed = [unwrap(row).items for row in node.values_lists], []
        for cells in lists:
            listed.append([binder.bind_raw(cell, scope, context) for cell in cells])
            row_width.require_like_first(cells, lists[0])
        columns = []
        for place in range(len(listed[0])):
            cells = [row[place] for row in listed]
            if all(cell.type.oid == t.UNKNOWN for cell in cells):
                columns.append(OutputColumn(f"column{place + 1}", Const(type=UNKNOWN, value=None), ""))
                continue
            done, kind = binder.unify(cells, "VALUES", context)
            scales = {value.scale(cell, self) for cell in done if not (isinstance(cell, Const) and cell.value is None)}
            if kind.oid == t.NUMERIC and len(scales) > 1:
                raise not_supported("VALUES of numeric values of several scales is not supported in a query on system catalogs")
            facts = Facts(scale=scales.pop() if len(scales) == 1 and kind.oid == t.NUMERIC else None)
            standing = ColumnRef(type=kind, name=f"column{place + 1}", attnum=1, key="")
            columns.append(OutputColumn(f"column{place + 1}", standing, "", facts=facts))

        def build(types: Sequence[TypeRef]) -> str:
            rows = [", ".join(self._as(cell, kind) for cell, kind in zip(row, types, strict=True)) for row in listed]
            listing = ", ".join(f"c{place + 1}" for place in range(len(types)))
            body = ", ".join(f"({row})" for row in rows)
            return f"SELECT * FROM (VALUES {body}) {self.alias('v')}({listing}){self._order_output(node, columns)}"

        return CatalogQuery(columns, build)

    def _as(self, expression: Expression, kind: TypeRef) -> str:
        """Return the SQL of an expression, implicitly coerced to a type if possible."""
        if expression.type.oid == kind.oid:
            return self.sql(expression)
        done = coerce(expression, replace(kind, typmod=-1), Reach.IMPLICIT, self.binding)
        return self.sql(expression if done is None else done)

    def _plain(self, node: pb.SelectStmt, outer: Scope | None, *, keep_order: bool) -> CatalogQuery:
        saved_beside, self.beside = self.beside, {}
        saved_lookups, self.lookups = self.lookups, None
        source = from_item.from_clause(self, node.from_clause, outer)
        scope = source.scope(outer)
        if len(node.from_clause) == 1 and not node.group_clause and not source.sorted_by:
            self.lookups = Lookups(frozenset(column.key for table in source.tables for column in table.columns))
        windows = window.definitions(node)
        context = self.binding.within(construct="SELECT", aggregates=True, sets=True, windows=windows)
        items = [
            replace(item, expression=self._order_aggregates(item.expression, source))
            for item in select_list.expand(node.target_list, source, scope, context)
        ]
        targets = [OutputColumn(item.name, item.expression, self.sql(item.expression), item.relation, item.attnum) for item in items]
        where = ""
        if node.HasField("where_clause"):
            condition = binder.bind_condition(node.where_clause, scope, "WHERE", context=self.binding.within(construct="WHERE"))
            where = f" WHERE {self.sql(condition)}"
        group = self._group(node, items, scope)
        having = ""
        if node.HasField("having_clause"):
            condition = binder.bind_condition(node.having_clause, scope, "HAVING", context=context.within(sets=False, windows=None))
            having = f" HAVING {self.sql(self._order_aggregates(condition, source))}"
        sorts = ordering.read(self.binding, node.sort_clause, items, scope, windows)
        on = ordering.read_on(self.binding, node, items, scope, sorts)
        distinct = _listed("DISTINCT ON (", [self.sql(sort.expression) for sort in on], ") ") or (
            "DISTINCT " if node.distinct_clause else ""
        )
        order = _listed(" ORDER BY ", [self._sort_key(sort, targets, source) for sort in sorts])
        if not order and keep_order and not group and source.sorted_by:
            order = f" ORDER BY {', '.join(source.sorted_by)}"
        lookups, self.lookups = self.lookups, saved_lookups
        if lookups is not None:
            source = replace(source, sql=source.sql + lookups.sql)
        limit = self._limit(node, sorts)
        if any(isinstance(part, Aggregate) for call in self.beside for part in walk(call)):
            source, where, group, having = self._over_gathered(source, f"{source.sql}{where}{group}{having}")
        for call, alias in self.beside.items():
            rows = set_returning.rows(call, [self.sql(argument) for argument in call.args], self, in_from=True)
            source = replace(source, sql=f"{source.sql}{',' if source.sql else ' FROM'} LATERAL ({rows.table_sql}) {alias}")
        self.beside = saved_beside

        def build(types: Sequence[TypeRef]) -> str:
            shown = [
                f"{target.sql if target.type.oid == kind.oid else self._as(target.expression, kind)} AS c{place}"
                for place, (target, kind) in enumerate(zip(targets, types, strict=True), 1)
            ]
            return f"SELECT {distinct}{', '.join(shown) or 'NULL AS c0'}{source.sql}{where}{group}{having}{order}{limit}"

        return CatalogQuery(targets, build)

    def _over_gathered(self, source: CatalogSource, behind: str) -> tuple[CatalogSource, str, str, str]:
        """Evaluate aggregates in a subquery in FROM if a set-returning call takes them: ``(f(VARIADIC array_agg(a))).*``."""
        inner = self.alias("g")
        listed: list[str] = []
        calls = {}
        for call, alias in self.beside.items():
            args = []
            for argument in call.args:
                listed.append(f"{self.sql(argument)} AS a{len(listed)}")
                args.append(ColumnRef(type=argument.type, name="a", attnum=1, key=f"{inner}.a{len(listed) - 1}"))
            calls[replace(call, args=tuple(args))] = alias
        self.beside = calls
        return replace(source, sql=f" FROM (SELECT {', '.join(listed)}{behind}) {inner}", sorted_by=()), "", "", ""

    def _order_aggregates(self, expression: Expression, source: CatalogSource) -> Expression:
        """Return the expression with the order of functions in FROM applied to order-dependent aggregates that have no ORDER BY.

        Fields of a set-returning call that is evaluated in FROM become columns of that FROM item.
        """
        if isinstance(expression, FieldSelect):
            expression = rewriting.rewrite(expression, self._set_beside)
        if not source.sorted_by:
            return expression
        text = TypeRef(t.INT8)
        order = tuple((ColumnRef(type=text, name="n", attnum=1, key=key), False, False) for key in source.sorted_by)

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

    def _group(self, node: pb.SelectStmt, items: Sequence[SelectItem], scope: Scope) -> str:
        keys = grouping_sets.read(node, lambda element: grouping.item(self.binding, element, items, scope))
        if any(isinstance(key, GroupingClause) for key in keys):
            raise not_supported("GROUPING SETS are not supported in a query on system catalogs")
        return _listed(" GROUP BY ", [self.sql(key) for key in keys if isinstance(key, Expression) and not isinstance(key, Const)])

    def _sort_key(self, sort: Sort, targets: Sequence[OutputColumn], source: CatalogSource) -> str:
        """Return the SQL of an item of ORDER BY: a column of the SELECT list, or an expression."""
        for place, target in enumerate(targets, 1):
            if resolve_unknown(target.expression, self.binding) == sort.expression and "<acting" not in target.sql:
                compiler.check_order(sort.expression, self)
                return _sort(sort, f"c{place}")
        return _sort(sort, compiler.sort_key(self._order_aggregates(sort.expression, source), self))

    def _limit(self, node: pb.SelectStmt, sorts: Sequence[Sort]) -> str:
        limit = ordering.limit(self.binding, node, sorts)
        if limit is None:
            return ""
        if limit.with_ties:
            raise not_supported("WITH TIES is not supported in a query on system catalogs")
        counts = (("LIMIT", limit.count), ("OFFSET", limit.offset))
        clauses = "".join(f" {word} {self.sql(count)}" for word, count in counts if count is not None and not _is_null(count))
        if clauses and " OFFSET " not in clauses:
            clauses += " OFFSET 0"  # without OFFSET, DuckDB drops a LIMIT above a LEFT JOIN with an empty relation
        return clauses

    # ---- subqueries ----------------------------------------------------------------------------------------------------------

    def _bound_subquery(self, node: pb.SubLink, scope: Scope, context: BindContext) -> Expression:
        """Plan and bind a subquery (a callback of the binder)."""
        query = self.inner_select(node.subselect, scope, keep_order=node.sub_link_type == pb.ARRAY_SUBLINK)
        return sublink.bound(node, scope, context, self.types_of(query), query)

    def subquery(self, node: SubLink) -> str:
        """Return the SQL of a subquery in an expression."""
        query: CatalogQuery = node.query
        types = self.types_of(query)
        if node.kind == "EXISTS":
            return f"EXISTS ({query.build(types)})"
        if node.kind == "ARRAY":
            return f"ARRAY({query.build(types)})"
        if node.kind == "EXPR":
            return f"({query.build(types)})"
        assert node.test is not None
        return self._quantified_test(node.test, node.kind, query, types)

    def _quantified_test(self, test: Expression, kind: str, query: CatalogQuery, types: list[TypeRef]) -> str:
        """Return the SQL of ``x op ANY/ALL (SELECT …)``: [NOT] IN if equivalent, otherwise an aggregate over the tests of all rows."""
        alias = self.alias("q")
        body = f"({query.build(types)}) {alias}"
        facts = [column.facts if column.facts != NOTHING_KNOWN else self.facts_of(column.expression) for column in query.columns]
        self.facts.update({f"{alias}.c{place}": known_facts for place, known_facts in enumerate(facts, 1)})

        def standing(node: Expression) -> Expression | None:
            if not isinstance(node, CaseTest):
                return None
            place = max(node.location, 0) + 1
            return ColumnRef(type=node.type, name="c", attnum=1, key=f"{alias}.c{place}")

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


def _standing(column: OutputColumn) -> Expression:
    """Return an expression of the column's type. An unknown literal stays unknown, because the other side decides its type."""
    if column.type.oid == t.UNKNOWN:
        return Const(type=UNKNOWN, value=None)
    return ColumnRef(type=column.type, name=column.name, attnum=1, key="")


def _is_null(expression: Expression) -> bool:
    """Return whether an expression is a NULL, cast or not."""
    expression = strip_implicit(expression)
    return isinstance(expression, Const) and expression.value is None


def _sort(sort: Sort, sql: str) -> str:
    """Return the SQL of an ORDER BY key, with the place of NULLs."""
    return f"{sql} {'DESC' if sort.descending else 'ASC'} NULLS {'FIRST' if sort.nulls_first else 'LAST'}"


def _listed(before: str, parts: Sequence[str], after: str = "") -> str:
    """Return the parts of a clause, or nothing if there are none."""
    return f"{before}{', '.join(parts)}{after}" if parts else ""
