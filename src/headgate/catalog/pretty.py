"""Print stored expressions as pg_get_expr(…, true) does, without the parentheses that PostgreSQL's pretty mode omits.

An expression is stored as pg_get_expr prints it, fully parenthesized. Pretty mode drops the parentheses of an operand whose parent makes
its extent clear (isSimpleNode in ruleutils.c): around the whole, around arguments of functions, of CASE, ARRAY and COALESCE, around
comparisons under AND, OR and NOT, around AND under OR, and around arithmetic as precedence allows.
"""

from __future__ import annotations

import functools

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql import grammar
from headgate.sql.parser import ParseNode, parse_expression, unwrap

_LEAD = len("SELECT ")  # parse_expression puts it before the text
_LOW, _HIGH = frozenset("+-"), frozenset("*/%")


@functools.lru_cache(maxsize=1024)
def pretty(text: str) -> str:
    """Return the pretty form of a stored expression. It is the text itself if there are no parentheses to omit."""
    if "(" not in text:
        return text
    try:
        root = parse_expression(text)
    except PostgresError:
        return text
    pairs = _pairs(text)
    dropped: set[int] = set()
    _visit(root, None, False, text, pairs, dropped)
    left = ""
    for place, char in enumerate(text):
        if char == "\n" and place - 1 in dropped:
            left = left.rstrip(" ")  # CASE starts a new line, and the spaces before the line break are removed (appendContextKeyword)
        left += "" if place in dropped else char
    return left


def _pairs(text: str) -> dict[int, int]:
    """Return the closing parenthesis of each opening one, ignoring those in literals and quoted names."""
    pairs: dict[int, int] = {}
    stack: list[int] = []
    for token in grammar.scan(text).tokens:
        word = text.encode()[token.start : token.end].decode()
        at = len(text.encode()[: token.start].decode())
        if word == "(":
            stack.append(at)
        elif word == ")" and stack:
            pairs[stack.pop()] = at
    return pairs


def _visit(node: ParseNode, parent: ParseNode | None, right: bool, text: str, pairs: dict[int, int], dropped: set[int]) -> None:
    inner = unwrap(node)
    if inner is None:
        return
    kind = inner.DESCRIPTOR.name
    if kind in ("A_Expr", "BoolExpr", "NullTest", "BooleanTest") and _simple(inner, parent, right):
        span = _enclosing(inner, text, pairs)
        if span is not None:
            dropped.update(span)
    elif kind == "TypeCast" and unwrap(inner.arg).DESCRIPTOR.name != "SubLink":
        dropped.update(_cast(inner, text, pairs))
    for child, is_right in _children(inner):
        _visit(child, inner, is_right, text, pairs, dropped)


def _children(node: ParseNode) -> list[tuple[ParseNode, bool]]:
    children: list[tuple[ParseNode, bool]] = []
    for field, value in node.ListFields():
        if field.message_type is None or field.name in ("type_name", "name", "funcname"):
            continue
        for child in value if field.is_repeated else [value]:
            if child.DESCRIPTOR.name == "Node" and unwrap(child) is not None and unwrap(child).DESCRIPTOR.name in ("List", "CaseWhen"):
                children += _children(unwrap(child))
            else:
                children.append((child, field.name == "rexpr"))
    return children


def _simple(node: ParseNode, parent: pb.BoolExpr | None, right: bool) -> bool:
    """Return whether the node needs no parentheses under its parent (isSimpleNode)."""
    if parent is None:
        return True
    above = parent.DESCRIPTOR.name
    if above in ("FuncCall", "A_ArrayExpr", "CoalesceExpr", "MinMaxExpr", "CaseExpr", "RowExpr", "A_Indirection"):
        return True
    if node.DESCRIPTOR.name == "BoolExpr":
        if above != "BoolExpr":
            return False
        if node.boolop == pb.OR_EXPR:
            return bool(parent.boolop == pb.OR_EXPR)
        return bool(parent.boolop in (pb.AND_EXPR, pb.OR_EXPR))
    if above == "BoolExpr":
        return bool(node.DESCRIPTOR.name != "A_Expr" or node.kind not in (pb.AEXPR_OP_ANY, pb.AEXPR_OP_ALL))
    if above == "A_Expr" and node.DESCRIPTOR.name == "A_Expr" and parent.kind == node.kind == pb.AEXPR_OP:
        return _clear(_operator(node), _operator(parent), right)
    return False


def _clear(name: str, above: str, right: bool) -> bool:
    if name in _HIGH and above in _LOW:
        return True
    same = (name in _LOW and above in _LOW) or (name in _HIGH and above in _HIGH)
    return same and not right


def _operator(node: ParseNode) -> str:
    return str(unwrap(node.name[-1]).sval)


def _cast(node: pb.TypeCast, text: str, pairs: dict[int, int]) -> tuple[int, ...]:
    """Return the parentheses around the operand of a cast."""
    place = node.location - _LEAD - 1
    opening = next((opening for opening, closing in pairs.items() if closing == place), -1)
    if opening < 0 or (opening and (text[opening - 1].isalnum() or text[opening - 1] in '_"')):
        return ()
    return opening, place


def _enclosing(node: ParseNode, text: str, pairs: dict[int, int]) -> tuple[int, int] | None:
    """Return the node's own parentheses: the innermost ones around its operator in the stored form, unless they belong to a function."""
    place = node.location - _LEAD
    around = [opening for opening, closing in pairs.items() if opening < place < closing]
    if not around:
        return None
    opening = max(around)
    before = text[opening - 1] if opening else " "
    return None if before.isalnum() or before in '_"' else (opening, pairs[opening])
