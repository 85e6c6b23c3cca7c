r"""Print a typed expression exactly as PostgreSQL's pg_get_expr does (ruleutils.c).

Used for row filters (in a subscriber's COPY, and in ``\\dRp+``), column defaults and checks. `deparse` is pg_get_expr(…). With `pretty`, it
is pg_get_expr(…, true), which psql's ``\\d`` uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headgate.errors import not_supported
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.binding.coercion import is_length_coercion, strip_implicit
from headgate.expression.deparsing import named_object, sql_syntax
from headgate.sql import names
from headgate.types import registry

T = TypeVar("T")
_SEPARATED = (n.UserCall, n.Subscript, n.ArrayExpr, n.RowExpr, n.Coalesce, n.MinMax, n.NullIf, n.Aggregate, n.Case, n.WindowCall)
_SIMPLE = (
    n.ColumnRef, n.Const, n.Param, n.SetToDefault, n.Subscript, n.ArrayExpr, n.RowExpr, n.Coalesce, n.MinMax, n.SqlValue,
    n.NullIf, n.Aggregate, n.FuncExpr, n.UserCall, n.Case, n.WindowCall, n.Grouping,
)  # fmt: skip


def is_simple(expression: n.Expression, parent: n.Expression) -> bool:
    """Return whether the pretty form prints the node below `parent` without parentheses (isSimpleNode)."""
    if isinstance(expression, _SIMPLE):
        return True
    if isinstance(expression, n.FieldSelect):
        return not isinstance(parent, n.FieldSelect)
    if isinstance(expression, (n.Relabel, n.CoerceViaIO, n.ArrayCoerce, n.RowCoerce)):
        return is_simple(expression.arg, expression)
    if isinstance(expression, n.OpExpr) and isinstance(parent, n.OpExpr):
        return _binds_tighter(expression, parent)
    if isinstance(expression, (n.OpExpr, n.SubLink, n.NullTest, n.BooleanTest, n.Distinct)):
        return isinstance(parent, (n.BoolExpr, *_SEPARATED)) or (isinstance(parent, n.FuncExpr) and parent.form is n.Form.CALL)
    if isinstance(expression, n.BoolExpr):
        if isinstance(parent, n.BoolExpr):
            if expression.kind is n.BoolKind.OR:
                return parent.kind is n.BoolKind.OR
            return parent.kind in (n.BoolKind.AND, n.BoolKind.OR)
        return isinstance(parent, _SEPARATED) or (isinstance(parent, n.FuncExpr) and parent.form is n.Form.CALL)
    return False


def _binds_tighter(expression: n.OpExpr, parent: n.OpExpr) -> bool:
    own, above = _simple_name(expression), _simple_name(parent)
    if own is None or above is None or own not in "+-*/%" or above not in "+-*/%":
        return False
    high, high_above = own in "*/%", above in "*/%"
    if high != high_above:
        return high
    return expression is parent.args[0]


def _simple_name(node: n.OpExpr) -> str | None:
    name = builtin.operator(node.operator).name
    return name if len(node.args) == 2 and re.fullmatch(r".", name) else None


_DEEP = 40
"""The indentation from which lines are indented less (PRETTYINDENT_LIMIT)."""
_LIKE_FUNCTIONS = (n.FuncExpr, n.UserCall, n.Aggregate, n.WindowCall)
"""Nodes that need parentheses as an item of ORDER BY or GROUP BY."""


def deparse(expression: n.Expression, pretty: bool = False, types: registry.TypeRegistry | None = None) -> str:
    """Return the text of pg_get_expr. Pass the catalog's registry as `types` if user-defined types may occur."""
    printer = Printer(pretty, types or registry.known())
    printer.write(expression, implicit=False)
    return "".join(printer.parts)


def stored(expression: n.Expression, pretty: bool = False) -> str:
    """Return the text for the catalog: that of pg_get_expr, with references to users' types and functions (`registry.reference`)."""
    printer = StoredPrinter(pretty, registry.known())
    printer.write(expression, implicit=False)
    return "".join(printer.parts)


@dataclass
class Printer:
    """The text so far. `pretty` omits parentheses that precedence makes unnecessary. Both forms break lines at CASE."""

    pretty: bool
    types: registry.TypeRegistry
    parts: list[str] = field(default_factory=list)
    indent: int = 0

    def say(self, text: str) -> None:
        self.parts.append(text)

    def keyword(self, word: str, before: int, after: int, further: int = 0) -> None:
        """Append a new line, indented, with the word (appendContextKeyword). `further`: an indentation of this line alone."""
        self.indent += before
        text = "".join(self.parts).rstrip(" ")
        indent = max(self.indent, 0)
        if indent >= _DEEP:
            indent = (_DEEP + (indent - _DEEP) // 4) % _DEEP
        self.parts = [text, "\n", " " * (indent + further), word]
        self.indent = max(self.indent + after, 0)

    def write(self, expression: n.Expression, *, implicit: bool) -> None:
        """Print a node (get_rule_expr). `implicit` also shows implicit casts."""
        _PRINTERS[type(expression)](self, expression, implicit)

    def each(self, items: Iterable[T], separator: str = ", ") -> Iterator[T]:
        """Yield items to be printed, and print the separator between them."""
        for place, item in enumerate(items):
            self.say(separator if place else "")
            yield item

    @contextmanager
    def parentheses(self, needed: bool | None = None) -> Iterator[None]:
        """Print parentheses around the context, if they are needed. By default, they are in the plain form."""
        needed = not self.pretty if needed is None else needed
        self.say("(" if needed else "")
        yield
        self.say(")" if needed else "")

    def guarded(self, expression: n.Expression, parent: n.Expression, *, implicit: bool) -> None:
        """Print a node, in parentheses if the pretty form needs them (get_rule_expr_paren)."""
        with self.parentheses(self.pretty and not is_simple(expression, parent)):
            self.write(expression, implicit=implicit)

    def listed(self, expressions: Iterable[n.Expression]) -> None:
        for expression in self.each(expressions):
            self.write(expression, implicit=True)

    def element(self, expression: n.Expression, *, implicit: bool) -> None:
        """Print an expression where ``t.*`` would mean the columns of a table (get_rule_expr_toplevel)."""
        self.write(expression, implicit=implicit)

    def item(self, expression: n.Expression) -> None:
        """Print an item of ORDER BY, GROUP BY or a similar clause (get_rule_sortgroupclause)."""
        if isinstance(expression, n.Const):
            constant(self, expression, 1)
            return
        with self.parentheses(not isinstance(expression, n.ColumnRef) and (self.pretty or isinstance(expression, _LIKE_FUNCTIONS))):
            self.write(expression, implicit=True)

    def items(self, expressions: Iterable[n.Expression]) -> None:
        for expression in self.each(expressions):
            self.item(expression)

    def order(self, items: Iterable[tuple[n.Expression, bool, bool]]) -> None:
        """Print the items of ORDER BY: expression, whether it is descending, whether NULLs are first (get_rule_orderby)."""
        for expression, descending, first in self.each(items):
            self.item(expression)
            self.say(direction(descending, first))

    def type_name(self, oid: int, modifier: int) -> str:
        """Return the type's name with its modifier (format_type_with_typemod)."""
        return self.types.format_type(oid, modifier)

    def constant_text(self, node: n.Const) -> str:
        return str(node.value)

    def function_name(self, call: n.UserCall) -> str:
        return names.qualified(call.schema, call.name) if call.schema else names.quote_ident(call.name)

    def column(self, node: n.ColumnRef) -> str:
        qualifier = f"{names.quote_ident(node.qualifier)}." if node.attnum == 0 or (node.qualified and node.qualifier) else ""
        return qualifier + ("*" if node.attnum == 0 else names.quote_ident(node.name))

    def sublink(self, node: n.SubLink) -> None:
        raise not_supported("a subquery in an expression cannot be printed")


class StoredPrinter(Printer):
    """The text of an expression for the catalog."""

    def type_name(self, oid: int, modifier: int) -> str:
        """See `Printer`."""
        return self.types.stored_name(oid, modifier)

    def function_name(self, call: n.UserCall) -> str:
        """See `Printer`."""
        return registry.reference(call.function)

    def constant_text(self, node: n.Const) -> str:
        """See `Printer`."""
        return named_object.stored_text(node)


def direction(descending: bool, first: bool) -> str:
    """Return the words after an item of ORDER BY. `first`: NULLs are first."""
    nulls = "" if first == descending else " NULLS FIRST" if first else " NULLS LAST"
    return (" DESC" if descending else "") + nulls


def constant(out: Printer, node: n.Const, show: int = 0) -> None:
    """Print a constant (get_const_expr). `show` -1 omits the type, and 1 always shows it."""
    oid, modifier = node.type.oid, node.type.typmod
    if node.value is None:
        out.say("NULL")
        if show >= 0:
            out.say(f"::{out.type_name(oid, modifier)}")
        return
    labelled = True
    if oid == registry.INT4:
        labelled = node.value.startswith("-")
        out.say(f"'{node.value}'" if labelled else node.value)
    elif oid == registry.NUMERIC:
        bare = node.value[0].isdigit() and "." in node.value
        labelled = not bare or modifier >= 0
        out.say(node.value if bare else f"'{node.value}'")
    elif oid == registry.BOOL:
        labelled = False
        out.say("true" if node.value == "t" else "false")
    else:
        labelled = oid != registry.UNKNOWN
        out.say("'" + out.constant_text(node).replace("'", "''") + "'")
    if show > 0 or (show == 0 and labelled):
        out.say(f"::{out.type_name(oid, modifier)}")


def _param(out: Printer, node: n.Param, implicit: bool) -> None:
    out.say(f"${node.number}")


def cast(out: Printer, arg: n.Expression, kind: n.TypeRef, parent: n.Expression) -> None:
    """Print ``(arg)::type`` (get_coercion_expr)."""
    if isinstance(arg, n.Const) and arg.type.oid == kind.oid and arg.type.typmod == -1:
        constant(out, arg, -1)
    elif isinstance(parent, n.RowCoerce) and isinstance(arg, n.RowExpr):
        out.write(arg, implicit=False)
    else:
        with out.parentheses():
            out.guarded(arg, parent, implicit=False)
    out.say(f"::{out.type_name(kind.oid, kind.typmod)}")


def _call(out: Printer, node: n.FuncExpr, implicit: bool) -> None:
    if node.form is n.Form.IMPLICIT and not implicit:
        out.guarded(node.args[0], node, implicit=False)
        return
    if node.form in (n.Form.EXPLICIT, n.Form.IMPLICIT):
        cast(out, node.args[0], n.TypeRef(node.type.oid, is_length_coercion(node)), node)
        return
    function = builtin.function(node.function)
    if node.form is n.Form.SQL and sql_syntax.write(out, node, function):
        return
    out.say(f"{_name(function)}(")
    for index, argument in out.each(enumerate(node.args)):
        is_array = function.variadic not in (0, registry.ANY) and isinstance(argument, n.ArrayExpr)
        out.say("VARIADIC " if index == len(node.args) - 1 and (node.variadic or is_array) else "")
        out.write(argument, implicit=True)
    out.say(")")


def _user_call(out: Printer, node: n.UserCall, implicit: bool) -> None:
    out.say(f"{out.function_name(node)}(")
    for place, name in out.each(node.passed):
        out.say(f"{names.quote_ident(name)} => " if name else "VARIADIC " if node.variadic and place == len(node.args) - 1 else "")
        out.write(node.args[place], implicit=True)
    out.say(")")


def _operation(out: Printer, node: n.OpExpr, implicit: bool) -> None:
    name = builtin.operator(node.operator).name
    with out.parentheses():
        out.say("" if len(node.args) == 2 else f"{name} ")
        for argument in out.each(node.args, f" {name} "):
            out.guarded(argument, node, implicit=True)


def _distinct(out: Printer, node: n.Distinct, implicit: bool) -> None:
    with out.parentheses():
        for argument in out.each(node.args, " IS DISTINCT FROM "):
            out.guarded(argument, node, implicit=True)


def _array_operation(out: Printer, node: n.ScalarArrayOp, implicit: bool) -> None:
    with out.parentheses():
        out.guarded(node.args[0], node, implicit=True)
        out.say(f" {builtin.operator(node.operator).name} {'ANY' if node.any else 'ALL'} (")
        out.guarded(node.args[1], node, implicit=True)
        out.say(")")


def _boolean(out: Printer, node: n.BoolExpr, implicit: bool) -> None:
    with out.parentheses():
        out.say("NOT " if node.kind is n.BoolKind.NOT else "")
        for argument in out.each(node.args, f" {node.kind.value} "):
            out.guarded(argument, node, implicit=False)


def _coercion(out: Printer, node: n.Relabel | n.CoerceViaIO | n.ArrayCoerce | n.RowCoerce, implicit: bool) -> None:
    if node.type.oid == registry.RECORD:  # PostgreSQL has no coercion from a composite type to record
        out.guarded(node.arg, node, implicit=implicit)
    elif node.form is n.Form.IMPLICIT and not implicit:
        out.guarded(node.arg, node, implicit=False)
    else:
        modifier = -1 if isinstance(node, n.CoerceViaIO) else node.type.typmod
        cast(out, node.arg, n.TypeRef(node.type.oid, modifier), node)


def _collate(out: Printer, node: n.Collate, implicit: bool) -> None:
    with out.parentheses():
        out.guarded(node.arg, node, implicit=implicit)
        out.say(f" COLLATE {names.quote_ident(builtin.builtins().collation_names[node.type.collation])}")


def _case(out: Printer, node: n.Case, implicit: bool) -> None:
    out.keyword("CASE", 0, 4)
    if node.arg is not None:
        out.say(" ")
        out.write(node.arg, implicit=True)
    for condition, result in zip(node.conditions, node.results, strict=True):
        test = condition
        if node.arg is not None and isinstance(condition, n.OpExpr) and isinstance(strip_implicit(condition.args[0]), n.CaseTest):
            test = condition.args[1]
        out.keyword("WHEN ", 0, 0)
        out.write(test, implicit=False)
        out.say(" THEN ")
        out.write(result, implicit=True)
    out.keyword("ELSE ", 0, 0)
    out.write(node.default, implicit=True)
    out.keyword("END", -4, 0)


def _case_test(out: Printer, node: n.CaseTest, implicit: bool) -> None:
    out.say("CASE_TEST_EXPR")


def _listed(word: str) -> Callable[[Printer, Any, bool], None]:
    """Return a printer of ``word(arguments)``."""

    def printer(out: Printer, node: n.Coalesce | n.Grouping | n.MinMax | n.NullIf, implicit: bool) -> None:
        out.say(f"{word}(")
        out.listed(node.args)
        out.say(")")

    return printer


def _array(out: Printer, node: n.ArrayExpr, implicit: bool) -> None:
    out.say("ARRAY[")
    out.listed(node.elements)
    out.say("]")
    if not node.elements:
        out.say(f"::{out.type_name(node.type.oid, -1)}")


def _row(out: Printer, node: n.RowExpr, implicit: bool) -> None:
    out.say("ROW(")
    for argument in out.each(node.args):
        out.element(argument, implicit=True)
    out.say(")")


def _row_comparison(out: Printer, node: n.RowCompare, implicit: bool) -> None:
    out.say("(ROW(")
    out.listed(node.left)
    out.say(f") {builtin.operator(node.operators[0]).name} ROW(")
    out.listed(node.right)
    out.say("))")


def _null_test(out: Printer, node: n.NullTest, implicit: bool) -> None:
    composite = node.arg.type.oid == registry.RECORD or isinstance(node.arg, n.RowExpr)
    with out.parentheses():
        out.guarded(node.arg, node, implicit=True)
        if node.row or not composite:
            out.say(" IS NULL" if node.is_null else " IS NOT NULL")
        else:
            out.say(" IS NOT DISTINCT FROM NULL" if node.is_null else " IS DISTINCT FROM NULL")


def _boolean_test(out: Printer, node: n.BooleanTest, implicit: bool) -> None:
    with out.parentheses():
        out.guarded(node.arg, node, implicit=False)
        out.say(f" {node.kind.value}")


def _sql_value(out: Printer, node: n.SqlValue, implicit: bool) -> None:
    out.say(node.name if node.type.typmod < 0 or node.type.oid == registry.NAME else f"{node.name}({node.type.typmod})")


def _default(out: Printer, node: n.SetToDefault, implicit: bool) -> None:
    out.say("DEFAULT")


def _subscript(out: Printer, node: n.Subscript, implicit: bool) -> None:
    with out.parentheses(not isinstance(node.arg, (n.ColumnRef, n.FieldSelect))):
        out.write(node.arg, implicit=implicit)
    lowers: tuple[n.Expression | None, ...] = node.lower
    for place, upper in enumerate(node.upper):
        out.say("[")
        if lowers:
            lower = lowers[place]
            if lower is not None:
                out.write(lower, implicit=False)
            out.say(":")
        if upper is not None:
            out.write(upper, implicit=False)
        out.say("]")


def _field(out: Printer, node: n.FieldSelect, implicit: bool) -> None:
    with out.parentheses(not isinstance(node.arg, (n.Subscript, n.FieldSelect))):
        out.write(node.arg, implicit=True)
    out.say("." + names.quote_ident(node.name))


def _aggregate(out: Printer, node: n.Aggregate, implicit: bool) -> None:
    function = builtin.function(node.function)
    out.say(f"{_name(function)}({'DISTINCT ' if node.distinct else ''}{'*' if node.star else ''}")
    out.listed(node.args)
    if node.order:
        out.say(") WITHIN GROUP (ORDER BY " if function.aggregate_kind in ("o", "h") else " ORDER BY ")
        out.order(node.order)
    out.say(")")
    _filter(out, node.filter)


def _filter(out: Printer, condition: n.Expression | None) -> None:
    if condition is not None:
        out.say(" FILTER (WHERE ")
        out.write(condition, implicit=False)
        out.say(")")


def _window_call(out: Printer, node: n.WindowCall, implicit: bool) -> None:
    out.say(f"{_name(builtin.function(node.function))}({'*' if node.star else ''}")
    out.listed(node.args)
    out.say(")")
    _filter(out, node.filter)
    out.say(" OVER ")
    if node.window:
        out.say(names.quote_ident(node.window))
    else:
        window(out, node)


def window(out: Printer, node: n.WindowCall) -> None:
    """Print the window of a call (get_rule_windowspec)."""
    out.say("(")
    if node.partition:
        out.say("PARTITION BY ")
        out.items(node.partition)
    if node.order:
        out.say(" ORDER BY " if node.partition else "ORDER BY ")
        out.order(node.order)
    if node.frame.written:
        out.say(f"{' ' if node.partition or node.order else ''}{node.frame.mode} {'BETWEEN ' if node.frame.between else ''}")
        ends = (node.frame.start, node.frame.end)[: 1 + node.frame.between]
        for end, offset in out.each(zip(ends, node.offsets, strict=False), " AND "):
            if offset is not None:
                out.write(offset, implicit=False)
            out.say("CURRENT ROW" if end == "current" else f"{'' if offset is None else ' '}{end.upper()}")
    out.say(")")


def _name(function: builtin.Function) -> str:
    """Return the name of a built-in function, with its schema unless that is pg_catalog."""
    if function.schema == "pg_catalog":
        return names.quote_ident(function.name)
    return names.qualified(function.schema, function.name)


_PRINTERS: dict[type[n.Expression], Callable[[Printer, Any, bool], None]] = {
    n.ColumnRef: lambda out, node, implicit: out.say(out.column(node)),
    n.Const: lambda out, node, implicit: constant(out, node),
    n.Param: _param,
    n.FuncExpr: _call,
    n.UserCall: _user_call,
    n.OpExpr: _operation,
    n.Distinct: _distinct,
    n.NullIf: _listed("NULLIF"),
    n.ScalarArrayOp: _array_operation,
    n.BoolExpr: _boolean,
    n.Relabel: _coercion,
    n.DomainCoerce: _coercion,
    n.DomainValue: lambda out, node, implicit: out.say("VALUE"),
    n.CoerceViaIO: _coercion,
    n.ArrayCoerce: _coercion,
    n.RowCoerce: _coercion,
    n.Collate: _collate,
    n.Case: _case,
    n.CaseTest: _case_test,
    n.ArrayExpr: _array,
    n.RowExpr: _row,
    n.RowCompare: _row_comparison,
    n.Coalesce: _listed("COALESCE"),
    n.MinMax: lambda out, node, implicit: _listed("GREATEST" if node.greatest else "LEAST")(out, node, implicit),
    n.NullTest: _null_test,
    n.BooleanTest: _boolean_test,
    n.SqlValue: _sql_value,
    n.SetToDefault: _default,
    n.Subscript: _subscript,
    n.FieldSelect: _field,
    n.Aggregate: _aggregate,
    n.WindowCall: _window_call,
    n.Grouping: _listed("GROUPING"),
    n.SubLink: lambda out, node, implicit: out.sublink(node),
}
