"""Calls in a query on system relations: functions by name, aggregates, windows, and the values that SQL calls without brackets.

One half of `rewrite.Rewriter`, on `writer`. What the catalog's functions are in DuckDB is `function`'s; those that need the session and
those that return sets are methods of the classes above (`session_call`, `from_function`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from postgast import pg_query_pb2 as pb

from headgate.catalog.query import function
from headgate.catalog.query.cast import coerce
from headgate.catalog.query.procedure import OWN, called
from headgate.catalog.query.scope import QueryScope
from headgate.catalog.query.value import TypedSql, no_function, position, quote
from headgate.catalog.query.writer import ExpressionWriter
from headgate.errors import not_supported
from headgate.sql import names as sql_names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry as t


class CallWriter(ExpressionWriter):
    """Writes calls. A subclass gives the functions that need the session and those that return sets."""

    def session_call(self, name: str, node: ParseNode, scope: QueryScope) -> TypedSql | None:
        """A function that the session answers, or None."""
        raise NotImplementedError

    def set_call(self, name: str, node: ParseNode, scope: QueryScope) -> TypedSql | None:
        """A set-returning function in a select list, as unnest(list), or None."""
        raise NotImplementedError

    def _funccall(self, node: pb.FuncCall, scope: QueryScope) -> TypedSql:
        parts = sql_names.strings(node.funcname)
        name = called(parts)
        if len(parts) > 1 and parts[-2] not in ("pg_catalog", "information_schema") and (name not in OWN or OWN[name].is_set):
            raise no_function(".".join(parts), self.expressions(node.args, scope), node.location)
        found = self.session_call(name, node, scope) or self.set_call(name, node, scope)
        if found is not None:
            return found
        if name in function.signatures()[1]:
            return self._aggregate(name, node, scope)
        arguments = self.expressions([_named(each) for each in node.args], scope)
        if node.HasField("over"):
            return self._window(function.call(name, arguments, self.names, node.location), node, scope)
        if name in ("concat", "concat_ws"):
            texts = [coerce(value, t.TEXT, self.names).sql for value in arguments]
            return TypedSql(f"{name}({', '.join(texts)})", t.TEXT)
        if name == "format":
            return self._format(node, arguments)
        if name in ("_pg_truetypid", "_pg_truetypmod"):
            return _true_type(name, arguments)
        if name == "pg_get_expr" and len(arguments) > 2 and arguments[2].sql == "TRUE":
            arguments[0] = _pretty(arguments[0])
        return function.call(name, arguments, self.names, node.location)

    def _sqlvaluefunction(self, node: ParseNode, scope: QueryScope) -> TypedSql:
        op = pb.SQLValueFunctionOp.Name(node.op).removeprefix("SVFOP_").lower()
        name = {"current_catalog": "current_database", "user": "current_user", "current_role": "current_user"}.get(op, op)
        found = self.session_call(name.removesuffix("_n"), None, scope)
        if found is None:
            raise not_supported(f"{name} is not supported in a query on system catalogs", position=position(node.location))
        return found

    def _format(self, node: pb.FuncCall, arguments: list[TypedSql]) -> TypedSql:
        """format() with a constant pattern of %s, %I, %L."""
        pattern = arguments[0].literal if arguments else None
        if pattern is None:
            raise not_supported("format with a pattern that is not a constant is not supported", position=position(node.location))
        texts = [coerce(value, t.TEXT, self.names).sql for value in arguments[1:]]
        parts = []
        for piece in re.split(r"(%[%sIL])", pattern):
            if piece in ("%s", "%I", "%L"):
                shown = texts.pop(0)
                parts.append(
                    {
                        "%s": f"coalesce({shown}, '')",
                        "%I": f"hg.quote_ident({shown})",
                        "%L": f"coalesce(hg.quote_literal({shown}), 'NULL')",
                    }[piece]
                )
            elif piece:
                parts.append(quote("%" if piece == "%%" else piece))
        return TypedSql(f"({' || '.join(parts) or quote('')})", t.TEXT)

    def _aggregate(self, name: str, node: pb.FuncCall, scope: QueryScope) -> TypedSql:
        if name == "count" and node.agg_star:
            value = TypedSql("count(*)", t.INT8)
        else:
            arguments = self.expressions(node.args, scope)
            value = function.call(name, arguments, self.names, node.location, aggregate=True)
            inside = value.sql
            distinct = "DISTINCT " if node.agg_distinct else ""
            order = self._sorted(node.agg_order, scope) or (self._natural_order(scope) if name in ("string_agg", "array_agg") else "")
            value = TypedSql(_inside(inside, distinct, order if not distinct or node.agg_order else ""), value.type)
        if node.HasField("agg_filter"):
            value = TypedSql(f"{value.sql} FILTER (WHERE {self.condition(node.agg_filter, scope, 'FILTER')})", value.type)
            if value.sql.startswith("CAST("):
                raise not_supported("FILTER with this aggregate is not supported", position=position(node.location))
        return self._window(value, node, scope) if node.HasField("over") else value

    def _natural_order(self, scope: QueryScope) -> str:
        orders = [source.order for source in scope.sources if source.order]
        return f" ORDER BY {', '.join(orders)}" if orders else ""

    def _window(self, value: TypedSql, node: ParseNode, scope: QueryScope) -> TypedSql:
        over = node.over
        partition = ", ".join(each.sql for each in self.expressions(over.partition_clause, scope))
        inside = (f"PARTITION BY {partition}" if partition else "") + self._sorted(over.order_clause, scope)
        return TypedSql(f"{value.sql} OVER ({inside.strip()})", value.type)

    def _sorted(self, clause: Iterable[Any], scope: QueryScope) -> str:
        shown = [self.sort_key(unwrap(each), self.expression(unwrap(each).node, scope).sql) for each in clause]
        return f" ORDER BY {', '.join(shown)}" if shown else ""

    @staticmethod
    def sort_key(node: pb.SortBy, sql: str) -> str:
        """One key of ORDER BY with PostgreSQL's place of NULLs."""
        descending = node.sortby_dir == pb.SORTBY_DESC
        first = node.sortby_nulls == pb.SORTBY_NULLS_FIRST or (descending and node.sortby_nulls != pb.SORTBY_NULLS_LAST)
        return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def _inside(call: str, distinct: str, order: str) -> str:
    """Puts DISTINCT and ORDER BY into the call of an aggregate, which may be wrapped in a CAST."""
    matched = re.match(r"(CAST\()?(\w+)\(", call)
    if matched is None or not (distinct or order):
        return call
    start = matched.end()
    depth, end = 1, start
    quoted = False
    while depth:
        char = call[end]
        if char == "'":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(char, 0)
        end += 1
    return call[:start] + distinct + call[start : end - 1] + order + call[end - 1 :]


def _true_type(name: str, arguments: list[TypedSql]) -> TypedSql:
    """information_schema's functions that look through a domain: of a row of pg_attribute and one of pg_type."""
    attribute, kind = (dict(value.fields) for value in arguments)
    if name == "_pg_truetypid":
        chosen = (kind["typbasetype"].sql, attribute["atttypid"].sql)
    else:
        chosen = (kind["typtypmod"].sql, attribute["atttypmod"].sql)
    sql = f"CASE WHEN {kind['typtype'].sql} = 'd' THEN {chosen[0]} ELSE {chosen[1]} END"
    return TypedSql(sql, t.OID if name == "_pg_truetypid" else t.INT4)


def _named(node: ParseNode) -> Any:
    inner = unwrap(node)
    return inner.arg if inner.DESCRIPTOR.name == "NamedArgExpr" else inner


def _pretty(value: TypedSql) -> TypedSql:
    """The column that holds the pretty-printed text of an expression."""
    return TypedSql(re.sub(r'"(adbin|conbin|indpred)"\Z', r'"\1pretty"', value.sql), value.type)
