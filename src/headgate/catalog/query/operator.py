"""PostgreSQL's operators over the types of the catalogs, as DuckDB SQL."""

from __future__ import annotations

from headgate.catalog.query.cast import CatalogNames, coerce
from headgate.catalog.query.value import NUMBERS, OIDS, TEXTUAL, TypedSql, array_of, element_of, no_operator, position
from headgate.errors import PostgresError, not_supported
from headgate.types import registry as t

COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_MATCHES = {"~": ("", False), "!~": ("", True), "~*": ("i", False), "!~*": ("i", True)}
_LIKES = {"~~": ("LIKE", False), "!~~": ("LIKE", True), "~~*": ("ILIKE", False), "!~~*": ("ILIKE", True)}
_TIMES = (t.DATE, t.TIMESTAMP, t.TIMESTAMPTZ)


def binary(name: str, left: TypedSql, right: TypedSql, names: CatalogNames, location: int = -1) -> TypedSql:
    """left name right; 42883 if there is no such operator."""
    if name in COMPARISONS:
        left, right = comparable(name, left, right, names, location)
        return TypedSql(f"({left.sql} {COMPARISONS[name]} {right.sql})", t.BOOL)
    if name in _MATCHES:
        left, right = _textual(name, left, right, names, location)
        options, negated = _MATCHES[name]
        sql = f"regexp_matches({left.sql}, {right.sql}, 's{options}')"
        return TypedSql(f"(NOT {sql})" if negated else sql, t.BOOL)
    if name in _LIKES:
        left, right = _textual(name, left, right, names, location)
        word, negated = _LIKES[name]
        return TypedSql(f"({left.sql} {'NOT ' if negated else ''}{word} {right.sql} ESCAPE '\\')", t.BOOL)
    if name == "||":
        return _concatenate(left, right, names, location)
    if name in ("@>", "<@", "&&"):
        return _containment(name, left, right, names, location)
    return _arithmetic(name, left, right, names, location)


def prefix(name: str, right: TypedSql, names: CatalogNames, location: int = -1) -> TypedSql:
    """An operator with a right operand alone: - + ~ @."""
    if right.unknown:
        right = coerce(right, t.FLOAT8, names)
    if right.type in NUMBERS and name in "-+~@":
        sql = f"abs({right.sql})" if name == "@" else f"({name}{right.sql})"
        return TypedSql(sql, right.type)
    if right.type == t.INTERVAL and name == "-":
        return TypedSql(f"(-{right.sql})", t.INTERVAL)
    raise no_operator(name, None, right, location)


def comparable(name: str, left: TypedSql, right: TypedSql, names: CatalogNames, location: int) -> tuple[TypedSql, TypedSql]:
    """Both operands in forms that DuckDB compares as PostgreSQL does; 42883 if PostgreSQL would not compare them."""
    left, right = same(left, right, names)
    a, b = left.type, right.type
    fits = (
        a == b
        or (a in TEXTUAL and b in TEXTUAL)
        or (a in NUMBERS and b in NUMBERS)
        or (a in OIDS and b in OIDS)
        or (a in OIDS and b in NUMBERS[:3])
        or (a in NUMBERS[:3] and b in OIDS)
        or (a in _TIMES and b in _TIMES)
        or {a, b} <= {t.XID, t.INT4, t.XID8}
        or (element_of(a) is not None and element_of(b) is not None)
        or t.RECORD in (a, b)
    )
    if not fits:
        raise no_operator(name, left, right, location)
    return left, right


def same(left: TypedSql, right: TypedSql, names: CatalogNames) -> tuple[TypedSql, TypedSql]:
    """Decides an operand of type unknown by the other one; text if both are."""
    if left.unknown and right.unknown:
        return coerce(left, t.TEXT, names), coerce(right, t.TEXT, names)
    if left.unknown:
        return coerce(left, right.type, names), right
    if right.unknown:
        return left, coerce(right, left.type, names)
    return left, right


def _textual(name: str, left: TypedSql, right: TypedSql, names: CatalogNames, location: int) -> tuple[TypedSql, TypedSql]:
    left, right = coerce(left, t.TEXT, names) if left.unknown else left, coerce(right, t.TEXT, names) if right.unknown else right
    if left.type not in TEXTUAL or right.type not in TEXTUAL:
        raise no_operator(name, left, right, location)
    return left, right


def _concatenate(left: TypedSql, right: TypedSql, names: CatalogNames, location: int) -> TypedSql:
    arrays = [element_of(value.type) for value in (left, right)]
    if arrays[0] is not None or arrays[1] is not None:
        array = left.type if arrays[0] is not None else right.type
        element = element_of(array) or t.TEXT
        sides = []
        for value, is_array in zip((left, right), arrays, strict=True):
            if is_array is not None or value.unknown:
                sides.append(coerce(value, array, names).sql)
            else:
                sides.append(f"[{coerce(value, element, names).sql}]")
        empty = [f"coalesce({side}, [])" for side in sides]
        return TypedSql(f"CASE WHEN {sides[0]} IS NULL AND {sides[1]} IS NULL THEN NULL ELSE list_concat({', '.join(empty)}) END", array)
    if left.type not in TEXTUAL | {t.UNKNOWN} and right.type not in TEXTUAL | {t.UNKNOWN}:
        raise no_operator("||", left, right, location)
    left, right = coerce(left, t.TEXT, names), coerce(right, t.TEXT, names)
    return TypedSql(f"({left.sql} || {right.sql})", t.TEXT)


def _containment(name: str, left: TypedSql, right: TypedSql, names: CatalogNames, location: int) -> TypedSql:
    left, right = same(left, right, names)
    if element_of(left.type) is None or element_of(right.type) is None:
        raise no_operator(name, left, right, location)
    if name == "&&":
        return TypedSql(f"list_has_any({left.sql}, {right.sql})", t.BOOL)
    if name == "<@":
        left, right = right, left
    return TypedSql(f"list_has_all({left.sql}, {right.sql})", t.BOOL)


def _arithmetic(name: str, left: TypedSql, right: TypedSql, names: CatalogNames, location: int) -> TypedSql:
    if t.PG_LSN in (left.type, right.type):
        return _positions(name, left, right, names, location)
    if {left.type, right.type} & {t.TIMESTAMP, t.TIMESTAMPTZ, t.INTERVAL, t.DATE}:
        return _times(name, left, right, names, location)
    left, right = same(left, right, names)
    if left.type not in NUMBERS or right.type not in NUMBERS or name not in {"+", "-", "*", "/", "%", "^", "&", "|", "#", "<<", ">>"}:
        raise no_operator(name, left, right, location)
    result = max(left.type, right.type, key=NUMBERS.index)
    if name == "/" and result == t.NUMERIC:
        raise not_supported("division of numeric values is not supported in a query without tables", position=position(location))
    if name == "^":
        return TypedSql(f"pow({left.sql}, {right.sql})", t.FLOAT8)
    if result == t.FLOAT4 and t.NUMERIC in (left.type, right.type):
        result = t.FLOAT8
    word = {"/": "//", "#": "xor"}.get(name, name) if result in (t.INT2, t.INT4, t.INT8) else name
    if word == "xor":
        return TypedSql(f"xor({left.sql}, {right.sql})", result)
    if result in (t.INT2, t.INT4, t.INT8):
        left, right = coerce(left, result, names), coerce(right, result, names)
    return TypedSql(f"({left.sql} {word} {right.sql})", result)


def _positions(name: str, left: TypedSql, right: TypedSql, names: CatalogNames, location: int) -> TypedSql:
    """pg_lsn - pg_lsn is numeric; pg_lsn ± numeric is pg_lsn."""
    if name == "-" and left.type == t.PG_LSN and (right.type == t.PG_LSN or right.unknown):
        right = coerce(right, t.PG_LSN, names)
        return TypedSql(f"CAST(CAST({left.sql} AS HUGEINT) - CAST({right.sql} AS HUGEINT) AS DECIMAL(38,0))", t.NUMERIC)
    if name == "-" and left.unknown:
        return _positions(name, coerce(left, t.PG_LSN, names), right, names, location)
    if name in "+-" and left.type == t.PG_LSN and right.type in NUMBERS:
        return TypedSql(f"CAST(CAST({left.sql} AS HUGEINT) {name} CAST({right.sql} AS HUGEINT) AS UBIGINT)", t.PG_LSN)
    if name == "+" and right.type == t.PG_LSN and left.type in NUMBERS:
        return _positions(name, right, left, names, location)
    raise no_operator(name, left, right, location)


def _times(name: str, left: TypedSql, right: TypedSql, names: CatalogNames, location: int) -> TypedSql:
    if left.unknown:
        left = coerce(left, right.type if right.type != t.INTERVAL else t.INTERVAL, names)
    if right.unknown:
        right = coerce(right, t.INTERVAL if left.type == t.INTERVAL or name == "+" else left.type, names)
    moments = (t.TIMESTAMP, t.TIMESTAMPTZ)
    if name == "-" and left.type in moments and right.type in moments:
        return TypedSql(f"({left.sql} - {right.sql})", t.INTERVAL)
    if name in "+-" and left.type in moments and right.type == t.INTERVAL:
        return TypedSql(f"({left.sql} {name} {right.sql})", left.type)
    if name == "+" and left.type == t.INTERVAL and right.type in moments:
        return TypedSql(f"({right.sql} + {left.sql})", right.type)
    if name in "+-" and left.type == right.type == t.INTERVAL:
        return TypedSql(f"({left.sql} {name} {right.sql})", t.INTERVAL)
    if name == "-" and left.type == right.type == t.DATE:
        return TypedSql(f"CAST(date_diff('day', {right.sql}, {left.sql}) AS INTEGER)", t.INT4)
    if name in "+-" and left.type == t.DATE and right.type in NUMBERS[:2]:
        return TypedSql(f"CAST({left.sql} {name} CAST({right.sql} AS INTEGER) AS DATE)", t.DATE)
    raise PostgresError(*_missing(name, left, right), position=position(location))


def _missing(name: str, left: TypedSql, right: TypedSql) -> tuple[str, str]:
    error = no_operator(name, left, right, -1)
    return error.sqlstate, error.message


def any_all(name: str, left: TypedSql, array: TypedSql, names: CatalogNames, location: int, *, every: bool) -> TypedSql:
    """left name ANY (array) or ALL (array), PostgreSQL's treatment of NULL included."""
    if array.unknown:
        array = coerce(array, t.TEXT_ARRAY if left.unknown else array_of(left.type), names)
    element = element_of(array.type)
    if element is None:
        raise PostgresError("42809", "op ANY/ALL (array) requires array on right side", position=position(location))
    if left.unknown:
        left = coerce(left, element, names)
    if name in COMPARISONS:
        comparable(name, left, TypedSql("x", element), names, location)
        compared = f"{left.sql} {COMPARISONS[name]} {'ALL' if every else 'ANY'} ({array.sql})"
        return TypedSql(f"CASE WHEN {array.sql} IS NOT NULL THEN {compared} END", t.BOOL)  # DuckDB takes a NULL list for an empty one
    each = binary(name, left, TypedSql("x", element), names, location).sql
    listed = f"list_transform({array.sql}, lambda x: {each})"
    function = "list_bool_and" if every else "list_bool_or"
    return TypedSql(f"{function}({listed})", t.BOOL)
