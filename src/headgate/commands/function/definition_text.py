"""Print functions as pg_get_functiondef and similar functions do (PostgreSQL's ruleutils.c).

The texts are stored in the catalog, with references to types (`registry.reference`).
"""

from __future__ import annotations

from collections.abc import Collection

from headgate.catalog import function as functions
from headgate.catalog.function import Argument, UserFunction
from headgate.sql import names
from headgate.types import registry

_MODES = {"i": "", "o": "OUT ", "b": "INOUT ", "v": "VARIADIC "}
_VOLATILITY, _PARALLEL = {"i": " IMMUTABLE", "s": " STABLE"}, {"s": " PARALLEL SAFE", "r": " PARALLEL RESTRICTED"}
_LISTS = frozenset({"search_path", "temp_tablespaces", "session_preload_libraries", "local_preload_libraries", "shared_preload_libraries"})
_LANGUAGES = {oid: name for name, oid in functions.LANGUAGES.items()}


def arguments(function: UserFunction, *, defaults: bool = True) -> str:
    """Return the text of pg_get_function_arguments, or without defaults that of pg_get_function_identity_arguments."""
    listed = [argument for argument in function.arguments if argument.mode != "t"]
    modes = _MODES | {"i": "IN "} if function.kind == "p" else _MODES
    return ", ".join(modes[argument.mode] + _argument(argument, defaults=defaults) for argument in listed)


def _argument(argument: Argument, *, defaults: bool) -> str:
    name = f"{names.quote_ident(argument.name)} " if argument.name else ""
    default = f" DEFAULT {argument.default}" if defaults and argument.default is not None else ""
    return f"{name}{registry.known().stored_name(argument.type_oid)}{default}"


def result(function: UserFunction) -> str | None:
    if function.kind == "p":
        return None
    table = [argument for argument in function.arguments if argument.mode == "t"]
    if table:
        return (
            f"TABLE({', '.join(f'{names.quote_ident(column.name)} {registry.known().stored_name(column.type_oid)}' for column in table)})"
        )
    return ("SETOF " if function.is_set else "") + registry.known().stored_name(function.result)


def signature(function: UserFunction) -> str:
    """Return a function with the types of its arguments: ``f(integer,text)``."""
    return f"{names.quote_ident(function.name)}({','.join(registry.format_type(oid) for oid in function.declared_types or function.types)})"


def visible_signature(function: UserFunction, path: Collection[str]) -> str:
    """Return the signature, with the schema if the search path does not have it (format_procedure)."""
    shown = signature(function)
    return shown if function.schema in path else f"{names.quote_ident(function.schema)}.{shown}"


def definition(function: UserFunction) -> str:
    """Return the text of pg_get_functiondef after the function's name."""
    text = f"({arguments(function)})\n"
    if function.kind == "f":
        text += f" RETURNS {result(function)}\n"
    text += f" LANGUAGE {_LANGUAGES[function.language]}\n"
    marks = _VOLATILITY.get(function.volatility, "") + _PARALLEL.get(function.parallel, "")
    marks += " STRICT" * function.strict + " SECURITY DEFINER" * function.security_definer + " LEAKPROOF" * function.leakproof
    marks += f" COST {function.cost:g}" if function.cost != 100 else ""
    marks += f" ROWS {function.rows:g}" if function.rows not in (0, 1000) else ""
    text += f"{marks}\n" if marks else ""
    for entry in function.config:
        name, _, value = entry.partition("=")
        parts = (names.split_identifiers(value) or [value]) if name in _LISTS else [value]
        text += f" SET {names.quote_ident(name)} TO {', '.join(names.quote_literal(part) for part in parts)}\n"
    mark = "$procedure$" if function.kind == "p" else "$function$"
    while mark in function.body:
        mark = mark[:-1] + "x$"
    return f"{text}AS {mark}{function.body}{mark}\n"
