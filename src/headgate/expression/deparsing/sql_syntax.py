"""Print calls in SQL syntax: EXTRACT(… FROM …), SUBSTRING(… FROM …), AT TIME ZONE (get_func_sql_syntax of ruleutils.c).

Called by `deparse` for calls that were written in this syntax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headgate.expression.builtin import Function
from headgate.expression.node import Const, Expression, FuncExpr
from headgate.types import registry


class Writer(Protocol):
    """The methods of `deparse.Printer` that this module uses."""

    def say(self, text: str) -> None:
        """Append text."""

    def write(self, expression: Expression, *, implicit: bool) -> None:
        """Print an expression."""

    def guarded(self, expression: Expression, parent: Expression, *, implicit: bool) -> None:
        """Print an expression, in parentheses if the pretty form needs them."""


def write(out: Writer, call: FuncExpr, function: Function) -> bool:
    """Print the call in its SQL syntax. Return False, and print nothing, if it has none."""
    printer = _PRINTERS.get(function.name)
    if printer is None or (function.name == "substring" and function.arguments == (registry.TEXT, registry.TEXT)):
        return False
    printer(out, call)
    return True


def _parts(out: Writer, call: FuncExpr, *words: str) -> None:
    """Print words[0] arg0 words[1] arg1 … and a closing parenthesis."""
    for word, arg in zip(words, call.args, strict=False):
        out.say(word)
        out.write(arg, implicit=False)
    out.say(")")


def _time_zone(out: Writer, call: FuncExpr) -> None:
    out.say("(")
    out.guarded(call.args[1], call, implicit=False)
    out.say(" AT TIME ZONE ")
    out.guarded(call.args[0], call, implicit=False)
    out.say(")")


def _overlaps(out: Writer, call: FuncExpr) -> None:
    _parts(out, call, "((", ", ", ") OVERLAPS (", ", ")
    out.say(")")


def _word(expression: Expression) -> str:
    return expression.value or "" if isinstance(expression, Const) else ""


def _extract(out: Writer, call: FuncExpr) -> None:
    out.say(f"EXTRACT({_word(call.args[0])} FROM ")
    out.write(call.args[1], implicit=False)
    out.say(")")


def _is_normalized(out: Writer, call: FuncExpr) -> None:
    out.say("(")
    out.guarded(call.args[0], call, implicit=False)
    out.say(" IS" + (f" {_word(call.args[1])}" if len(call.args) > 1 else "") + " NORMALIZED)")


def _normalize(out: Writer, call: FuncExpr) -> None:
    out.say("NORMALIZE(")
    out.write(call.args[0], implicit=False)
    out.say((f", {_word(call.args[1])}" if len(call.args) > 1 else "") + ")")


def _position(out: Writer, call: FuncExpr) -> None:
    out.say("POSITION((")
    out.write(call.args[1], implicit=False)
    out.say(") IN (")
    out.write(call.args[0], implicit=False)
    out.say("))")


def _substring(out: Writer, call: FuncExpr) -> None:
    if call.args[1].type.oid == registry.TEXT:
        _parts(out, call, "SUBSTRING(", " SIMILAR ", " ESCAPE ")
    else:
        _parts(out, call, "SUBSTRING(", " FROM ", " FOR ")


def _trim(side: str) -> Callable[[Writer, FuncExpr], None]:
    def printer(out: Writer, call: FuncExpr) -> None:
        out.say(f"TRIM({side}")
        if len(call.args) > 1:
            out.say(" ")
            out.write(call.args[1], implicit=False)
        out.say(" FROM ")
        out.write(call.args[0], implicit=False)
        out.say(")")

    return printer


def _xml_exists(out: Writer, call: FuncExpr) -> None:
    _parts(out, call, "XMLEXISTS((", ") PASSING (")
    out.say(")")


_PRINTERS: dict[str, Callable[[Writer, FuncExpr], None]] = {
    "timezone": _time_zone,
    "overlaps": _overlaps,
    "extract": _extract,
    "is_normalized": _is_normalized,
    "normalize": _normalize,
    "pg_collation_for": lambda out, call: _parts(out, call, "COLLATION FOR ("),
    "overlay": lambda out, call: _parts(out, call, "OVERLAY(", " PLACING ", " FROM ", " FOR "),
    "position": _position,
    "substring": _substring,
    "btrim": _trim("BOTH"),
    "ltrim": _trim("LEADING"),
    "rtrim": _trim("TRAILING"),
    "xmlexists": _xml_exists,
}
