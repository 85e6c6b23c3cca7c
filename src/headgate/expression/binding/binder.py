"""Binds parse trees to typed expressions: PostgreSQL's transformExpr (parse_expr.c) on postgast's nodes.

The public functions: `bind` (an item of a SELECT list), `bind_condition` (WHERE, ON, HAVING, CHECK, a row filter), `bind_raw` (leaves
unknown literals unknown, for callers that unify them, such as VALUES and CASE), `assign` (assignment to a column by INSERT or UPDATE),
`bind_default` (DEFAULT), `unify` (VALUES, UNION). There is one short function per parse node. `operators`, `function_call` and
`indirection` contain the nodes that they are named after.

Invariant: the tree is PostgreSQL's analysed tree before constant folding, so ``a > 1 + 2`` keeps its addition. Locations
count characters from 0 (see `headgate.sql.parser`). Errors have PostgreSQL's position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate import interruption
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding import function_call, indirection, operators
from headgate.expression.binding.coercion import coerce, common_modifier, common_type, modifier_of, resolve_unknown, to_boolean, to_common
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope, find_table, resolve
from headgate.expression.binding.sort_operator import ordering_operator
from headgate.expression.location import location_of
from headgate.expression.node import (
    BOOLEAN,
    INTEGER,
    UNKNOWN,
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
    Form,
    Grouping,
    MinMax,
    NullTest,
    Param,
    Relabel,
    RowExpr,
    SetToDefault,
    SqlValue,
    SubLink,
    TestKind,
    TypeRef,
)
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap, written
from headgate.types import registry
from headgate.types.base import numeric

_INT4_MAX, _INT8_MAX = 2**31 - 1, 2**63 - 1


def bind(node: ParseNode, scope: Scope, *, context: BindContext) -> Expression:
    """Return the typed expression of a parse node. An unknown literal becomes text, as in a SELECT list."""
    return resolve_unknown(bind_raw(node, scope, context), context)


def bind_raw(node: ParseNode, scope: Scope, context: BindContext) -> Expression:
    """Like `bind`, but leave literals of type unknown as they are, for callers that unify or coerce them."""
    interruption.check()
    inner = unwrap(node)
    handler = _HANDLERS.get(inner.DESCRIPTOR.name)
    if handler is None:
        raise not_supported(f"expressions of the form {inner.DESCRIPTOR.name} are not supported")
    return handler(inner, scope, context)


def bind_condition(node: ParseNode, scope: Scope, construct: str, *, context: BindContext) -> Expression:
    """Bind a boolean expression of the clause `construct`. Raise 42804 ``argument of WHERE must be type boolean, not type integer``."""
    return to_boolean(bind_raw(node, scope, context.within(construct=construct)), construct, context)


def assign(expression: Expression, target: TypeRef, column: str, context: BindContext) -> Expression:
    """Return the value coerced to a column of type `target` (transformAssignedExpr). Raise 42804 if there is no assignment cast.

    A SetToDefault is returned with the column's type.
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
            location=location_of(expression),
        )
    return result


def bind_default(node: ParseNode, target: TypeRef, column: str, *, context: BindContext) -> Expression:
    """Bind a column's DEFAULT and coerce it to the column's type. Raise 0A000 if it refers to a column."""
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
    """Coerce expressions to their common type (manual, 10.5), for UNION and VALUES. Return them and the type."""
    oid = common_type(expressions, construct, context)
    modifier = common_modifier(expressions, oid)
    coerced = [_without_modifier(to_common(expression, oid, construct, context), modifier) for expression in expressions]
    return coerced, TypeRef(oid, modifier, context.inherited_collation(oid, coerced), coerced[0].type.fields)


def _without_modifier(expression: Expression, modifier: int) -> Expression:
    """Return the expression with the common type modifier. It differs from the expression's if not all expressions have the same one."""
    if expression.type.typmod == modifier:
        return expression
    return Relabel(type=replace(expression.type, typmod=modifier), arg=expression, form=Form.IMPLICIT)


def _constant(node: pb.A_Const, scope: Scope, context: BindContext) -> Expression:
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
    return _bits(node.bsval.bsval, context, node.location)


def _bits(text: str, context: BindContext, location: int) -> Const:
    """Return a bit string constant, B'…' or X'…' (bit_in)."""
    hexadecimal = text[:1] in ("x", "X")
    for digit in text[1:]:
        if digit not in ("0123456789abcdefABCDEF" if hexadecimal else "01"):
            kind = "hexadecimal" if hexadecimal else "binary"
            raise PostgresError("22P02", f'"{digit}" is not a valid {kind} digit', location=location)
    digits = "".join(f"{int(digit, 16):04b}" for digit in text[1:]) if hexadecimal else text[1:]
    return Const(type=TypeRef(registry.BIT), value=digits, location=location)


def _number(text: str, location: int) -> Const:
    """Return a decimal, or an integer too large for the grammar's integers: int8 if it fits, else numeric (manual, 4.1.2.6)."""
    if len(text) < 30 and text.lstrip("-").isdigit() and -_INT8_MAX - 1 <= int(text) <= _INT8_MAX:
        small = -_INT4_MAX - 1 <= int(text) <= _INT4_MAX  # -2147483648, which the grammar does not read as an integer
        return Const(type=INTEGER if small else TypeRef(registry.INT8), value=str(int(text)), location=location)
    return Const(type=TypeRef(registry.NUMERIC), value=numeric.print_value(numeric.value_of(text, -1)), location=location)


def _column(node: pb.ColumnRef, scope: Scope, context: BindContext) -> Expression:
    fields = [unwrap(field) for field in node.fields]
    if fields[-1].DESCRIPTOR.name == "A_Star":
        name = fields[0].sval if len(fields) > 1 else ""
        if not name:
            raise PostgresError("42601", 'row expansion via "*" is not supported here', location=node.location)
        table, levels = find_table(name, None, scope, node.location)
        return table.row(node.location, levels)
    if context.construct == "DEFAULT expressions":
        raise PostgresError("0A000", "cannot use column reference in DEFAULT expression", location=node.location)
    parts = [field.sval for field in fields]
    return resolve(parts, scope, node.location)


def _parameter(node: pb.ParamRef, scope: Scope, context: BindContext) -> Expression:
    number = node.number
    known = None if context.parameters is None else context.parameters.get(number)
    if context.parameters is None or (known is None and not context.infer) or number <= 0:
        raise PostgresError("42P02", f"there is no parameter ${number}", location=node.location)
    if known is None:
        context.parameters[number] = registry.UNKNOWN
    oid = known or registry.UNKNOWN
    return Param(type=TypeRef(oid, -1, context.collation_of_type(oid)), number=number, location=node.location)


def _cast(node: pb.TypeCast, scope: Scope, context: BindContext) -> Expression:
    oid, modifier = names.type_name(node.type_name, context.types)
    target = TypeRef(oid, modifier, context.collation_of_type(oid))
    location = node.location if node.location >= 0 else node.type_name.location
    inner = unwrap(node.arg)
    if inner.DESCRIPTOR.name == "A_ArrayExpr":
        kind = context.types.by_oid(context.base_type(oid))
        bound: Expression = _bind_array(inner, scope, context, kind.oid if kind.is_array else 0)
    else:
        bound = bind_raw(inner, scope, context)
    result = coerce(bound, target, Reach.EXPLICIT, context, form=Form.EXPLICIT, location=location)
    if result is None:
        row = context.types.of_relation(bound.relation) if isinstance(bound, ColumnRef) and bound.relation else None
        source = context.show_type(bound.type.oid if row is None else row.oid)
        raise PostgresError("42846", f"cannot cast type {source} to {context.show_type(oid)}", location=location)
    return result


def _collate(node: pb.CollateClause, scope: Scope, context: BindContext) -> Expression:
    bound = bind_raw(node.arg, scope, context)
    name = names.strings(node.collname)[-1]
    if bound.type.oid != registry.UNKNOWN and not context.collation_of_type(bound.type.oid):
        raise PostgresError("42804", f"collations are not supported by type {context.show_type(bound.type.oid)}", location=node.location)
    oid = builtin.builtins().collations.get(name)
    if oid is None:
        shown = ".".join(names.strings(node.collname))
        raise PostgresError("42704", f'collation "{shown}" for encoding "UTF8" does not exist', location=node.location)
    return Collate(type=replace(bound.type, collation=oid), arg=bound, location=node.location)


def _boolean(node: pb.BoolExpr, scope: Scope, context: BindContext) -> Expression:
    kind = {pb.AND_EXPR: BoolKind.AND, pb.OR_EXPR: BoolKind.OR, pb.NOT_EXPR: BoolKind.NOT}[node.boolop]
    args = tuple(to_boolean(bind_raw(operand, scope, context), kind.value, context) for operand in node.args)
    return BoolExpr(type=BOOLEAN, kind=kind, args=args, location=node.location)


def _null_test(node: pb.NullTest, scope: Scope, context: BindContext) -> Expression:
    arg = resolve_unknown_operand(bind_raw(node.arg, scope, context), context)
    return NullTest(
        type=BOOLEAN,
        arg=arg,
        is_null=node.nulltesttype == pb.IS_NULL,
        row=context.is_composite(context.base_type(arg.type.oid)),
        location=node.location,
    )


def resolve_unknown_operand(expression: Expression, context: BindContext) -> Expression:
    """Bind an operand whose type does not matter: a literal stays unknown, as in PostgreSQL, and a parameter becomes text."""
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


def _boolean_test(node: pb.BooleanTest, scope: Scope, context: BindContext) -> Expression:
    kind = _TESTS[node.booltesttype]
    arg = to_boolean(bind_raw(node.arg, scope, context), kind.value, context)
    return BooleanTest(type=BOOLEAN, arg=arg, kind=kind, location=node.location)


def _row(node: pb.RowExpr, scope: Scope, context: BindContext) -> Expression:
    args = row_items(node, scope, context)
    form = Form.IMPLICIT if node.row_format == pb.COERCE_IMPLICIT_CAST else Form.CALL
    named = tuple(names.strings(node.colnames))  # empty, unless the row replaces the call of a function or a variable
    fields = named or [f"f{place}" for place in range(1, len(args) + 1)]
    kind = TypeRef(registry.RECORD, fields=tuple(zip(fields, [arg.type for arg in args], strict=True)))
    return RowExpr(type=kind, args=args, form=form, names=named, location=node.location)


def row_items(node: pb.RowExpr, scope: Scope, context: BindContext) -> tuple[Expression, ...]:
    """Bind the items of ROW(…). An item ``t.*`` stands for the columns of t."""
    items: tuple[Expression, ...] = ()
    for arg in node.args:
        item = unwrap(arg)
        if item.DESCRIPTOR.name == "ColumnRef" and len(item.fields) > 1 and unwrap(item.fields[-1]).DESCRIPTOR.name == "A_Star":
            items += _columns_of(item, scope)
        else:
            items += (bind_raw(item, scope, context),)
    return items


def _columns_of(node: ParseNode, scope: Scope) -> tuple[Expression, ...]:
    """Return the columns of the table for ``t.*`` inside ROW(…)."""
    parts = names.strings(list(node.fields)[:-1])
    table, _ = find_table(parts[-1], parts[-2] if len(parts) > 1 else None, scope, node.location)
    return tuple(resolve([*parts, column.name], scope, node.location) for column in table.columns if column.attnum >= 0)


_SQL_VALUES = {
    "CURRENT_DATE": registry.DATE,
    "CURRENT_TIME": registry.TIMETZ,
    "CURRENT_TIMESTAMP": registry.TIMESTAMPTZ,
    "LOCALTIME": registry.TIME,
    "LOCALTIMESTAMP": registry.TIMESTAMP,
}


def _sql_value(node: pb.SQLValueFunction, scope: Scope, context: BindContext) -> Expression:
    word = pb.SQLValueFunctionOp.Name(node.op).removeprefix("SVFOP_").removesuffix("_N")
    oid = _SQL_VALUES.get(word, registry.NAME)
    return SqlValue(type=TypeRef(oid, node.typmod, context.collation_of_type(oid)), name=word, location=node.location)


def _default(node: pb.SetToDefault, scope: Scope, context: BindContext) -> Expression:
    if not context.default:
        raise PostgresError("42601", "DEFAULT is not allowed in this context", location=node.location)
    return SetToDefault(type=UNKNOWN, location=node.location)


def _sublink(node: pb.SubLink, scope: Scope, context: BindContext) -> Expression:
    if context.subquery is not None:
        return context.subquery(node, scope, context)
    if context.opaque_subquery:
        kind = pb.SubLinkType.Name(node.sub_link_type).removesuffix("_SUBLINK")
        test = bind(node.testexpr, scope, context=context) if node.HasField("testexpr") else None
        # the type of a scalar subquery is not known here, so the other operands decide, as with a literal
        result_type = UNKNOWN if kind == "EXPR" else BOOLEAN
        return SubLink(type=result_type, kind=kind, query=node, source=written(node.subselect), test=test, location=node.location)
    message = context.refuse_subquery or f"cannot use subquery in {context.construct}"
    raise PostgresError("0A000", message, location=node.location)


def _grouping(node: pb.GroupingFunc, scope: Scope, context: BindContext) -> Expression:
    if context.aggregates:
        if len(node.args) > 31:
            raise PostgresError("54023", "GROUPING must have fewer than 32 arguments", location=node.location)
        return Grouping(type=INTEGER, args=tuple(bind(operand, scope, context=context) for operand in node.args), location=node.location)
    raise PostgresError("42803", f"grouping operations are not allowed in {function_call.clause(context)}", location=node.location)


def _case(node: pb.CaseExpr, scope: Scope, context: BindContext) -> Expression:
    arg = bind_raw(node.arg, scope, context) if node.HasField("arg") else None
    if arg is not None:
        arg = resolve_unknown(arg, context)
    conditions, results = [], []
    for argument in node.args:
        when = unwrap(argument)
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
    done = [to_common(result, oid, "CASE/WHEN", context) for result in results]
    modifier = modifier_of([default, *done])
    return Case(
        type=TypeRef(oid, modifier, context.inherited_collation(oid, [*done, default])),
        arg=arg,
        conditions=tuple(conditions),
        results=tuple(done),
        default=default,
        location=node.location,
    )


def _coalesce(node: pb.CoalesceExpr, scope: Scope, context: BindContext) -> Expression:
    args, kind = _common(node.args, "COALESCE", scope, context)
    return Coalesce(type=kind, args=args, location=node.location)


def _min_max(node: pb.MinMaxExpr, scope: Scope, context: BindContext) -> Expression:
    greatest = node.op == pb.IS_GREATEST
    args, kind = _common(node.args, "GREATEST" if greatest else "LEAST", scope, context)
    if ordering_operator(kind.oid, 1, context) is None:
        raise PostgresError("42883", f"could not identify a comparison function for type {context.show_type(kind.oid)}")
    return MinMax(type=kind, greatest=greatest, args=args, location=node.location)


def _common(nodes: Sequence[ParseNode], construct: str, scope: Scope, context: BindContext) -> tuple[tuple[Expression, ...], TypeRef]:
    bound = [bind_raw(node_argument, scope, context) for node_argument in nodes]
    oid = common_type(bound, construct, context)
    done = tuple(to_common(operand, oid, construct, context) for operand in bound)
    return done, TypeRef(oid, modifier_of(done), context.inherited_collation(oid, done))


def _bind_array(node: pb.A_ArrayExpr, scope: Scope, context: BindContext, target: int = 0) -> Expression:
    """Bind ARRAY[…]. `target` is the array type of a cast around it."""
    element = context.types.by_oid(target).element if target else 0
    bound: list[Expression] = []
    nested = False
    for item in node.elements:
        inner = unwrap(item)
        if inner.DESCRIPTOR.name == "A_ArrayExpr":
            nested = True
            bound.append(_bind_array(inner, scope, context, target))
        else:
            bound.append(bind_raw(inner, scope, context))
    if not target:
        if not bound:
            raise PostgresError(
                "42P18",
                "cannot determine type of empty array",
                hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
                location=node.location,
            )
        common = common_type(bound, "ARRAY", context)
        definition = context.types.by_oid(common)
        if definition.is_array:
            nested, target, element = True, common, definition.element
        else:
            element, target = common, definition.array
            if not target:
                raise PostgresError("42704", f"could not find array type for data type {context.show_type(common)}", location=node.location)
        done = [to_common(value, target if nested else element, "ARRAY", context) for value in bound]
    else:
        nested = nested or any(context.types.by_oid(value.type.oid).is_array for value in bound)
        done = [_array_element(value, target if nested else element, context) for value in bound]
    return ArrayExpr(
        type=TypeRef(target, -1, context.inherited_collation(target, done)), elements=tuple(done), nested=nested, location=node.location
    )


def _array_element(expression: Expression, target: int, context: BindContext) -> Expression:
    kind = TypeRef(target, -1, context.collation_of_type(target))
    result = coerce(expression, kind, Reach.EXPLICIT, context, form=Form.EXPLICIT)
    if result is None:
        raise PostgresError(
            "42846",
            f"cannot cast type {context.show_type(expression.type.oid)} to {context.show_type(target)}",
            location=location_of(expression),
        )
    return result


_HANDLERS: dict[str, Callable[[ParseNode, Scope, BindContext], Expression]] = {
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
    "A_ArrayExpr": _bind_array,
    "A_Indirection": lambda node, scope, context: indirection.bind(node, scope, context, bind_raw),
    "SQLValueFunction": _sql_value,
    "SetToDefault": _default,
    "SubLink": _sublink,
    "GroupingFunc": _grouping,
    "A_Expr": lambda node, scope, context: operators.bind(node, scope, context, bind_raw),
    "FuncCall": lambda node, scope, context: function_call.bind(node, scope, context, bind_raw),
}

__all__ = [
    "assign",
    "bind",
    "bind_condition",
    "bind_default",
    "bind_raw",
    "unify",
]
