"""Resolve the text of a reg… literal ('t'::regclass, 'int4'::regtype, to_regrole('r')) to an oid in the catalogs.

Called by `session_call` for the literals, casts and to_reg… functions of a query on system relations, and by commands that store a literal
(`named_object`). A number is the oid itself, and - is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.catalog import hold, namespace
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import relation
from headgate.catalog.session import SessionContext
from headgate.commands import lookup
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.node import Const
from headgate.sql.names import split_identifiers, strings, type_name
from headgate.sql.parser import parse_expression, position
from headgate.types import registry as t

_REGISTERS = {
    t.REGNAMESPACE: ("SELECT oid FROM hg.pg_namespace WHERE dbid IN (0, ?) AND nspname = ?", "3F000", 'schema "{}" does not exist'),
    t.REGROLE: ("SELECT oid FROM hg.pg_authid WHERE rolname = ?", "42704", 'role "{}" does not exist'),
    2202: ("SELECT oid FROM hg.pg_proc WHERE dbid IN (0, ?) AND proname = ?", "42883", 'function "{}" does not exist'),
    2203: ("SELECT oid FROM hg.pg_operator WHERE dbid IN (0, ?) AND oprname = ?", "42883", "operator does not exist: {}"),
    2204: ("SELECT oid FROM hg.pg_operator WHERE dbid IN (0, ?) AND oprname = ?", "42883", "operator does not exist: {}"),
    3734: (
        "SELECT oid FROM hg.pg_ts_config WHERE dbid IN (0, ?) AND cfgname = ?",
        "42704",
        'text search configuration "{}" does not exist',
    ),
    3769: ("SELECT oid FROM hg.pg_ts_dict WHERE dbid IN (0, ?) AND dictname = ?", "42704", 'text search dictionary "{}" does not exist'),
    4191: ("SELECT oid FROM hg.pg_collation WHERE dbid IN (0, ?) AND collname = ?", "42704", 'collation "{}" does not exist'),
}


_SIGNED = frozenset({2202, 2203, 2204})
"""regprocedure, regoper, regoperator: their texts may contain more than identifiers."""


def resolve(cursor: Cursor, context: SessionContext, schemas: Callable[[], Iterable[str]], text: str, kind: int, where: int | None) -> int:
    """Return the oid for the text of a reg… literal. `schemas` returns the search path.

    Raise 42P01, 42704, 42883 or 3F000 if it does not exist, and 42501 for a relation or type in a schema that the user may not use.
    """
    database, word = context.database, text.strip()
    if word.isdigit():
        return int(word)
    if word == "-":
        return 0
    if (oid := t.referenced(word.removesuffix("[]"))) is not None:
        return t.known().by_oid(oid).array if word.endswith("[]") else oid
    if kind == t.REGTYPE:
        return _resolve_type(cursor, context, schemas(), word, where)
    parts = _split(word, where) if kind in _SIGNED else _identifiers(word, where)
    schema, name = (parts[-2] if len(parts) > 1 else None), parts[-1]
    if kind == t.REGCLASS:
        _check_database(context, parts, where)
        _check_schema(cursor, context, schema, where)
        if schema is not None and schema != context.temp_schema:
            namespace.check_use(cursor, context.user, database, schema)
        oid = relation.find_oid(cursor, database, schema, name, schemas())
        if oid is None:
            raise PostgresError("42P01", f'relation "{".".join(parts)}" does not exist', position=where)
        return oid
    if kind == t.REGPROC:
        return _resolve_function(cursor, database, [schema] if schema is not None else ["pg_catalog", *schemas()], name, word, where)
    sql, code, label = _REGISTERS[kind]
    oids = rows(cursor, sql, [name] if sql.count("?") == 1 else [database, name])
    if not oids:
        raise PostgresError(code, label.format(name), position=where)
    return int(oids[0][0])


def _resolve_function(cursor: Cursor, database: int, path: Iterable[str], name: str, word: str, where: int | None) -> int:
    """Return the function with a name in one of the schemas. Raise 42883 if there is none, 42725 if there are several."""
    sql = (
        "SELECT n.nspname, p.oid FROM hg.pg_proc p JOIN hg.pg_namespace n ON n.oid = p.pronamespace AND n.dbid IN (0, ?)"
        " WHERE p.dbid IN (0, ?) AND p.proname = ?"
    )
    schemas = set(path)
    oids = [oid for schema, oid in rows(cursor, sql, [database, database, name]) if schema in schemas]
    if not oids:
        raise PostgresError("42883", f'function "{word}" does not exist', position=where)
    if len(oids) > 1:
        raise PostgresError("42725", f'more than one function named "{word}"', position=where)
    return int(oids[0])


_CATALOGS = {t.REGCLASS: "pg_class", t.REGNAMESPACE: "pg_namespace", t.REGPROC: "pg_proc", t.REGTYPE: "pg_type"}


def stored_text(session: Session, constant: Const) -> str:
    """Return the text of a constant in the catalog: a reference to a user's object, which is held, or else its name.

    Raise the errors of `resolve`, and 0A000 for a role, on which nothing may depend.
    """
    text, kind = str(constant.value), constant.type.oid
    if t.referenced(text.removesuffix("[]")) is not None:
        return text
    cursor, context = session.begin_statement().cursor, session.context
    oid = resolve(cursor, context, lambda: lookup.search_path(cursor, context), text, kind, position(constant.location))
    if kind == t.REGROLE:
        raise PostgresError("0A000", "constant of the type regrole cannot be used here")
    catalog = _CATALOGS[kind]
    if kind == t.REGTYPE and (known := t.known().find(oid)) is not None:
        hold.use(cursor, catalog, known.element if known.is_array else oid)
        return t.known().stored_name(oid)
    if hold.is_pinned(catalog, oid) or not rows(
        cursor, f"SELECT 1 FROM hg.{catalog} WHERE dbid IN (0, ?) AND oid = ?", [context.database, oid]
    ):
        return text
    hold.use(cursor, catalog, oid)
    return t.reference(oid)


def _check_database(context: SessionContext, parts: list[str], where: int | None) -> None:
    """Raise 0A000 for another database, and 42601 for too many names (makeRangeVarFromNameList)."""
    shown = ".".join(parts)
    if len(parts) > 3:
        raise PostgresError("42601", f"improper relation name (too many dotted names): {shown}", position=where)
    if len(parts) == 3 and parts[0] != context.database_name:
        raise PostgresError("0A000", f'cross-database references are not implemented: "{shown}"', position=where)


def _check_schema(cursor: Cursor, context: SessionContext, schema: str | None, where: int | None) -> None:
    """Raise 3F000 if the schema does not exist."""
    if schema is None or schema == context.temp_schema:
        return
    if not rows(cursor, "SELECT 1 FROM hg.pg_namespace WHERE dbid IN (0, ?) AND nspname = ?", [context.database, schema]):
        raise PostgresError("3F000", f'schema "{schema}" does not exist', position=where)


def _resolve_type(cursor: Cursor, context: SessionContext, path: Iterable[str], word: str, where: int | None) -> int:
    builtin_type = t.builtin().find_name(
        word.removeprefix("pg_catalog.").strip('"') if not word.startswith('"') or word.count('"') == 2 else word
    )
    if builtin_type is not None:
        return builtin_type.oid
    oid_found = _named_type(cursor, context, path, word, where)
    if oid_found is None:
        try:
            cast = parse_expression(f"NULL::{word}")
            if cast.DESCRIPTOR.name == "TypeCast" and (oid := type_name(cast.type_name)[0]) < t.FIRST_USER_OID:
                return oid  # "numeric(8,2)", "timestamp with time zone"
        except PostgresError:
            pass
        raise PostgresError("42704", f'type "{word}" does not exist', position=where)
    return oid_found


def _named_type(cursor: Cursor, context: SessionContext, path: Iterable[str], word: str, where: int | None) -> int | None:
    """Return the type with a plain name, or None if it does not exist or the text is more than a name."""
    try:
        parts = _split(word.removesuffix("[]"), where)
    except PostgresError:
        return None
    column = "typarray" if word.endswith("[]") else "oid"
    sql = (
        f"SELECT n.nspname, t.{column} FROM hg.pg_type t JOIN hg.pg_namespace n ON n.oid = t.typnamespace AND n.dbid IN (0, ?)"
        " WHERE t.dbid IN (0, ?) AND t.typname = ?"
    )
    by_schema = dict(rows(cursor, sql, [context.database, context.database, parts[-1]]))
    if len(parts) > 1 and parts[-2] != context.temp_schema:
        _check_schema(cursor, context, parts[-2], where)
        namespace.check_use(cursor, context.user, context.database, parts[-2])
    searched = [parts[-2]] if len(parts) > 1 else ["pg_catalog", *path]
    return next((by_schema[schema] for schema in searched if schema in by_schema), None)


def _identifiers(text: str, where: int | None) -> list[str]:
    """Split a qualified name (stringToQualifiedNameList). Raise 42602 if it is invalid."""
    identifiers = split_identifiers(text, ".")
    if not identifiers:
        raise PostgresError("42602", "invalid name syntax", position=where)
    return identifiers


def _split(text: str, where: int | None) -> list[str]:
    try:
        node = parse_expression(text)
        if node.DESCRIPTOR.name == "ColumnRef":
            return strings(node.fields)
        if node.DESCRIPTOR.name == "FuncCall":
            return strings(node.funcname)
    except PostgresError:
        pass
    if text.replace("_", "").replace(".", "").isalnum():
        return text.lower().split(".")
    if text and not any(char.isalnum() for char in text):
        return [text]
    raise PostgresError("42602", "invalid name syntax", position=where)
