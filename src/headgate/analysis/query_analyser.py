"""Analyse a SELECT, VALUES or set operation, clause by clause, in PostgreSQL's order (transformSelectStmt).

    FROM (from_clause) → SELECT list → WHERE → ORDER BY → DISTINCT ON → GROUP BY, HAVING (grouping) → LIMIT

Example: ``SELECT b, count(*) FROM t WHERE a > 1 GROUP BY b ORDER BY 2`` reads t as (k1_a, k2_b), keeps the rows of ``k1_a > 1``, groups
by g4 = k2_b with a5 = count(*), selects (g4, a5) as (k6_b, k7_count) and sorts by a5 with NULLs last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.analysis import from_clause, grouping, ordering, recursive_reference, row_locking, row_width, select_list
from headgate.analysis.analyser import Analyser
from headgate.analysis.query import (
    Cte,
    PlanColumn,
    Query,
    Recursion,
    RowLock,
    Select,
    SetOperation,
    Values,
    reference,
    renamed,
)
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder, sort_operator, window
from headgate.expression.binding.coercion import resolve_unknown
from headgate.expression.binding.scope import OuterAggregates, Scope
from headgate.expression.location import location_of
from headgate.expression.node import Expression, TypeRef
from headgate.sql import command_tag
from headgate.sql import names as identifiers
from headgate.sql.parser import ParseNode, unwrap

_MATERIALIZED = {pb.CTEMaterializeAlways: True, pb.CTEMaterializeNever: False}


class QueryAnalyser(Analyser):
    """Analyses the queries of one statement."""

    def select(
        self, node: pb.SelectStmt, outer: Scope | None, types: Sequence[TypeRef] = (), locks: Sequence[RowLock] = (), *, top: bool = False
    ) -> Query:
        if node.HasField("with_clause"):
            inner = self.nested()
            ctes = inner.with_queries(node.with_clause, outer, top=top)
            return replace(inner._select(node, outer, types, locks), ctes=ctes, recursive=node.with_clause.recursive)
        return self._select(node, outer, types, locks)

    def _select(self, node: pb.SelectStmt, outer: Scope | None, types: Sequence[TypeRef], locks: Sequence[RowLock]) -> Query:
        if node.locking_clause and node.values_lists:
            strength = command_tag.STRENGTHS[unwrap(node.locking_clause[0]).strength]
            raise PostgresError("0A000", f"{strength} cannot be applied to VALUES")
        own_locks = row_locking.of_query(node, locks, self.ctes, in_view=self.in_view)
        if node.into_clause.ByteSize():
            raise PostgresError("42601", "SELECT ... INTO is not allowed here")
        if node.op != pb.SETOP_NONE:
            return self._set_operation(node, outer)
        if node.values_lists:
            return self._values(node, outer)
        return self._plain(node, outer, types, own_locks)

    def with_queries(self, clause: pb.WithClause, outer: Scope | None = None, *, top: bool) -> tuple[Cte, ...]:
        ordered = []
        for cte, is_recursive in recursive_reference.in_order(clause):
            query = unwrap(cte.ctequery)
            if query.DESCRIPTOR.name != "SelectStmt":
                if not top:
                    message = "WITH clause containing a data-modifying statement must be at the top level"
                    raise PostgresError("0A000", message, location=cte.location)
                columns, rows = self.names.modify(self, query)
                named_columns = None if columns is None else _named(cte, columns)
                self.ctes[cte.ctename] = Cte(cte.ctename, named_columns, rows=rows)
            elif is_recursive:
                self.ctes[cte.ctename] = self._recursive(cte, query, outer)
            else:
                analysed = self.select(query, outer)
                self.ctes[cte.ctename] = Cte(
                    cte.ctename, _named(cte, analysed.columns), analysed, materialized=_MATERIALIZED.get(cte.ctematerialized)
                )
            ordered.append(self.ctes[cte.ctename])
        return tuple(ordered)

    def _recursive(self, cte: ParseNode, query: ParseNode, outer: Scope | None) -> Cte:
        if query.HasField("with_clause"):
            raise not_supported("WITH before the first term of a recursive query is not supported", location=cte.location)
        first = self.select(query.larg, outer)
        if not query.all:
            _require_equality(first.columns)
        columns = _named(cte, first.columns)
        inner = self.nested()
        working = inner.ctes[cte.ctename] = Cte(cte.ctename, columns)
        term = inner.select(query.rarg, outer)
        row_width.require_equal_sides(query, columns, term.columns)
        recursion = Recursion(working, term, self._like_first(cte, first, term, columns), query.all)
        return Cte(cte.ctename, columns, first, recursion, materialized=_MATERIALIZED.get(cte.ctematerialized))

    def _like_first(self, cte: ParseNode, first: Query, term: Query, columns: Sequence[PlanColumn]) -> tuple[Expression, ...]:
        """Return the columns of the recursive term in the types of the first term. Raise 42804 if a type would have to change."""
        values = []
        for place, column in enumerate(columns):
            own = _output(first, place)
            [_, value], kind = binder.unify([own, _output(term, place)], "UNION", self.context)
            if (kind.oid, kind.typmod) != (column.type.oid, column.type.typmod):
                shown = self.context.types.format_type
                first_type, common_type = shown(column.type.oid, column.type.typmod), shown(kind.oid, kind.typmod)
                raise PostgresError(
                    "42804",
                    f'recursive query "{cte.ctename}" column {place + 1} has type {first_type} in non-recursive term'
                    f" but type {common_type} overall",
                    hint="Cast the output of the non-recursive term to the correct type.",
                    location=location_of(own),
                )
            values.append(value)
        return tuple(values)

    def _plain(self, node: pb.SelectStmt, outer: Scope | None, types: Sequence[TypeRef], locks: Sequence[RowLock]) -> Query:
        windows = window.definitions(node)
        source = from_clause.analyse(self, node.from_clause, outer, locks)
        aggregates = OuterAggregates(lambda: self.key("aggregate"))
        scope = replace(source.scope(outer), aggregates=aggregates)
        targets = select_list.expand(node.target_list, source, scope, self.context.within(aggregates=True, sets=True, windows=windows))
        row_locking.check_targets(locks, targets)
        where = self.where(node, scope)
        sorts = ordering.read(self.context, node.sort_clause, targets, scope, windows)
        on = ordering.read_on(self.context, node, targets, scope, sorts)
        literals = [None if node.distinct_clause else select_list.undecided(target) for target in targets]
        targets = select_list.resolve_unknown(targets, self.context, types)
        grouped = grouping.read(self, node, source, scope, targets, [*sorts, *on])
        if grouped is not None:
            targets, rewritten = grouped.targets, grouped.sorts
            sorts, on = rewritten[: len(sorts)], rewritten[len(sorts) :]
        columns = tuple(
            PlanColumn(target.name, target.expression.type, self.key(target.name), target.relation, target.attnum, literal)
            for target, literal in zip(targets, literals, strict=True)
        )
        if node.distinct_clause:
            ordering.check_distinct(sorts, targets, on=bool(on))
            _require_equality(() if on else columns)
        body = Select(
            source,
            where,
            None if grouped is None else grouped.grouped,
            tuple(targets),
            bool(node.distinct_clause) and not on,
            tuple(on),
            in_order=(outer is None or outer.is_outermost) and ordering.unsorted(node),
            multiplies=from_clause.multiplies(node.from_clause, node.where_clause),
            locks=tuple(locks[len(locks) - len(node.locking_clause) :]),
        )
        return Query(body, columns, tuple(sorts), ordering.limit(self.context, node, sorts))

    def _values(self, node: pb.SelectStmt, outer: Scope | None) -> Query:
        """Analyse VALUES (…), (…). Each column has the common type of its expressions."""
        scope = Scope((), outer)
        context = self.context.within(construct="VALUES")
        lists = [unwrap(row).items for row in node.values_lists]
        rows = []
        for row in lists:
            rows.append([binder.bind_raw(value, scope, context) for value in row])
            row_width.require_like_first(row, lists[0])
        columns, values = [], []
        for place in range(len(rows[0])):
            cells, type_ref = binder.unify(
                [resolve_unknown(row[place], self.context) if len(rows) == 1 else row[place] for row in rows], "VALUES", self.context
            )
            columns.append(PlanColumn(f"column{place + 1}", type_ref, self.key(f"column{place + 1}")))
            values.append(tuple(cells))
        return self._by_output(node, Values(tuple(values)), columns)

    def _set_operation(self, node: pb.SelectStmt, outer: Scope | None) -> Query:
        """Analyse both sides and coerce them to common types. The columns have the names of the left side."""
        left, right = self.select(node.larg, outer), self.select(node.rarg, outer)
        word = row_width.WORDS[node.op]
        row_width.require_equal_sides(node, left.columns, right.columns)
        columns, ours, theirs = [], [], []
        for place, left_column in enumerate(left.columns):
            sides, kind = binder.unify([_output(query, place) for query in (left, right)], word, self.context)
            columns.append(PlanColumn(left_column.name, kind, self.key(left_column.name)))
            ours.append(sides[0])
            theirs.append(sides[1])
        if node.op == pb.SETOP_UNION and not node.all:
            _require_equality(columns)
        body = SetOperation(node.op, node.all, left, right, tuple(ours), tuple(theirs))
        return self._by_output(node, body, columns)

    def _by_output(self, node: pb.SelectStmt, body: Values | SetOperation, columns: Sequence[PlanColumn]) -> Query:
        sorts = ordering.by_output(node.sort_clause, columns)
        return Query(body, tuple(columns), tuple(sorts), ordering.limit(self.context, node, sorts))


def _output(query: Query, place: int) -> Expression:
    """Return a column of one side of a set operation: a literal of undecided type, or a reference with the column's place in the text."""
    column = query.columns[place]
    where = location_of(query.body.targets[place].expression) if isinstance(query.body, Select) else -1
    return column.literal or replace(reference(column), location=where)


def _require_equality(columns: Sequence[PlanColumn]) -> None:
    for column in columns:
        sort_operator.require_equality(reference(column))


def _named(cte: pb.CommonTableExpr, columns: Sequence[PlanColumn]) -> tuple[PlanColumn, ...]:
    """Return the columns of a WITH query with its column names. Raise 42P10 if it names too many."""
    aliases = identifiers.strings(cte.aliascolnames)
    if len(aliases) > len(columns):
        raise PostgresError(
            "42P10",
            f'WITH query "{cte.ctename}" has {len(columns)} columns available but {len(aliases)} columns specified',
            location=cte.location,
        )
    return tuple(renamed(columns, aliases))
