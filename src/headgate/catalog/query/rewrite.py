"""SELECT on system relations → DuckDB SQL: WITH, set operations, grouping, ordering; FROM is `from_item`'s.

`Rewriter` is made per statement by headgate.catalog.query.query. FROM items and output columns get names of the writer's own (t1, c1), so
that PostgreSQL's case-sensitive names cannot meet in DuckDB, which folds case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace, system_view
from headgate.catalog.physical import Cursor
from headgate.catalog.query.cast import CatalogNames, coerce, common, output
from headgate.catalog.query.column_name import title
from headgate.catalog.query.from_item import FromItems, output_columns
from headgate.catalog.query.scope import Cte, Query, QueryScope
from headgate.catalog.query.session_call import Acting
from headgate.catalog.query.value import TypedSql, position
from headgate.catalog.session import SessionContext
from headgate.errors import PostgresError, not_supported
from headgate.sql import names as sql_names
from headgate.sql.parser import ParseNode, unwrap, walk
from headgate.types import registry as t


@dataclass(frozen=True)
class TypedParameter:
    """$n of an extended query: its type (0: to be inferred) and text."""

    type_oid: int
    text: str | None


class Rewriter(FromItems):
    """Rewrites one statement."""

    def __init__(
        self,
        context: SessionContext,
        cursor: Cursor,
        dynamic: Mapping[str, system_view.Provider],
        functions: Mapping[str, Callable[..., Any]],
        parameters: Sequence[TypedParameter] = (),
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
        self.inferred: dict[int, int] = {}
        self.acting: list[tuple[Acting, list[TypedSql]]] = []
        self.guarded: list[tuple[str, str]] = []
        self._aliases = 0
        self.view_depth = 0
        self.path_cache = {}
        found = self.schema_oids()
        oids = [str(oid) for oid in (found if "pg_catalog" in found else {"pg_catalog": namespace.PG_CATALOG, **found}).values()]
        path = f"[{', '.join(oids)}]"
        self.names = CatalogNames(str(context.database), path, self.resolve, self._parameter_text, self._sizes, context.forms)

    def _sizes(self) -> str:
        name = "hg_sizes"
        if name not in self.tables:
            provider = None if self.describing else self.dynamic.get("relation_sizes")
            rows = [] if provider is None else list(provider())
            self.tables[name] = pa.table({f"c{n + 1}": pa.array([row[n] for row in rows], pa.int64()) for n in range(4)})
        return name

    def alias(self, letter: str = "t") -> str:
        """A name that nothing else in the statement has."""
        self._aliases += 1
        return f"{letter}{self._aliases}"

    # ---- parameters ----------------------------------------------------------------------------------------------------------

    def parameter(self, number: int, location: int) -> TypedSql:
        """$number: of its declared type, or of type unknown until the context decides."""
        declared = self.parameters[number - 1].type_oid if number <= len(self.parameters) else 0
        if not self.describing and number > len(self.parameters):
            raise PostgresError("42P02", f"there is no parameter ${number}", position=position(location))
        declared = declared or self.inferred.get(number, 0)
        self.inferred.setdefault(number, 0)
        value = TypedSql("NULL", t.UNKNOWN, location=location, parameter=number)
        return coerce(value, declared, self.names) if declared and declared != t.UNKNOWN else value

    def _parameter_text(self, number: int, target: int) -> str | None:
        if not self.inferred.get(number):
            self.inferred[number] = target
        return self.parameters[number - 1].text if number <= len(self.parameters) and not self.describing else None

    # ---- SELECT --------------------------------------------------------------------------------------------------------------

    def subquery(self, node: ParseNode, scope: QueryScope, *, keep_order: bool = False) -> Query:
        """A SELECT inside another."""
        before = len(self.acting)
        query = self.select(unwrap(node), scope, keep_order=keep_order)
        if len(self.acting) > before:
            raise not_supported(f"function {self.acting[-1][0].name} is not supported in a subquery")
        return query

    def select(self, node: pb.SelectStmt, parent: QueryScope | None, *, keep_order: bool = False) -> Query:
        """A SELECT, VALUES or set operation."""
        scope = QueryScope(parent)
        lead = self._with(node, scope) if node.HasField("with_clause") else ""
        if node.op != pb.SETOP_NONE:
            query = self._set_operation(node, scope)
        elif node.values_lists:
            query = self._values(node, scope)
        else:
            query = self._plain(node, scope, keep_order=keep_order)
        if not lead:
            return query
        return Query(query.columns, lambda types: f"{lead} {query.build(types)}")

    def _with(self, node: ParseNode, scope: QueryScope) -> str:
        parts = []
        for each in node.with_clause.ctes:
            cte = unwrap(each)
            inner = unwrap(cte.ctequery)
            if inner.DESCRIPTOR.name != "SelectStmt":
                raise not_supported("data-modifying statements in WITH are not supported in a query on system catalogs")
            name = self.alias("w")
            given = sql_names.strings(cte.aliascolnames)
            recursive = node.with_clause.recursive and inner.op != pb.SETOP_NONE and _mentions(inner.rarg, cte.ctename)
            if recursive:
                base = self.select(inner.larg, scope)
                scope.ctes[cte.ctename] = Cte(name, output_columns(base.columns, base.types(), name, given))
                step = self.select(inner.rarg, scope)
                types = base.types()
                word = "UNION ALL" if inner.all else "UNION"
                body = f"({base.build(types)}) {word} ({step.build(types)})"
                listed = ", ".join(f"c{place}" for place in range(1, len(types) + 1))
                parts.append(f"{name}({listed}) AS ({body})")
            else:
                query = self.select(inner, scope)
                types = query.types()
                scope.ctes[cte.ctename] = Cte(name, output_columns(query.columns, types, name, given))
                parts.append(f"{name} AS ({query.build(types)})")
        return f"WITH {'RECURSIVE ' if node.with_clause.recursive else ''}{', '.join(parts)}"

    def _set_operation(self, node: pb.SelectStmt, scope: QueryScope) -> Query:
        left, right = self.select(node.larg, scope), self.select(node.rarg, scope)
        word = {pb.SETOP_UNION: "UNION", pb.SETOP_INTERSECT: "INTERSECT", pb.SETOP_EXCEPT: "EXCEPT"}[node.op]
        if len(left.columns) != len(right.columns):
            raise PostgresError("42601", f"each {word} query must have the same number of columns")
        columns = []
        for (name, a), (_, b) in zip(left.columns, right.columns, strict=True):
            both_unknown = a.unknown and b.unknown
            columns.append((name, TypedSql("", t.UNKNOWN if both_unknown else common([a, b], word))))
        word += " ALL" if node.all else ""

        def build(types: list[int]) -> str:
            body = f"({left.build(types)}) {word} ({right.build(types)})"
            order = self._order_output(node, columns)
            return f"SELECT * FROM ({body}) {self.alias('u')}{order}{self._limit(node, scope)}"

        return Query(columns, build)

    def _order_output(self, node: pb.SelectStmt, columns: list[tuple[str, TypedSql]]) -> str:
        keys = []
        for each in node.sort_clause:
            sort = unwrap(each)
            place = _output_place(unwrap(sort.node), [name for name, _ in columns])
            if place is None:
                raise not_supported("ORDER BY with an expression over a set operation is not supported")
            keys.append(self.sort_key(sort, f"c{place + 1}"))
        return f" ORDER BY {', '.join(keys)}" if keys else ""

    def _values(self, node: pb.SelectStmt, scope: QueryScope) -> Query:
        listed = [[self.expression(each, scope) for each in unwrap(row).items] for row in node.values_lists]
        if len({len(row) for row in listed}) > 1:
            raise PostgresError("42601", "VALUES lists must all be the same length")
        columns = []
        for place in range(len(listed[0])):
            values = [row[place] for row in listed]
            kind = t.UNKNOWN if all(value.unknown for value in values) else common(values, "VALUES")
            columns.append((f"column{place + 1}", TypedSql("", kind)))

        def build(types: list[int]) -> str:
            rows = [", ".join(coerce(value, kind, self.names).sql for value, kind in zip(row, types, strict=True)) for row in listed]
            names = ", ".join(f"c{place + 1}" for place in range(len(types)))
            body = ", ".join(f"({row})" for row in rows)
            order = self._order_output(node, columns)
            return f"SELECT * FROM (VALUES {body}) {self.alias('v')}({names}){order}{self._limit(node, scope)}"

        return Query(columns, build)

    def _plain(self, node: pb.SelectStmt, scope: QueryScope, *, keep_order: bool) -> Query:
        source = self.from_clause(node.from_clause, scope)
        targets = self._targets(node, scope)
        where = f" WHERE {self.condition(node.where_clause, scope, 'WHERE')}" if node.HasField("where_clause") else ""
        group = self._group(node, targets, scope)
        having = f" HAVING {self.condition(node.having_clause, scope, 'HAVING')}" if node.HasField("having_clause") else ""
        distinct = self._distinct(node, targets, scope)
        order = self._order(node, targets, scope) or (self._natural_order(scope) if keep_order and not group else "")
        limit = self._limit(node, scope)

        def build(types: list[int]) -> str:
            shown = [
                f"{output(value, self.names) if value.fields else coerce(value, kind, self.names).sql} AS c{place}"
                for place, ((_, value), kind) in enumerate(zip(targets, types, strict=True), 1)
            ]
            return f"SELECT {distinct}{', '.join(shown) or 'NULL AS c0'}{source}{where}{group}{having}{order}{limit}"

        return Query(targets, build)

    def _targets(self, node: pb.SelectStmt, scope: QueryScope) -> list[tuple[str, TypedSql]]:
        found: list[tuple[str, TypedSql]] = []
        for each in node.target_list:
            target = each.res_target
            inner = unwrap(target.val)
            expanded = self._star(inner, scope)
            if expanded is not None:
                found += expanded
                continue
            value = self.expression(inner, scope)
            found.append((target.name or title(inner), value))
        return found

    def _star(self, node: ParseNode, scope: QueryScope) -> list[tuple[str, TypedSql]] | None:
        kind = node.DESCRIPTOR.name
        if kind == "ColumnRef" and unwrap(node.fields[-1]).DESCRIPTOR.name == "A_Star":
            words = sql_names.strings(node.fields[:-1])
            if words:
                source = scope.source(words[-2] if len(words) > 1 else None, words[-1])
                if source is None:
                    raise PostgresError("42P01", f'missing FROM-clause entry for table "{words[-1]}"', position=position(node.location))
                return list(source.columns)
            if not scope.sources:
                raise PostgresError("42601", "SELECT * with no tables specified is not valid", position=position(node.location))
            return [pair for source in scope.sources if source.star for pair in source.columns if pair[0] not in source.hidden]
        if kind == "A_Indirection" and unwrap(node.indirection[-1]).DESCRIPTOR.name == "A_Star":
            value = self.expression(node.arg, scope)
            if value.fields:
                return list(value.fields)
            if value.struct:
                return [(name, self._field(value, name, node)) for name, _ in value.struct]
            raise not_supported("expanding this row is not supported", position=position(getattr(node, "location", -1)))
        return None

    def _group(self, node: pb.SelectStmt, targets: list[tuple[str, TypedSql]], scope: QueryScope) -> str:
        keys = []
        for each in node.group_clause:
            inner = unwrap(each)
            if inner.DESCRIPTOR.name == "GroupingSet":
                raise not_supported("GROUPING SETS are not supported in a query on system catalogs", position=position(inner.location))
            keys.append(self._output_or_input(inner, targets, scope, input_first=True, clause="GROUP BY").sql)
        keys = [key for key in keys if key != "NULL"]
        return f" GROUP BY {', '.join(keys)}" if keys else ""

    def _output_or_input(
        self, node: ParseNode, targets: list[tuple[str, TypedSql]], scope: QueryScope, *, input_first: bool, clause: str
    ) -> TypedSql:
        """An expression of GROUP BY, ORDER BY or DISTINCT ON, which may be an output column's number or name."""
        if node.DESCRIPTOR.name == "A_Const" and node.WhichOneof("val") == "ival":
            if not 1 <= node.ival.ival <= len(targets):
                raise PostgresError("42P10", f"{clause} position {node.ival.ival} is not in select list", position=position(node.location))
            return self._settled(targets[node.ival.ival - 1][1])
        if node.DESCRIPTOR.name == "ColumnRef" and len(node.fields) == 1 and unwrap(node.fields[0]).DESCRIPTOR.name == "String":
            name = unwrap(node.fields[0]).sval
            named = [value for known, value in targets if known == name]
            if named and not (input_first and any(name == known for source in scope.sources for known, _ in source.columns)):
                return self._settled(named[0])
        return self._settled(self.expression(node, scope))

    def _settled(self, value: TypedSql) -> TypedSql:
        return coerce(value, t.TEXT, self.names) if value.unknown else value

    def _distinct(self, node: pb.SelectStmt, targets: list[tuple[str, TypedSql]], scope: QueryScope) -> str:
        if not node.distinct_clause:
            return ""
        keys = [unwrap(each) for each in node.distinct_clause]
        if keys == [None]:
            return "DISTINCT "
        shown = [self._output_or_input(key, targets, scope, input_first=False, clause="DISTINCT ON").sql for key in keys]
        return f"DISTINCT ON ({', '.join(shown)}) "

    def _order(self, node: pb.SelectStmt, targets: list[tuple[str, TypedSql]], scope: QueryScope) -> str:
        keys = []
        for each in node.sort_clause:
            sort = unwrap(each)
            inner = unwrap(sort.node)
            place = _output_place(inner, [name for name, _ in targets])
            if place is not None and "<acting" not in targets[place][1].sql:
                keys.append(self.sort_key(sort, f"c{place + 1}"))
            else:
                keys.append(self.sort_key(sort, self._output_or_input(inner, targets, scope, input_first=False, clause="ORDER BY").sql))
        return f" ORDER BY {', '.join(keys)}" if keys else ""

    def _limit(self, node: pb.SelectStmt, scope: QueryScope) -> str:
        found = ""
        for word, name in (("LIMIT", "limit_count"), ("OFFSET", "limit_offset")):
            if node.HasField(name):
                inner = unwrap(getattr(node, name))
                if inner.DESCRIPTOR.name == "A_Const" and inner.isnull:
                    continue
                found += f" {word} {coerce(self.expression(inner, scope), t.INT8, self.names).sql}"
        if found and " OFFSET " not in found:
            found += " OFFSET 0"  # DuckDB leaves a LIMIT alone out where it takes a LEFT JOIN of nothing for nothing
        return found


def _output_place(node: ParseNode, names: list[str]) -> int | None:
    """The output column that a key of ORDER BY names by number or name, counted from 0."""
    if node.DESCRIPTOR.name == "A_Const" and node.WhichOneof("val") == "ival":
        if not 1 <= node.ival.ival <= len(names):
            raise PostgresError("42P10", f"ORDER BY position {node.ival.ival} is not in select list", position=position(node.location))
        return int(node.ival.ival) - 1
    if node.DESCRIPTOR.name == "ColumnRef" and len(node.fields) == 1 and unwrap(node.fields[0]).DESCRIPTOR.name == "String":
        name = unwrap(node.fields[0]).sval
        return names.index(name) if name in names else None
    return None


def _mentions(node: ParseNode, name: str) -> bool:
    return any(each.DESCRIPTOR.name == "RangeVar" and each.relname == name for each in walk(node))
