"""Parse tree → typed expression: PostgreSQL's transformExpr (parse_expr.c) on postgast's nodes.

The public functions: `bind` (a SELECT list's item), `bind_condition` (WHERE, ON, HAVING, CHECK, a row filter), `bind_raw` (leaves
unknown literals unknown, for VALUES and CASE-like unification above), `assign` (INSERT, UPDATE, DEFAULT: assignment to a column),
`resolve_unknown`. One short function per parse node; `operators` and `calls` hold the nodes of operators and functions.

What must hold: the tree is PostgreSQL's analysed tree before constant folding: ``a > 1 + 2`` keeps its addition. Locations
count characters from 0 (see `headgate.sql.parser`); errors carry PostgreSQL's position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin, calls, operators
from headgate.expression.coerce import (
    Reach,
    coerce,
    coerce_type,
    common_modifier,
    common_type,
    modifier_of,
    to_boolean,
    to_common,
)
from headgate.expression.context import BindContext
from headgate.expression.node import (
    BOOLEAN,
    INTEGER,
    ArrayExpr,
    BooleanTest,
    BoolExpr,
    BoolKind,
    Case,
    CaseTest,
    Coalesce,
    Collate,
    ColumnRef,
    Const,
    Expression,
    FieldSelect,
    Form,
    Grouping,
    MinMax,
    NullTest,
    Param,
    RowExpr,
    SetToDefault,
    SqlValue,
    SubLink,
    Subscript,
    TestKind,
    TypeRef,
    location_of,
)
from headgate.expression.scope import Scope, ScopeTable, find_table, has_table, resolve
from headgate.sql import names
from headgate.sql.parser import unwrap
from headgate.types import numeric, registry

UNKNOWN = TypeRef(registry.UNKNOWN)
_INT4_MAX, _INT8_MAX = 2**31 - 1, 2**63 - 1


def bind(node: Any, scope: Scope, *, context: BindContext) -> Expression:
    """The typed expression of a parse node; an unknown literal becomes text, as in a SELECT list."""
    return resolve_unknown(bind_raw(node, scope, context), context)


def bind_raw(node: Any, scope: Scope, context: BindContext) -> Expression:
    """As `bind`, but literals may still be of type unknown: for callers that unify or coerce them."""
    inner = unwrap(node)
    handler = _HANDLERS.get(inner.DESCRIPTOR.name)
    if handler is None:
        raise not_supported(f"expressions of the form {inner.DESCRIPTOR.name} are not supported")
    return handler(inner, scope, context)


def bind_condition(node: Any, scope: Scope, construct: str, *, context: BindContext) -> Expression:
    """A boolean expression: 42804 ``argument of WHERE must be type boolean, not type integer`` with `construct` as the clause."""
    return to_boolean(bind_raw(node, scope, context.within(construct=construct)), construct, context)


def resolve_unknown(expression: Expression, context: BindContext) -> Expression:
    """resolveTargetListUnknowns: what is still unknown becomes text."""
    if expression.type.oid != registry.UNKNOWN:
        return expression
    return coerce_type(expression, registry.TEXT, Reach.IMPLICIT, context)


def assign(expression: Expression, target: TypeRef, column: str, context: BindContext) -> Expression:
    """The value as it enters a column of type `target` (transformAssignedExpr); 42804 if there is no assignment cast.

    A SetToDefault is handed through with the column's type.
    """
    if isinstance(expression, SetToDefault):
        return replace(expression, type=target)
    result = coerce(expression, target, Reach.ASSIGNMENT, context)
    if result is None:
        raise PostgresError(
            "42804",
            f'column "{column}" is of type {context.show_type(target.oid)} but expression is of type '
            f"{context.show_type(expression.type.oid)}",
            hint="You will need to rewrite or cast the expression.",
            position=context.position(location_of(expression)),
        )
    return result


def bind_default(node: Any, target: TypeRef, column: str, *, context: BindContext) -> Expression:
    """A column's DEFAULT, coerced to the column's type; 0A000 if it names a column."""
    scope = Scope()
    bound = bind_raw(node, scope, context.within(construct="DEFAULT expressions"))
    result = coerce(bound, target, Reach.ASSIGNMENT, context)
    if result is None:
        raise PostgresError(
            "42804",
            f'column "{column}" is of type {context.show_type(target.oid)} but default expression is of type '
            f"{context.show_type(bound.type.oid)}",
            hint="You will need to rewrite or cast the expression.",
        )
    return result


def unify(expressions: Sequence[Expression], construct: str, context: BindContext) -> tuple[list[Expression], TypeRef]:
    """The expressions coerced to their common type (manual, 10.5), and that type: for UNION and VALUES."""
    oid = common_type(expressions, construct, context)
    modifier = common_modifier(expressions, oid)
    done = [to_common(each, oid, construct, context) for each in expressions]
    return done, TypeRef(oid, modifier, context.inherited_collation(oid, done))


def _constant(node: Any, scope: Scope, context: BindContext) -> Expression:
    which = node.WhichOneof("val")
    if node.isnull or which is None:
        return Const(type=UNKNOWN, value=None, location=node.location)
    if which == "ival":
        return Const(type=INTEGER, value=str(node.ival.ival), location=node.location)
    if which == "fval":
        return _number(node.fval.fval, node.location)
    if which == "boolval":
        return Const(type=BOOLEAN, value="t" if node.boolval.boolval else "f", location=node.location)
    if which == "sval":
        return Const(type=UNKNOWN, value=node.sval.sval, location=node.location)
    bits = node.bsval.bsval
    if bits[:1] in ("x", "X"):
        digits = "".join(f"{int(each, 16):04b}" for each in bits[1:])
    else:
        digits = bits[1:]
    return Const(type=TypeRef(registry.BIT), value=digits, location=node.location)


def _number(text: str, location: int) -> Const:
    """An integer too long for the grammar's own, or a decimal: int8 if it fits, else numeric (manual, 4.1.2.6)."""
    if text.lstrip("-").isdigit() and -_INT8_MAX - 1 <= int(text) <= _INT8_MAX:
        small = -_INT4_MAX - 1 <= int(text) <= _INT4_MAX  # -2147483648, which the grammar cannot make an integer of
        return Const(type=INTEGER if small else TypeRef(registry.INT8), value=str(int(text)), location=location)
    return Const(type=TypeRef(registry.NUMERIC), value=numeric.print_value(numeric.value_of(text, -1)), location=location)


def _column(node: Any, scope: Scope, context: BindContext) -> Expression:
    fields = [unwrap(each) for each in node.fields]
    if fields[-1].DESCRIPTOR.name == "A_Star":
        name = fields[0].sval if len(fields) > 1 else ""
        if not name:
            raise PostgresError("42601", 'row expansion via "*" is not supported here', position=context.position(node.location))
        table, levels = find_table(name, None, scope, node.location)
        return table.row(node.location, levels)
    if context.construct == "DEFAULT expressions":
        raise PostgresError("0A000", "cannot use column reference in DEFAULT expression", position=context.position(node.location))
    parts = [each.sval for each in fields]
    return resolve(parts, scope, node.location)


def _parameter(node: Any, scope: Scope, context: BindContext) -> Expression:
    number = node.number
    known = None if context.parameters is None else context.parameters.get(number)
    if context.parameters is None or (known is None and not context.infer) or number <= 0:
        raise PostgresError("42P02", f"there is no parameter ${number}", position=context.position(node.location))
    if known is None:
        context.parameters[number] = registry.UNKNOWN
    oid = known or registry.UNKNOWN
    return Param(type=TypeRef(oid, -1, context.collation_of_type(oid)), number=number, location=node.location)


def _cast(node: Any, scope: Scope, context: BindContext) -> Expression:
    oid, modifier = names.type_name(node.type_name, context.types)
    target = TypeRef(oid, modifier, context.collation_of_type(oid))
    location = node.location if node.location >= 0 else node.type_name.location
    inner = unwrap(node.arg)
    if inner.DESCRIPTOR.name == "A_ArrayExpr":
        kind = context.types.by_oid(context.base_type(oid))
        bound: Expression = array(inner, scope, context, kind.oid if kind.is_array else 0)
    else:
        bound = bind_raw(inner, scope, context)
    result = coerce(bound, target, Reach.EXPLICIT, context, form=Form.EXPLICIT, location=location)
    if result is None:
        raise PostgresError(
            "42846",
            f"cannot cast type {context.show_type(bound.type.oid)} to {context.show_type(oid)}",
            position=context.position(location),
        )
    return result


def _collate(node: Any, scope: Scope, context: BindContext) -> Expression:
    bound = bind_raw(node.arg, scope, context)
    name = names.strings(node.collname)[-1]
    if bound.type.oid != registry.UNKNOWN and not context.collation_of_type(bound.type.oid):
        raise PostgresError(
            "42804",
            f"collations are not supported by type {context.show_type(bound.type.oid)}",
            position=context.position(node.location),
        )
    oid = builtin.builtins().collations.get(name)
    if oid is None:
        shown = ".".join(names.strings(node.collname))
        raise PostgresError("42704", f'collation "{shown}" for encoding "UTF8" does not exist', position=context.position(node.location))
    return Collate(type=replace(bound.type, collation=oid), arg=bound, location=node.location)


def _boolean(node: Any, scope: Scope, context: BindContext) -> Expression:
    kind = {pb.AND_EXPR: BoolKind.AND, pb.OR_EXPR: BoolKind.OR, pb.NOT_EXPR: BoolKind.NOT}[node.boolop]
    args = tuple(to_boolean(bind_raw(each, scope, context), kind.value, context) for each in node.args)
    return BoolExpr(type=BOOLEAN, kind=kind, args=args, location=node.location)


def _null_test(node: Any, scope: Scope, context: BindContext) -> Expression:
    arg = resolve_unknown_operand(bind_raw(node.arg, scope, context), context)
    return NullTest(
        type=BOOLEAN,
        arg=arg,
        is_null=node.nulltesttype == pb.IS_NULL,
        row=context.is_composite(arg.type.oid),
        location=node.location,
    )


def resolve_unknown_operand(expression: Expression, context: BindContext) -> Expression:
    """An operand whose type does not matter keeps being unknown in PostgreSQL; a parameter there becomes text."""
    if isinstance(expression, Param) and expression.type.oid == registry.UNKNOWN:
        return context.infer_parameter(expression, registry.TEXT)
    return expression


_TESTS = {
    pb.IS_TRUE: TestKind.TRUE,
    pb.IS_NOT_TRUE: TestKind.NOT_TRUE,
    pb.IS_FALSE: TestKind.FALSE,
    pb.IS_NOT_FALSE: TestKind.NOT_FALSE,
    pb.IS_UNKNOWN: TestKind.UNKNOWN,
    pb.IS_NOT_UNKNOWN: TestKind.NOT_UNKNOWN,
}


def _boolean_test(node: Any, scope: Scope, context: BindContext) -> Expression:
    kind = _TESTS[node.booltesttype]
    arg = to_boolean(bind_raw(node.arg, scope, context), kind.value, context)
    return BooleanTest(type=BOOLEAN, arg=arg, kind=kind, location=node.location)


def _case(node: Any, scope: Scope, context: BindContext) -> Expression:
    arg = bind_raw(node.arg, scope, context) if node.HasField("arg") else None
    if arg is not None:
        arg = resolve_unknown(arg, context)
    conditions, results = [], []
    for each in node.args:
        when = unwrap(each)
        if arg is None:
            condition = bind_raw(when.expr, scope, context)
        else:
            test = CaseTest(type=arg.type)
            value = bind_raw(when.expr, scope, context)
            condition = operators.make(["="], test, value, context, when.location)
        conditions.append(to_boolean(condition, "CASE/WHEN", context))
        results.append(bind_raw(when.result, scope, context))
    default = bind_raw(node.defresult, scope, context) if node.HasField("defresult") else Const(type=UNKNOWN, value=None, location=-1)
    oid = common_type([default, *results], "CASE", context)
    default = to_common(default, oid, "CASE/ELSE", context)
    done = [to_common(each, oid, "CASE/WHEN", context) for each in results]
    modifier = modifier_of([default, *done])
    return Case(
        type=TypeRef(oid, modifier, context.inherited_collation(oid, [*done, default])),
        arg=arg,
        conditions=tuple(conditions),
        results=tuple(done),
        default=default,
        location=node.location,
    )


def _coalesce(node: Any, scope: Scope, context: BindContext) -> Expression:
    args, kind = _common(node.args, "COALESCE", scope, context)
    return Coalesce(type=kind, args=args, location=node.location)


def _min_max(node: Any, scope: Scope, context: BindContext) -> Expression:
    greatest = node.op == pb.IS_GREATEST
    args, kind = _common(node.args, "GREATEST" if greatest else "LEAST", scope, context)
    if operators.sorting(kind.oid, 1, context) is None:
        raise PostgresError("42883", f"could not identify a comparison function for type {context.show_type(kind.oid)}")
    return MinMax(type=kind, greatest=greatest, args=args, location=node.location)


def _common(nodes: Sequence[Any], construct: str, scope: Scope, context: BindContext) -> tuple[tuple[Expression, ...], TypeRef]:
    bound = [bind_raw(each, scope, context) for each in nodes]
    oid = common_type(bound, construct, context)
    done = tuple(to_common(each, oid, construct, context) for each in bound)
    return done, TypeRef(oid, modifier_of(done), context.inherited_collation(oid, done))


def _row(node: Any, scope: Scope, context: BindContext) -> Expression:
    args: tuple[Expression, ...] = ()
    for each in node.args:
        inner = unwrap(each)
        if inner.DESCRIPTOR.name == "ColumnRef" and len(inner.fields) > 1 and unwrap(inner.fields[-1]).DESCRIPTOR.name == "A_Star":
            args += _columns_of(inner, scope)
        else:
            args += (bind_raw(inner, scope, context),)
    form = Form.IMPLICIT if node.row_format == pb.COERCE_IMPLICIT_CAST else Form.CALL
    return RowExpr(type=TypeRef(registry.RECORD), args=args, form=form, location=node.location)


def _columns_of(node: Any, scope: Scope) -> tuple[Expression, ...]:
    """``t.*`` inside ROW(…): the table's columns."""
    parts = names.strings(list(node.fields)[:-1])
    table, _ = find_table(parts[-1], parts[-2] if len(parts) > 1 else None, scope, node.location)
    return tuple(resolve([*parts, each.name], scope, node.location) for each in table.columns)


def array(node: Any, scope: Scope, context: BindContext, target: int = 0) -> Expression:
    """ARRAY[…]; `target` is the array type of a cast written around it."""
    element = context.types.by_oid(target).element if target else 0
    bound: list[Expression] = []
    nested = False
    for each in node.elements:
        inner = unwrap(each)
        if inner.DESCRIPTOR.name == "A_ArrayExpr":
            nested = True
            bound.append(array(inner, scope, context, target))
        else:
            bound.append(bind_raw(inner, scope, context))
    if not target:
        if not bound:
            raise PostgresError(
                "42P18",
                "cannot determine type of empty array",
                hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
                position=context.position(node.location),
            )
        common = common_type(bound, "ARRAY", context)
        found = context.types.by_oid(common)
        if found.is_array:
            nested, target, element = True, common, found.element
        else:
            element, target = common, found.array
            if not target:
                raise PostgresError(
                    "42704",
                    f"could not find array type for data type {context.show_type(common)}",
                    position=context.position(node.location),
                )
        done = [to_common(each, target if nested else element, "ARRAY", context) for each in bound]
    else:
        nested = nested or any(context.types.by_oid(each.type.oid).is_array for each in bound)
        done = [_element(each, target if nested else element, context) for each in bound]
    return ArrayExpr(
        type=TypeRef(target, -1, context.inherited_collation(target, done)), elements=tuple(done), nested=nested, location=node.location
    )


def _element(expression: Expression, target: int, context: BindContext) -> Expression:
    kind = TypeRef(target, -1, context.collation_of_type(target))
    result = coerce(expression, kind, Reach.EXPLICIT, context, form=Form.EXPLICIT)
    if result is None:
        raise PostgresError(
            "42846",
            f"cannot cast type {context.show_type(expression.type.oid)} to {context.show_type(target)}",
            position=context.position(location_of(expression)),
        )
    return result


def _indirection(node: Any, scope: Scope, context: BindContext) -> Expression:
    inner = unwrap(node.arg)
    steps = [unwrap(each) for each in node.indirection]
    if inner.DESCRIPTOR.name == "ColumnRef" and len(inner.fields) == 1 and steps[0].DESCRIPTOR.name == "String":
        name = unwrap(inner.fields[0]).sval
        if has_table(name, scope) and not _is_column(name, scope):
            result: Expression = resolve([name, steps[0].sval], scope, inner.location)
            steps = steps[1:]
            return _steps(result, steps, scope, context)
    return _steps(bind_raw(inner, scope, context), steps, scope, context)


def _is_column(name: str, scope: Scope) -> bool:
    return any(column.name == name for table in scope.tables for column in table.columns)


def _steps(result: Expression, steps: list[Any], scope: Scope, context: BindContext) -> Expression:
    place = 0
    while place < len(steps):
        step = steps[place]
        kind = step.DESCRIPTOR.name
        place += 1
        if kind == "A_Indices":
            indices = [step]
            while place < len(steps) and steps[place].DESCRIPTOR.name == "A_Indices":
                indices.append(steps[place])
                place += 1
            result = _subscript(result, indices, scope, context)
        elif kind == "String" and isinstance(result, ColumnRef) and result.attnum == 0:
            result = resolve([result.qualifier, step.sval], scope, result.location)
        elif kind == "String":
            if not context.is_composite(result.type.oid):
                raise PostgresError(
                    "42809",
                    f"column notation .{step.sval} applied to type {context.show_type(result.type.oid)}, which is not a composite type",
                    position=context.position(location_of(result)),
                )
            result = FieldSelect(type=UNKNOWN, arg=result, name=step.sval, location=result.location)
        else:
            raise PostgresError("42601", 'row expansion via "*" is not supported here', position=context.position(location_of(result)))
    return result


_MAX_SUBSCRIPTS = 6


def _subscript(arg: Expression, indices: list[Any], scope: Scope, context: BindContext) -> Expression:
    """transformContainerSubscripts: all adjacent subscripts at once; if one is a slice, ``[n]`` stands for ``[1:n]``."""
    base = context.types.by_oid(context.base_type(arg.type.oid))
    document = base.oid == registry.JSONB
    if not base.is_array and not document:
        raise PostgresError(
            "42804",
            f"cannot subscript type {context.show_type(arg.type.oid)} because it does not support subscripting",
            position=context.position(location_of(arg)),
        )
    sliced = any(each.is_slice for each in indices)
    if document and sliced:
        where = next(each for each in indices if each.is_slice)
        location = location_of(bind_raw(where.uidx if where.HasField("uidx") else where.lidx, scope, context))
        raise PostgresError("0A000", "jsonb subscript does not support slices", position=context.position(location))
    if len(indices) > _MAX_SUBSCRIPTS and not document:
        message = f"number of array dimensions ({len(indices)}) exceeds the maximum allowed ({_MAX_SUBSCRIPTS})"
        raise PostgresError("54000", message)
    bound = _key if document else _index
    lower: list[Expression | None] = []
    for each in indices if sliced else ():
        if each.HasField("lidx"):
            lower.append(bound(each.lidx, scope, context))
        else:
            lower.append(None if each.is_slice else Const(type=INTEGER, value="1"))
    upper = tuple(bound(each.uidx, scope, context) if each.HasField("uidx") else None for each in indices)
    oid = base.oid if document or sliced else base.element
    kind = TypeRef(oid, -1 if document else arg.type.typmod, arg.type.collation if context.collation_of_type(oid) else 0)
    return Subscript(type=kind, arg=arg, lower=tuple(lower), upper=upper, location=arg.location)


def _index(node: Any, scope: Scope, context: BindContext) -> Expression:
    raw = bind_raw(node, scope, context)
    done = coerce(raw, TypeRef(registry.INT4), Reach.ASSIGNMENT, context)
    if done is None:
        raise PostgresError("42804", "array subscript must have type integer", position=context.position(location_of(raw)))
    return done


def _key(node: Any, scope: Scope, context: BindContext) -> Expression:
    """A subscript of jsonb: an integer, or text."""
    raw = bind_raw(node, scope, context)
    if raw.type.oid == registry.INT4:
        return raw
    done = coerce(raw, TypeRef(registry.TEXT, -1, context.collation_of_type(registry.TEXT)), Reach.IMPLICIT, context)
    if done is None:
        raise PostgresError(
            "42804",
            f"subscript type {context.show_type(raw.type.oid)} is not supported",
            hint="jsonb subscript must be coercible to either integer or text.",
            position=context.position(location_of(raw)),
        )
    return done


_SQL_VALUES = {
    "CURRENT_DATE": registry.DATE,
    "CURRENT_TIME": registry.TIMETZ,
    "CURRENT_TIMESTAMP": registry.TIMESTAMPTZ,
    "LOCALTIME": registry.TIME,
    "LOCALTIMESTAMP": registry.TIMESTAMP,
}


def _sql_value(node: Any, scope: Scope, context: BindContext) -> Expression:
    word = pb.SQLValueFunctionOp.Name(node.op).removeprefix("SVFOP_").removesuffix("_N")
    oid = _SQL_VALUES.get(word, registry.NAME)
    return SqlValue(type=TypeRef(oid, node.typmod, context.collation_of_type(oid)), name=word, location=node.location)


def _default(node: Any, scope: Scope, context: BindContext) -> Expression:
    if not context.default:
        raise PostgresError("42601", "DEFAULT is not allowed in this context", position=context.position(node.location))
    return SetToDefault(type=UNKNOWN, location=node.location)


def _sublink(node: Any, scope: Scope, context: BindContext) -> Expression:
    if context.subquery is not None:
        return context.subquery(node, scope, context)
    if context.opaque_subquery:
        kind = pb.SubLinkType.Name(node.sub_link_type).removesuffix("_SUBLINK")
        return SubLink(type=BOOLEAN, kind=kind, query=node, location=node.location)
    message = context.refuse_subquery or f"cannot use subquery in {context.construct}"
    raise PostgresError("0A000", message, position=context.position(node.location))


def _grouping(node: Any, scope: Scope, context: BindContext) -> Expression:
    if context.aggregates:
        if len(node.args) > 31:
            raise PostgresError("54023", "GROUPING must have fewer than 32 arguments", position=context.position(node.location))
        return Grouping(type=INTEGER, args=tuple(bind(each, scope, context=context) for each in node.args), location=node.location)
    raise PostgresError(
        "42803", f"grouping operations are not allowed in {calls.clause(context)}", position=context.position(node.location)
    )


_HANDLERS: dict[str, Callable[[Any, Scope, BindContext], Expression]] = {
    "A_Const": _constant,
    "ColumnRef": _column,
    "ParamRef": _parameter,
    "TypeCast": _cast,
    "CollateClause": _collate,
    "BoolExpr": _boolean,
    "NullTest": _null_test,
    "BooleanTest": _boolean_test,
    "CaseExpr": _case,
    "CoalesceExpr": _coalesce,
    "MinMaxExpr": _min_max,
    "RowExpr": _row,
    "A_ArrayExpr": array,
    "A_Indirection": _indirection,
    "SQLValueFunction": _sql_value,
    "SetToDefault": _default,
    "SubLink": _sublink,
    "GroupingFunc": _grouping,
    "A_Expr": lambda node, scope, context: operators.bind(node, scope, context, bind_raw),
    "FuncCall": lambda node, scope, context: calls.bind(node, scope, context, bind_raw),
}

__all__ = [
    "Scope",
    "ScopeTable",
    "assign",
    "bind",
    "bind_condition",
    "bind_default",
    "bind_raw",
    "resolve_unknown",
    "unify",
]
