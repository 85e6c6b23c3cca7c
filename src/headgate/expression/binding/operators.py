"""Binds operators in a parse tree: A_Expr of all kinds (PostgreSQL's parse_expr.c and parse_oper.c).

Called by `binder` for AEXPR_OP, ANY/ALL, IN, LIKE, BETWEEN, DISTINCT, NULLIF and rows. `make` is make_op: it finds the operator
and coerces the operands. `bind` receives the binder as a function, and binds operands with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding.coercion import coerce_type, common_type, to_common
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext, Binder
from headgate.expression.binding.overload_resolution import find_operator, no_operator, real_types
from headgate.expression.binding.scope import Scope
from headgate.expression.binding.signature import can_coerce
from headgate.expression.builtin import Operator
from headgate.expression.node import (
    BOOLEAN,
    ArrayExpr,
    BoolExpr,
    BoolKind,
    ColumnRef,
    Const,
    Distinct,
    Expression,
    NullIf,
    NullTest,
    OpExpr,
    RowCompare,
    RowExpr,
    ScalarArrayOp,
    TypeRef,
    walk,
)
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

_ROW_OPERATORS = {"=": 3, "<>": 6, "<": 1, "<=": 2, ">=": 4, ">": 5}


def bind(node: pb.A_Expr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    return _KINDS[node.kind](node, scope, context, binder)


def make(name: Sequence[str], left: Expression | None, right: Expression, context: BindContext, location: int) -> Expression:
    """make_op: resolve the operator of this (possibly qualified) name, and coerce the operands to its argument types."""
    operands = (right,) if left is None else (left, right)
    operator = _find(name, tuple(operand.type.oid for operand in operands), context, location)
    declared = (operator.left, operator.right)[-len(operands) :]
    args, result = _take(operands, declared, operator.result, context, location)
    return OpExpr(type=TypeRef(result, -1, context.inherited_collation(result, args)), operator=operator.oid, args=args, location=location)


def _find(name: Sequence[str], operands: tuple[int, ...], context: BindContext, location: int) -> Operator:
    if len(name) == 2 and name[0] != "pg_catalog":
        raise no_operator(".".join(name), operands, context, location)
    return find_operator("<>" if name[-1] == "!=" else name[-1], operands, context, location)


def _take(
    operands: Sequence[Expression], declared: Sequence[int], result: int, context: BindContext, location: int
) -> tuple[tuple[Expression, ...], int]:
    actual = tuple(operand.type.oid for operand in operands)
    real, result = real_types(actual, declared, result, context, location)
    return tuple(coerce_type(operand, oid, Reach.IMPLICIT, context) for operand, oid in zip(operands, real, strict=True)), result


def _operation(node: pb.A_Expr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    left = unwrap(node.lexpr) if node.HasField("lexpr") else None
    right = unwrap(node.rexpr)
    if left is not None and left.DESCRIPTOR.name == "RowExpr" and right.DESCRIPTOR.name == "RowExpr":
        return _rows(node, binder(left, scope, context), binder(right, scope, context), context)
    if left is not None and left.DESCRIPTOR.name == "RowExpr" and right.DESCRIPTOR.name == "SubLink":
        return binder(right, scope, context)
    bound_left = binder(left, scope, context) if left is not None else None
    return make(names.strings(node.name), bound_left, binder(right, scope, context), context, node.location)


def _rows(node: pb.A_Expr, left: Expression, right: Expression, context: BindContext) -> Expression:
    assert isinstance(left, RowExpr)
    assert isinstance(right, RowExpr)
    return compare_rows(names.strings(node.name), left, right, context, node.location)


def compare_rows(name: Sequence[str], left: RowExpr, right: RowExpr, context: BindContext, location: int) -> Expression:
    """make_row_comparison_op: = becomes AND and <> becomes OR of the fields' comparisons; <, <=, > and >= become a RowCompare."""
    if len(left.args) != len(right.args):
        raise PostgresError("42601", "unequal number of entries in row expressions", location=location)
    if not left.args:
        raise PostgresError("0A000", "cannot compare rows of zero length", location=location)
    pairs = []
    for left_field, right_field in zip(left.args, right.args, strict=True):
        comparison = make(name, left_field, right_field, context, location)
        if not isinstance(comparison, OpExpr) or comparison.type.oid != registry.BOOL:
            raise PostgresError(
                "42804",
                f"row comparison operator must yield type boolean, not type {context.show_type(comparison.type.oid)}",
                location=location,
            )
        pairs.append(comparison)
    if len(pairs) == 1:
        return pairs[0]
    strategy = _row_strategy(name[-1], pairs, location)
    if strategy in (3, 6):
        kind = BoolKind.AND if strategy == 3 else BoolKind.OR
        return BoolExpr(type=BOOLEAN, kind=kind, args=tuple(pairs), location=location)
    return RowCompare(
        type=BOOLEAN,
        strategy=strategy,
        operators=tuple(comparison.operator for comparison in pairs),
        left=tuple(comparison.args[0] for comparison in pairs),
        right=tuple(comparison.args[1] for comparison in pairs),
        location=location,
    )


def _row_strategy(name: str, pairs: Sequence[OpExpr], location: int) -> int:
    strategy = _ROW_OPERATORS.get("<>" if name == "!=" else name)
    if strategy is None or (strategy != 6 and not all(builtin.builtins().families.get(pair.operator) for pair in pairs)):
        raise PostgresError(
            "0A000",
            f"could not determine interpretation of row comparison operator {name}",
            hint="Row comparison operators must be associated with btree operator families.",
            location=location,
        )
    return strategy


def _array_operation(node: pb.A_Expr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    left, right = binder(node.lexpr, scope, context), binder(node.rexpr, scope, context)
    use_any = node.kind == pb.AEXPR_OP_ANY
    return make_array(names.strings(node.name), use_any, left, right, context, node.location)


def make_array(name: Sequence[str], use_any: bool, left: Expression, right: Expression, context: BindContext, location: int) -> Expression:
    """make_scalar_array_op: ``left op ANY (right)``."""
    array_oid = context.base_type(right.type.oid)
    if array_oid == registry.UNKNOWN:
        element = registry.UNKNOWN
    elif array_oid == registry.RECORD_ARRAY:
        element = registry.RECORD
    else:
        kind = context.types.by_oid(array_oid)
        if not kind.is_array and not kind.is_vector:
            raise PostgresError("42809", "op ANY/ALL (array) requires array on right side", location=location)
        element = kind.element
    resolved = _find(name, (left.type.oid, element), context, location)
    if resolved.result != registry.BOOL:
        raise PostgresError("42809", "op ANY/ALL (array) requires operator to yield boolean", location=location)
    real, _ = real_types((left.type.oid, element), (resolved.left, resolved.right), resolved.result, context, location)
    array_type = context.types.by_oid(real[1]).array
    if not array_type:
        raise PostgresError("42704", f"could not find array type for data type {context.show_type(real[1])}", location=location)
    args = (coerce_type(left, real[0], Reach.IMPLICIT, context), coerce_type(right, array_type, Reach.IMPLICIT, context))
    return ScalarArrayOp(type=BOOLEAN, operator=resolved.oid, any=use_any, args=args, location=location)


def _distinct(node: pb.A_Expr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    negated = node.kind == pb.AEXPR_NOT_DISTINCT
    left_node, right_node = unwrap(node.lexpr), unwrap(node.rexpr)
    for plain, operand in ((left_node, right_node), (right_node, left_node)):
        if plain.DESCRIPTOR.name == "A_Const" and plain.isnull:
            arg = binder(operand, scope, context)
            return NullTest(type=BOOLEAN, arg=arg, is_null=negated, location=node.location)
    left, right = binder(left_node, scope, context), binder(right_node, scope, context)
    if isinstance(left, RowExpr) and isinstance(right, RowExpr):
        distinct = _distinct_rows(node, left, right, context)
    else:
        distinct = _make_distinct(left, right, context, node.location)
    return BoolExpr(type=BOOLEAN, kind=BoolKind.NOT, args=(distinct,), location=node.location) if negated else distinct


def _make_distinct(left: Expression, right: Expression, context: BindContext, location: int) -> Expression:
    equal = make(["="], left, right, context, location)
    assert isinstance(equal, OpExpr)
    if equal.type.oid != registry.BOOL:
        raise PostgresError("42804", "IS DISTINCT FROM requires = operator to yield boolean", location=location)
    return Distinct(type=BOOLEAN, operator=equal.operator, args=equal.args, location=location)


def _distinct_rows(node: ParseNode, left: RowExpr, right: RowExpr, context: BindContext) -> Expression:
    if len(left.args) != len(right.args):
        raise PostgresError("42601", "unequal number of entries in row expressions", location=node.location)
    result: Expression | None = None
    for left_field, right_field in zip(left.args, right.args, strict=True):
        distinct = _make_distinct(left_field, right_field, context, node.location)
        result = distinct if result is None else BoolExpr(type=BOOLEAN, kind=BoolKind.OR, args=(result, distinct), location=node.location)
    return result if result is not None else Const(type=BOOLEAN, value="f", location=node.location)


def _null_if(node: pb.A_Expr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    equal = make(["="], binder(node.lexpr, scope, context), binder(node.rexpr, scope, context), context, node.location)
    assert isinstance(equal, OpExpr)
    if equal.type.oid != registry.BOOL:
        raise PostgresError("42804", "NULLIF requires = operator to yield boolean", location=node.location)
    return NullIf(type=equal.args[0].type, operator=equal.operator, args=equal.args, location=node.location)


def _in(node: pb.A_Expr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    """transformAExprIn: compare with an array of the items without variables, if there are at least two; join the rest by OR or AND."""
    name = names.strings(node.name)
    use_or = name[-1] != "<>"
    left = binder(node.lexpr, scope, context)
    bound = [binder(item, scope, context) for item in unwrap(node.rexpr).items]
    variable = [item for item in bound if _has_variable(item)]
    constant = [item for item in bound if not _has_variable(item)]
    comparisons: list[Expression] = []
    if len(constant) > 1 and not isinstance(left, RowExpr):
        array = _in_array(left, constant, context)
        if array is not None:
            comparisons.append(make_array(name, use_or, left, array, context, node.location))
            bound = variable
    for item in bound:
        if isinstance(left, RowExpr):
            if not isinstance(item, RowExpr):
                raise PostgresError("42804", "arguments of row IN must all be row expressions", location=node.location)
            comparisons.append(compare_rows(name, left, item, context, node.location))
        else:
            comparisons.append(make(name, left, item, context, node.location))
    if len(comparisons) == 1:
        return comparisons[0]
    return BoolExpr(type=BOOLEAN, kind=BoolKind.OR if use_or else BoolKind.AND, args=tuple(comparisons), location=node.location)


def _in_array(left: Expression, constant: Sequence[Expression], context: BindContext) -> Expression | None:
    try:
        oid = common_type([left, *constant], "IN", context)
        if not all(_reaches(item, oid, context) for item in constant):
            return None
    except PostgresError:
        return None
    array_type = context.types.by_oid(oid).array if oid != registry.RECORD else 0
    if not array_type:
        return None
    elements = tuple(to_common(item, oid, "IN", context) for item in constant)
    return ArrayExpr(type=TypeRef(array_type, -1, context.inherited_collation(array_type, elements)), elements=elements, location=-1)


def _reaches(expression: Expression, oid: int, context: BindContext) -> bool:
    return expression.type.oid == oid or can_coerce([expression.type.oid], [oid], Reach.IMPLICIT, context)


def _has_variable(expression: Expression) -> bool:
    return any(isinstance(part, ColumnRef) and part.levels_up == 0 for part in walk(expression))


def _between(node: pb.A_Expr, scope: Scope, context: BindContext, binder: Binder) -> Expression:
    low_node, high_node = unwrap(node.rexpr).items

    def compare(name: str, limit: ParseNode) -> Expression:
        return make([name], binder(node.lexpr, scope, context), binder(limit, scope, context), context, node.location)

    def both(low: ParseNode, high: ParseNode) -> Expression:
        args = (compare(">=", low), compare("<=", high))
        return BoolExpr(type=BOOLEAN, kind=BoolKind.AND, args=args, location=node.location)

    def outside(low: ParseNode, high: ParseNode) -> Expression:
        args = (compare("<", low), compare(">", high))
        return BoolExpr(type=BOOLEAN, kind=BoolKind.OR, args=args, location=node.location)

    if node.kind == pb.AEXPR_BETWEEN:
        return both(low_node, high_node)
    if node.kind == pb.AEXPR_NOT_BETWEEN:
        return outside(low_node, high_node)
    if node.kind == pb.AEXPR_BETWEEN_SYM:
        kind, parts = BoolKind.OR, (both(low_node, high_node), both(high_node, low_node))
    else:
        kind, parts = BoolKind.AND, (outside(low_node, high_node), outside(high_node, low_node))
    return BoolExpr(type=BOOLEAN, kind=kind, args=parts, location=node.location)


_KINDS: dict[int, Callable[[pb.A_Expr, Scope, BindContext, Binder], Expression]] = {
    pb.AEXPR_OP: _operation,
    pb.AEXPR_OP_ANY: _array_operation,
    pb.AEXPR_OP_ALL: _array_operation,
    pb.AEXPR_DISTINCT: _distinct,
    pb.AEXPR_NOT_DISTINCT: _distinct,
    pb.AEXPR_NULLIF: _null_if,
    pb.AEXPR_IN: _in,
    pb.AEXPR_LIKE: _operation,
    pb.AEXPR_ILIKE: _operation,
    pb.AEXPR_SIMILAR: _operation,
    pb.AEXPR_BETWEEN: _between,
    pb.AEXPR_NOT_BETWEEN: _between,
    pb.AEXPR_BETWEEN_SYM: _between,
    pb.AEXPR_NOT_BETWEEN_SYM: _between,
}
