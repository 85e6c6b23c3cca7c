"""Expressions of a query on system relations: parse tree → typed DuckDB SQL.

One method per kind of node. The classes above write the rest: `call` functions, `rewrite` and `from_item` the SELECT of a subquery.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import duckdb_type
from headgate.catalog.query import literal, operator
from headgate.catalog.query.cast import CatalogNames, coerce, common
from headgate.catalog.query.scope import Query, QueryScope
from headgate.catalog.query.value import TypedSql, array_of, element_of, null, position, quote
from headgate.errors import PostgresError, not_supported
from headgate.interruption import look
from headgate.sql import names as sql_names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry as t
from headgate.types.registry import format_type


class ExpressionWriter:
    """Writes expressions. A subclass gives `names`, `subquery`, `parameter` and the calls."""

    names: CatalogNames

    def subquery(self, node: ParseNode, scope: QueryScope, *, keep_order: bool = False) -> Query:
        """A SELECT inside an expression."""
        raise NotImplementedError

    def parameter(self, number: int, location: int) -> TypedSql:
        """$number."""
        raise NotImplementedError

    def expression(self, node: ParseNode, scope: QueryScope) -> TypedSql:
        """Any expression."""
        look()
        inner = unwrap(node)
        if inner is None:
            return null()
        kind = inner.DESCRIPTOR.name
        method: Callable[[Any, QueryScope], TypedSql] | None = getattr(self, f"_{kind.lower()}", None)
        if method is None:
            raise not_supported(f"{kind} is not supported in a query on system catalogs", position=position(getattr(inner, "location", -1)))
        return method(inner, scope)

    def condition(self, node: ParseNode, scope: QueryScope, clause: str) -> str:
        """A boolean expression as SQL; 42804 for another type."""
        value = self.expression(node, scope)
        if value.unknown:
            value = coerce(value, t.BOOL, self.names)
        if value.type != t.BOOL:
            inner = unwrap(node)
            raise PostgresError(
                "42804",
                f"argument of {clause} must be type boolean, not type {format_type(value.type)}",
                position=position(getattr(inner, "location", -1)),
            )
        return value.sql

    def expressions(self, nodes: Iterable[Any], scope: QueryScope) -> list[TypedSql]:
        """Several expressions."""
        return [self.expression(node, scope) for node in nodes]

    # ---- constants, columns ------------------------------------------------------------------------------------------

    def _a_const(self, node: pb.A_Const, _scope: QueryScope) -> TypedSql:
        where = node.location
        if node.isnull:
            return TypedSql("NULL", t.UNKNOWN, location=where)
        kind = node.WhichOneof("val")
        if kind == "ival":
            return TypedSql(str(node.ival.ival), t.INT4, location=where)
        if kind == "boolval":
            return TypedSql("TRUE" if node.boolval.boolval else "FALSE", t.BOOL, location=where)
        if kind == "fval":
            return _float(node.fval.fval, where)
        if kind == "sval":
            return TypedSql(quote(node.sval.sval), t.UNKNOWN, literal=node.sval.sval, location=where)
        raise not_supported("bit string constants are not supported in a query on system catalogs", position=position(where))

    def _columnref(self, node: pb.ColumnRef, scope: QueryScope) -> TypedSql:
        parts = [unwrap(each) for each in node.fields]
        if parts[-1].DESCRIPTOR.name == "A_Star":
            source = scope.source(None, parts[0].sval) if len(parts) > 1 else None
            if source is None:
                raise PostgresError("42601", 'row expansion via "*" is not supported here', position=position(node.location))
            return source.row()
        words = [each.sval for each in parts]
        if len(words) == 1:
            return scope.column(words[0], node.location)
        return scope.qualified(words[-3] if len(words) > 2 else None, words[-2], words[-1], node.location)

    def _paramref(self, node: pb.ParamRef, _scope: QueryScope) -> TypedSql:
        return self.parameter(node.number, node.location)

    # ---- casts, operators ------------------------------------------------------------------------------------------------

    def _typecast(self, node: pb.TypeCast, scope: QueryScope) -> TypedSql:
        target, typmod = sql_names.type_name(node.type_name)
        known = t.builtin().find(target)
        if known is not None and known.kind == t.TypeKind.DOMAIN:
            target, typmod = known.base, known.base_typmod
        inner = unwrap(node.arg)
        element = element_of(target)
        if inner.DESCRIPTOR.name == "A_ArrayExpr" and element is not None:
            listed = [coerce(self.expression(each, scope), element, self.names, explicit=True).sql for each in inner.elements]
            return TypedSql(f"CAST([{', '.join(listed)}] AS {duckdb_type(target)})", target)
        where = node.location if node.location >= 0 else getattr(inner, "location", -1)
        value = coerce(self.expression(inner, scope), target, self.names, explicit=True, location=where)
        return _with_typmod(value, target, typmod)

    def _collateclause(self, node: pb.CollateClause, scope: QueryScope) -> TypedSql:
        name = sql_names.strings(node.collname)[-1]
        if name not in ("default", "C", "POSIX", "ucs_basic"):
            raise PostgresError("42704", f'collation "{name}" for encoding "UTF8" does not exist', position=position(node.location))
        value = self.expression(node.arg, scope)
        return coerce(value, t.TEXT, self.names) if value.unknown else value

    def _a_expr(self, node: pb.A_Expr, scope: QueryScope) -> TypedSql:
        kind, where = node.kind, node.location
        name = sql_names.strings(node.name)[-1] if node.name else "="
        if kind in (pb.AEXPR_OP, pb.AEXPR_LIKE, pb.AEXPR_ILIKE):
            if not node.HasField("lexpr"):
                return operator.prefix(name, self.expression(node.rexpr, scope), self.names, where)
            return self._operate(name, node, scope)
        if kind in (pb.AEXPR_OP_ANY, pb.AEXPR_OP_ALL):
            left, right = self.expression(node.lexpr, scope), self.expression(node.rexpr, scope)
            return operator.any_all(name, left, right, self.names, where, every=kind == pb.AEXPR_OP_ALL)
        if kind == pb.AEXPR_IN:
            return self._in(name, node, scope)
        if kind in (pb.AEXPR_DISTINCT, pb.AEXPR_NOT_DISTINCT):
            left, right = operator.comparable("=", *self._sides(node, scope), self.names, where)
            word = "IS DISTINCT FROM" if kind == pb.AEXPR_DISTINCT else "IS NOT DISTINCT FROM"
            return TypedSql(f"({left.sql} {word} {right.sql})", t.BOOL)
        if kind == pb.AEXPR_NULLIF:
            left, right = operator.comparable("=", *self._sides(node, scope), self.names, where)
            return TypedSql(f"nullif({left.sql}, {right.sql})", left.type)
        if kind in (pb.AEXPR_BETWEEN, pb.AEXPR_NOT_BETWEEN, pb.AEXPR_BETWEEN_SYM, pb.AEXPR_NOT_BETWEEN_SYM):
            return self._between(node, scope)
        raise not_supported(f"operator {name} is not supported in a query on system catalogs", position=position(where))

    def _sides(self, node: pb.A_Expr, scope: QueryScope) -> tuple[TypedSql, TypedSql]:
        return self.expression(node.lexpr, scope), self.expression(node.rexpr, scope)

    def _operate(self, name: str, node: pb.A_Expr, scope: QueryScope) -> TypedSql:
        left_node, right_node = unwrap(node.lexpr), unwrap(node.rexpr)
        if left_node.DESCRIPTOR.name == right_node.DESCRIPTOR.name == "RowExpr":
            pairs = [
                operator.comparable(name, self.expression(a, scope), self.expression(b, scope), self.names, node.location)
                for a, b in zip(left_node.args, right_node.args, strict=True)
            ]
            left = ", ".join(a.sql for a, _ in pairs)
            right = ", ".join(b.sql for _, b in pairs)
            return TypedSql(f"(({left}) {operator.COMPARISONS[name]} ({right}))", t.BOOL)
        if right_node.DESCRIPTOR.name == "FuncCall" and sql_names.strings(right_node.funcname)[-1] == "like_escape":
            pattern, escape = (coerce(each, t.TEXT, self.names) for each in self.expressions(right_node.args, scope))
            found = operator.binary(name, self.expression(left_node, scope), pattern, self.names, node.location)
            return TypedSql(found.sql.removesuffix(" ESCAPE '\\')") + f" ESCAPE {escape.sql})", t.BOOL)
        return operator.binary(name, *self._sides(node, scope), self.names, node.location)

    def _in(self, name: str, node: pb.A_Expr, scope: QueryScope) -> TypedSql:
        left_node = unwrap(node.lexpr)
        items = unwrap(node.rexpr).items
        if left_node.DESCRIPTOR.name == "RowExpr":
            rows = [[self.expression(each, scope) for each in unwrap(item).args] for item in items]
            left_row = [self.expression(each, scope) for each in left_node.args]
            shown = []
            for row in rows:
                pairs = [operator.comparable("=", a, b, self.names, node.location) for a, b in zip(left_row, row, strict=True)]
                shown.append(" AND ".join(f"{a.sql} = {b.sql}" for a, b in pairs))
            sql = " OR ".join(f"({each})" for each in shown)
            return TypedSql(f"(NOT ({sql}))" if name == "<>" else f"({sql})", t.BOOL)
        left = self.expression(node.lexpr, scope)
        values = self.expressions(items, scope)
        if left.unknown:
            left = coerce(left, common(values, "IN"), self.names)
        listed = [operator.comparable("=", left, value, self.names, node.location)[1].sql for value in values]
        return TypedSql(f"({left.sql} {'NOT IN' if name == '<>' else 'IN'} ({', '.join(listed)}))", t.BOOL)

    def _between(self, node: ParseNode, scope: QueryScope) -> TypedSql:
        low, high = self.expressions(unwrap(node.rexpr).items, scope)
        value = self.expression(node.lexpr, scope)
        first = operator.binary(">=", value, low, self.names, node.location).sql
        second = operator.binary("<=", value, high, self.names, node.location).sql
        sql = f"({first} AND {second})"
        if node.kind in (pb.AEXPR_BETWEEN_SYM, pb.AEXPR_NOT_BETWEEN_SYM):
            third = operator.binary(">=", value, high, self.names, node.location).sql
            fourth = operator.binary("<=", value, low, self.names, node.location).sql
            sql = f"({sql} OR ({third} AND {fourth}))"
        negated = node.kind in (pb.AEXPR_NOT_BETWEEN, pb.AEXPR_NOT_BETWEEN_SYM)
        return TypedSql(f"(NOT {sql})" if negated else sql, t.BOOL)

    def _boolexpr(self, node: pb.BoolExpr, scope: QueryScope) -> TypedSql:
        word = {pb.AND_EXPR: "AND", pb.OR_EXPR: "OR", pb.NOT_EXPR: "NOT"}[node.boolop]
        parts = [self.condition(each, scope, word) for each in node.args]
        if node.boolop == pb.NOT_EXPR:
            return TypedSql(f"(NOT {parts[0]})", t.BOOL)
        return TypedSql("(" + f" {word} ".join(parts) + ")", t.BOOL)

    def _nulltest(self, node: pb.NullTest, scope: QueryScope) -> TypedSql:
        value = self.expression(node.arg, scope)
        word = "IS NULL" if node.nulltesttype == pb.IS_NULL else "IS NOT NULL"
        if value.fields:
            return TypedSql("(" + " AND ".join(f"{each.sql} {word}" for _, each in value.fields) + ")", t.BOOL)
        return TypedSql(f"({value.sql} {word})", t.BOOL)

    def _booleantest(self, node: ParseNode, scope: QueryScope) -> TypedSql:
        word = pb.BoolTestType.Name(node.booltesttype).replace("_UNKNOWN", "_NULL").replace("_", " ")
        return TypedSql(f"({self.condition(node.arg, scope, word)} {word})", t.BOOL)

    # ---- CASE, COALESCE, arrays, rows --------------------------------------------------------------------------------------

    def _caseexpr(self, node: pb.CaseExpr, scope: QueryScope) -> TypedSql:
        subject = self.expression(node.arg, scope) if node.HasField("arg") else None
        conditions, results = [], []
        for each in node.args:
            when = unwrap(each)
            if subject is None:
                conditions.append(self.condition(when.expr, scope, "CASE/WHEN"))
            else:
                conditions.append(operator.binary("=", subject, self.expression(when.expr, scope), self.names, node.location).sql)
            results.append(self.expression(when.result, scope))
        otherwise = self.expression(node.defresult, scope) if node.HasField("defresult") else null()
        kind = common([otherwise, *results], "CASE")
        shown = [f"WHEN {c} THEN {coerce(r, kind, self.names).sql}" for c, r in zip(conditions, results, strict=True)]
        zero = any(value.zero_based for value in results)
        return TypedSql(f"CASE {' '.join(shown)} ELSE {coerce(otherwise, kind, self.names).sql} END", kind, zero_based=zero)

    def _coalesceexpr(self, node: pb.CoalesceExpr, scope: QueryScope) -> TypedSql:
        return self._unified("coalesce", self.expressions(node.args, scope), "COALESCE")

    def _minmaxexpr(self, node: ParseNode, scope: QueryScope) -> TypedSql:
        word = "greatest" if node.op == pb.IS_GREATEST else "least"
        return self._unified(word, self.expressions(node.args, scope), word.upper())

    def _unified(self, word: str, values: list[TypedSql], context: str) -> TypedSql:
        kind = common(values, context)
        return TypedSql(f"{word}({', '.join(coerce(value, kind, self.names).sql for value in values)})", kind)

    def _a_arrayexpr(self, node: pb.A_ArrayExpr, scope: QueryScope) -> TypedSql:
        values = self.expressions(node.elements, scope)
        if not values:
            raise PostgresError(
                "42P18",
                "cannot determine type of empty array",
                hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
                position=position(node.location),
            )
        kind = common(values, "ARRAY")
        return TypedSql(f"[{', '.join(coerce(value, kind, self.names).sql for value in values)}]", array_of(kind))

    def _rowexpr(self, node: pb.RowExpr, scope: QueryScope) -> TypedSql:
        values = self.expressions(node.args, scope)
        settled = [coerce(value, t.TEXT, self.names) if value.unknown else value for value in values]
        return TypedSql("NULL", t.RECORD, fields=tuple((f"f{place}", value) for place, value in enumerate(settled, 1)))

    def _a_indirection(self, node: pb.A_Indirection, scope: QueryScope) -> TypedSql:
        value = self.expression(node.arg, scope)
        for each in node.indirection:
            step = unwrap(each)
            if step.DESCRIPTOR.name == "String":
                value = self._field(value, step.sval, node)
            elif step.DESCRIPTOR.name == "A_Indices":
                value = self._subscript(value, step, scope)
            else:
                raise not_supported("row expansion is not supported here")
        return value

    def _field(self, value: TypedSql, name: str, _node: ParseNode) -> TypedSql:
        for known, each in value.fields:
            if known == name:
                return each
        for known, kind in value.struct:
            if known == name:
                return TypedSql(f"struct_extract({value.sql}, {quote(name)})", kind, is_set=value.is_set)
        raise PostgresError("42703", f'could not identify column "{name}" in record data type')

    def _subscript(self, value: TypedSql, step: pb.A_Indices, scope: QueryScope) -> TypedSql:
        element = element_of(value.type)
        if value.type == t.NAME and not step.is_slice:  # name is an array of "char" that counts from 0
            place = coerce(self.expression(step.uidx, scope), t.INT4, self.names).sql
            return TypedSql(f"substr({value.sql}, {place} + 1, 1)", t.CHAR)
        if element is None:
            raise PostgresError("42804", f"cannot subscript type {format_type(value.type)} because it does not support subscripting")
        shift = 1 if value.zero_based else 0

        def bound(node: ParseNode) -> str:
            return f"CAST({coerce(self.expression(node, scope), t.INT4, self.names).sql} AS BIGINT) + {shift}"

        if step.is_slice:
            low = bound(step.lidx) if step.HasField("lidx") else "1"
            high = bound(step.uidx) if step.HasField("uidx") else f"len({value.sql})"
            return TypedSql(f"list_slice({value.sql}, {low}, {high})", array_of(element) if value.zero_based else value.type)
        return TypedSql(f"list_extract({value.sql}, {bound(step.uidx)})", element)

    # ---- subqueries --------------------------------------------------------------------------------------------------------

    def _sublink(self, node: pb.SubLink, scope: QueryScope) -> TypedSql:
        kind = node.sub_link_type
        query = self.subquery(node.subselect, scope, keep_order=kind == pb.ARRAY_SUBLINK)
        types = query.types()
        if kind == pb.EXISTS_SUBLINK:
            return TypedSql(f"EXISTS ({query.build(types)})", t.BOOL)
        if kind == pb.ARRAY_SUBLINK:
            return TypedSql(f"ARRAY({query.build(types)})", array_of(types[0]))
        if kind == pb.EXPR_SUBLINK:
            if len(types) != 1:
                raise PostgresError("42601", "subquery must return only one column", position=position(node.location))
            return TypedSql(f"({query.build(types)})", types[0])
        if kind not in (pb.ANY_SUBLINK, pb.ALL_SUBLINK):
            raise not_supported("this kind of subquery is not supported in a query on system catalogs", position=position(node.location))
        return self._compared_with_query(node, query, types, scope)

    def _compared_with_query(self, node: pb.SubLink, query: Query, types: list[int], scope: QueryScope) -> TypedSql:
        test = self.expression(node.testexpr, scope)
        name = sql_names.strings(node.oper_name)[-1] if node.oper_name else "="
        tested = [value for _, value in test.fields] or [test]
        if len(tested) != len(types):
            raise PostgresError("42601", "subquery has too many columns", position=position(node.location))
        tested = [coerce(each, kind, self.names) if each.unknown else each for each, kind in zip(tested, types, strict=True)]
        if node.sub_link_type == pb.ANY_SUBLINK:
            wanted = [each.type if value.unknown else kind for each, kind, (_, value) in zip(tested, types, query.columns, strict=True)]
        else:
            wanted = types
        for each, kind in zip(tested, wanted, strict=True):
            operator.comparable(name, each, TypedSql("x", kind), self.names, node.location)
        left = ", ".join(each.sql for each in tested)
        left = f"({left})" if len(tested) > 1 else left
        body = query.build(wanted)
        if name == "=" and node.sub_link_type == pb.ANY_SUBLINK:
            return TypedSql(f"({left} IN ({body}))", t.BOOL)
        word = "ALL" if node.sub_link_type == pb.ALL_SUBLINK else "ANY"
        return TypedSql(f"({left} {operator.COMPARISONS[name]} {word} ({body}))", t.BOOL)


def _float(text: str, location: int) -> TypedSql:
    if re.match(r"\d+\Z", text):
        number = int(text)
        if number < 2**63:
            return TypedSql(f"CAST({number} AS BIGINT)", t.INT8, location=location)
    if not re.match(r"[\d.]+\Z", text):
        text = format(Decimal(text.replace("_", "")), "f")
    return TypedSql(literal.decimal(text), t.NUMERIC, location=location)


def _with_typmod(value: TypedSql, target: int, typmod: int) -> TypedSql:
    if typmod < 0:
        return value
    if target in (t.VARCHAR, t.BPCHAR):
        return TypedSql(f"left({value.sql}, {typmod - 4})", target, typmod)
    if target == t.NUMERIC:
        return TypedSql(f"CAST({value.sql} AS DECIMAL({(typmod - 4) >> 16},{(typmod - 4) & 0x7FF}))", target, typmod)
    return TypedSql(value.sql, target, typmod)
