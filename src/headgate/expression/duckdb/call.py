"""The call of a function or operator over compiled arguments: which DuckDB has, and in what SQL.

Called by `compiler`. What a template can say stands in `function_table` by signature and in `_BY_KEY` by the function's key; what needs the
arguments' types or constants is a builder in `_BUILDERS`. Comparison is `comparison`'s, casts are `cast`'s.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.builtin import Operator
from headgate.expression.duckdb import cast, comparison, json, regex
from headgate.expression.duckdb.function_table import FUNCTIONS
from headgate.expression.duckdb.value import (
    FLOATS,
    INTEGERS,
    MAX_DIGITS,
    Env,
    duckdb_type,
    element_of,
    quote,
    raised,
    refuse,
    scale,
    zero_based,
)
from headgate.expression.functions.datetime import timestamp
from headgate.types import registry as t
from headgate.types.datetime import interval

Builder = Callable[[n.Expression, Sequence[n.Expression], Sequence[str], Env], str]


def apply(function: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """A call of a function over the SQL of its arguments; 0A000 for a function that DuckDB has not."""
    found = builtin.function(function)
    builder = _BUILDERS.get(found.key)
    if builder is not None:
        return builder(node, operands, args, env)
    template = _templates().get(function)
    if template is None and found.key in _BY_KEY:
        template = (_BY_KEY[found.key], True)
    if template is None:
        shown = ", ".join(t.format_type(each) for each in found.arguments)
        raise refuse(f"function {found.name}({shown})", node)
    text, whole = template
    made = _filled(text, node, operands, args, env)
    watched = [sql for operand, sql in zip(operands, args, strict=True) if not (isinstance(operand, n.Const) and operand.value is not None)]
    if whole or not watched:
        return made
    return f"CASE WHEN {' AND '.join(f'{each} IS NOT NULL' for each in watched)} THEN {made} END"


def operate(operator: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """An operator over the SQL of its operands."""
    found = builtin.operator(operator)
    if found.name in comparison.OPERATORS and found.kind == "b" and found.result == t.BOOL:
        return comparison.compare(found, operands[0], operands[1], args[0], args[1], env)
    if found.result in INTEGERS and {found.left, found.right} <= {0, *INTEGERS}:
        return _integer(found, node, operands, args)
    if found.result in FLOATS and found.name in "+-*/" and found.left in FLOATS and found.right in FLOATS:
        return _float(found, args)
    if found.result == t.NUMERIC and found.left in (0, t.NUMERIC) and found.right == t.NUMERIC:
        return _numeric(found, node, operands, args, env)
    if builtin.function(found.function).key in _IN_ZONE and not env.in_utc:
        return _in_zone(found, node, operands, args, env)
    return apply(found.function, node, operands, args, env)


def _in_zone(found: Operator, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """timestamptz ± interval where TimeZone is not UTC: days and months are the zone's, of which DuckDB knows nothing.

    Hours are the same everywhere, and of now() and its like the sum is a constant; all else is refused.
    """
    moment, span = operands if found.left == t.TIMESTAMPTZ else reversed(operands)
    if isinstance(span, n.Const) and span.value is not None:
        parts = interval.normal(span.value)
        if not parts.days and not parts.months:
            return apply(found.function, node, operands, args, env)
        micros = env.moment(moment)
        if micros is not None:
            shift = timestamp.minus_in_zone if found.name == "-" else timestamp.plus_in_zone
            return f"make_timestamp({shift(env.time_zone, micros, span.value)})"
    raise refuse("an operator that depends on TimeZone", node)


@functools.cache
def _templates() -> dict[int, tuple[str, bool]]:
    """The templates of `function_table` by the function's oid, and whether each is NULL for NULL by itself."""
    found: dict[int, tuple[str, bool]] = {}
    for line in FUNCTIONS.strip().splitlines():
        matched = re.match(r"(\w+)(!?)\((.*?)\): (.*)\Z", line)
        assert matched is not None, line
        kinds = tuple(t.by_name(each, "pg_catalog").oid for each in matched[3].split(", ") if each)
        [function] = [each for each in builtin.builtins().functions_named[matched[1]] if each.arguments == kinds]
        found[function.oid] = (matched[4], not matched[2])
    return found


_PIECE = re.compile(r"\{(texts|shift|regclass)?(\d)\}|\{(db|p|sizes)\}|<(\w{5}) ([^>]*)>")


def _filled(template: str, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    def piece(matched: re.Match[str]) -> str:
        special, place, word, sqlstate, message = matched.groups()
        if sqlstate:
            return raised(sqlstate, message, node.type.oid)
        if word:
            return {"db": env.database, "p": env.path}.get(word) or env.sizes()
        index = int(place)
        if special == "texts":
            inner = cast.output(element_of(operands[index].type.oid) or t.TEXT, "x", env)
            return args[index] if inner == "x" else f"list_transform({args[index]}, lambda x: {inner})"
        if special == "shift":
            return "1" if zero_based(operands[index], env) else "0"
        if special == "regclass":
            as_class = n.CoerceViaIO(type=n.TypeRef(t.REGCLASS), arg=operands[index], form=n.Form.IMPLICIT)
            return cast.through_text(as_class, args[index], env)
        return args[index]

    return _PIECE.sub(piece, template)


# ---- numbers ---------------------------------------------------------------------------------------------------------------


def _integer(found: builtin.Operator, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str]) -> str:
    kind = duckdb_type(found.result)
    if len(args) == 1:
        if found.name not in ("-", "+", "~", "@"):
            raise refuse(f"operator {found.name}", node)
        made = f"abs({args[0]})" if found.name == "@" else f"({found.name}{args[0]})"
        return f"CAST({made} AS {kind})"
    if found.name in (">>", "<<"):
        if found.name == "<<" or found.left == t.INT2:
            raise refuse(f"operator {found.name}", node)
        return f"({args[0]} >> ({args[1]} & {63 if found.left == t.INT8 else 31}))"
    sides = [each if operand.type.oid == found.result else f"CAST({each} AS {kind})" for each, operand in zip(args, operands, strict=True)]
    if found.name == "#":
        return f"xor({sides[0]}, {sides[1]})"
    if found.name not in ("+", "-", "*", "/", "%", "&", "|"):
        raise refuse(f"operator {found.name}", node)
    return f"({sides[0]} {'//' if found.name == '/' else found.name} {sides[1]})"


def _float(found: builtin.Operator, args: Sequence[str]) -> str:
    """Arithmetic that raises where a finite value becomes infinite, or nothing."""
    kind = duckdb_type(found.result)
    a, b = (f"CAST({each} AS {kind})" for each in args)
    made = f"({a} {found.name} {b})"
    if found.name == "/":
        zero = raised("22012", "division by zero", found.result)
        made = f"CASE WHEN {b} = 0 AND NOT isnan({a}) THEN {zero} ELSE {made} END"
    over = raised("22003", "value out of range: overflow", found.result)
    checks = f"WHEN isinf({made}) AND NOT isinf({a}) AND NOT isinf({b}) THEN {over}"
    if found.name in "*/":
        under = raised("22003", "value out of range: underflow", found.result)
        nothing = f"{a} <> 0 AND {b} <> 0" if found.name == "*" else f"{a} <> 0 AND NOT isinf({b})"
        checks += f" WHEN {made} = 0 AND {nothing} THEN {under}"
    return f"CASE {checks} ELSE {made} END"


def _numeric(found: builtin.Operator, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    scales = [scale(each, env) for each in operands]
    if None in scales or found.name not in ("+", "-", "*", "%") or sum(each or 0 for each in scales) > MAX_DIGITS // 2:
        raise refuse(f"operator numeric {found.name} numeric", node)
    if len(args) == 1:
        return f"({found.name}{args[0]})"
    if found.name == "*":
        return f"({args[0]} * {args[1]})"
    widest = max(each or 0 for each in scales)
    sides = [f"CAST({each} AS DECIMAL({MAX_DIGITS},{widest}))" for each in args]
    return f"({sides[0]} {found.name} {sides[1]})"


# ---- builders --------------------------------------------------------------------------------------------------------------


_TORN = re.compile(r"^(?:[^\\]|\\.)*\\$", re.DOTALL)
"""A pattern that ends with an escape character."""


def _lower(sql: str) -> str:
    """Text with small letters, as the C collation folds it."""
    return f"translate({sql}, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"


def _like(*, folded: bool, negated: bool) -> Builder:
    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        subject, pattern, escape, written = args[0], args[1], "'\\'", operands[1]
        if isinstance(written, n.FuncExpr) and builtin.function(written.function).key == "like_escape":
            escape = _escape(written.args[1])
        if folded:
            subject, pattern = _lower(subject), _lower(pattern)
        if not isinstance(written, n.Const) or _TORN.search(written.value or ""):
            torn = raised("22025", "LIKE pattern must not end with escape character", t.TEXT)
            pattern = (
                f"CASE WHEN regexp_matches({pattern}, {quote(_TORN.pattern)}) THEN {torn} ELSE {pattern} END"
                if escape == "'\\'"
                else pattern
            )
        return f"({subject} {'NOT ' if negated else ''}LIKE {pattern} ESCAPE {escape})"

    return build


def _escape(node: n.Expression) -> str:
    if not isinstance(node, n.Const):
        raise refuse("LIKE with an ESCAPE that is no constant", node)
    return quote(node.value) if node.value is not None else "NULL"


def _typeof(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    return f"CAST({operands[0].type.oid} AS UINTEGER)"


def _concat(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    if isinstance(node, n.FuncExpr) and node.variadic:
        raise refuse("VARIADIC", node)
    return f"concat({', '.join(cast.text(each, sql, env) for each, sql in zip(operands, args, strict=True))})"


def _concat_ws(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    return "concat_ws" + _concat(node, operands, args, env).removeprefix("concat")


def _text_beside(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """``anynonarray || text`` and the other way round: a boolean is written out, as a cast writes it."""
    shown = [
        f"CASE WHEN {sql} THEN 'true' WHEN NOT {sql} THEN 'false' END" if each.type.oid == t.BOOL else cast.text(each, sql, env)
        for each, sql in zip(operands, args, strict=True)
    ]
    return f"({shown[0]} || {shown[1]})"


def _format(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """format() with a constant pattern of %s, %I, %L."""
    pattern = operands[0]
    if not isinstance(pattern, n.Const) or pattern.value is None or (isinstance(node, n.FuncExpr) and node.variadic):
        raise refuse("format with a pattern that is not a constant", node)
    shown = [cast.text(each, sql, env) for each, sql in zip(operands[1:], args[1:], strict=True)]
    parts = []
    for piece in re.split(r"(%[%sIL])", pattern.value):
        if piece in ("%s", "%I", "%L"):
            if not shown:
                return raised("22023", "too few arguments for format()", t.TEXT)
            each = shown.pop(0)
            name = f"CASE WHEN {each} IS NULL THEN {raised('22004', 'null values cannot be formatted as an SQL identifier', t.TEXT)}"
            parts.append(
                {
                    "%s": f"coalesce({each}, '')",
                    "%I": f"{name} ELSE hg.quote_ident({each}) END",
                    "%L": f"coalesce(hg.quote_literal({each}), 'NULL')",
                }[piece]
            )
        elif "%" in piece.replace("%%", ""):
            raise refuse("this pattern of format", node)
        elif piece:
            parts.append(quote("%" if piece == "%%" else piece))
    return f"({' || '.join(parts) or quote('')})"


_FIELDS = frozenset({"microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year"})


def _truncated(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """date_trunc of a field that DuckDB cuts at the same place."""
    field = operands[0]
    if not isinstance(field, n.Const) or (field.value or "").lower() not in _FIELDS or (node.type.oid == t.TIMESTAMPTZ and not env.in_utc):
        raise refuse("date_trunc of this field", node)
    return f"CAST(date_trunc({args[0]}, {args[1]}) AS TIMESTAMP)"


def _contains(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    known = " AND ".join(f"{each} IS NOT NULL" for each in args)
    return f"CASE WHEN {known} THEN list_has_all({args[0]}, {args[1]}) AND list_count({args[1]}) = len({args[1]}) END"


def _contained(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    return _contains(node, operands, [args[1], args[0]], env)


def _beside(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Two arrays as one; a NULL is no array, and what counts from 0 is refused."""
    if any(zero_based(each, env) for each in operands):
        raise refuse("an array that counts from 0, beside another", node)
    return f"CASE WHEN {args[0]} IS NULL THEN {args[1]} WHEN {args[1]} IS NULL THEN {args[0]} ELSE list_concat({args[0]}, {args[1]}) END"


def _moved(sign: str) -> Builder:
    """A pg_lsn and a whole number of bytes."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        if scale(operands[1], env) != 0:
            raise refuse("a position moved by part of a byte", node)
        return f"CAST(CAST({args[0]} AS HUGEINT) {sign} CAST({args[1]} AS HUGEINT) AS UBIGINT)"

    return build


def _true_type(kept: str, domain: str) -> Builder:
    """information_schema's functions that look through a domain: of a row of pg_attribute and one of pg_type."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        fields = []
        for each in operands:
            while isinstance(each, (n.RowCoerce, n.Relabel)):
                each = each.arg  # noqa: PLW2901
            if not isinstance(each, n.ColumnRef) or each.key not in env.rows:
                raise refuse("this row", node)
            fields.append({column.name: column.key for column in env.rows[each.key]})
        return f"CASE WHEN {fields[1]['typtype']} = 'd' THEN {fields[1][domain]} ELSE {fields[0][kept]} END"

    return build


_IN_ZONE = frozenset({"timestamptz_pl_interval", "timestamptz_mi_interval", "interval_pl_timestamptz/1186,1184"})
_IN_RANGE = (
    "CASE WHEN ({0}) < CAST('4714-11-24 (BC) 00:00:00' AS TIMESTAMP) AND isfinite({0}) THEN <22008 timestamp out of range> ELSE ({0}) END"
)
_BY_KEY = {
    "textcat": "({0} || {1})",
    "arrayoverlap": "list_has_any({0}, {1})",
    "timestamp_pl_interval": _IN_RANGE.format("{0} + {1}"), "timestamptz_pl_interval": _IN_RANGE.format("{0} + {1}"),
    "timestamp_mi_interval": _IN_RANGE.format("{0} - {1}"), "timestamptz_mi_interval": _IN_RANGE.format("{0} - {1}"),
    "interval_pl_timestamp/1186,1114": _IN_RANGE.format("{1} + {0}"), "interval_pl_timestamptz/1186,1184": _IN_RANGE.format("{1} + {0}"),
    "timestamp_mi": "({0} - {1})", "interval_pl": "({0} + {1})", "interval_mi": "({0} - {1})", "interval_um": "(-{0})",
    "date_mi": "CAST(date_diff('day', {1}, {0}) AS INTEGER)", "date_pli": "CAST({0} + {1} AS DATE)", "date_mii": "CAST({0} - {1} AS DATE)",
    "pg_lsn_mi": "CAST(CAST({0} AS HUGEINT) - CAST({1} AS HUGEINT) AS DECIMAL(38,0))",
    "int4and": "({0} & {1})",
}  # fmt: skip
_BUILDERS: dict[str, Builder] = {
    **{f"{kind}like": _like(folded=False, negated=False) for kind in ("text", "name", "bpchar")},
    **{f"{kind}nlike": _like(folded=False, negated=True) for kind in ("text", "name", "bpchar")},
    **{f"{kind}iclike": _like(folded=True, negated=False) for kind in ("text", "name", "bpchar")},
    **{f"{kind}icnlike": _like(folded=True, negated=True) for kind in ("text", "name", "bpchar")},
    **regex.BUILDERS,
    **json.BUILDERS,
    "pg_typeof": _typeof,
    "text_concat": _concat,
    "text_concat_ws": _concat_ws,
    "text_format": _format,
    "text_format_nv": _format,
    "anytextcat/2776,25": _text_beside,
    "textanycat/25,2776": _text_beside,
    "arraycontains": _contains,
    "arraycontained": _contained,
    "array_cat": _beside,
    "pg_lsn_pli": _moved("+"),
    "pg_lsn_mii": _moved("-"),
    "timestamp_trunc": _truncated,
    "timestamptz_trunc": _truncated,
    "_pg_truetypid/75,71": _true_type("atttypid", "typbasetype"),
    "_pg_truetypmod/75,71": _true_type("atttypmod", "typtypmod"),
}
