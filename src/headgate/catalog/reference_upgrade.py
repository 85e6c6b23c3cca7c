"""Replace the names of users' objects in the texts of a catalog of format 4 by references (`registry.reference`).

Called by `upgrade`. In format 4, a name without a schema meant a built-in object, or the oldest of the users' objects with that name. In a
constant of type regclass, it meant a relation in the schema public.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from headgate.catalog.function import SEPARATOR
from headgate.catalog.physical import Cursor, rows, run
from headgate.catalog.stored_text import Texts, rewrite
from headgate.errors import PostgresError
from headgate.sql.names import quote_ident, split_identifiers, strings
from headgate.sql.parser import ParseNode, parse, unwrap, walk
from headgate.types.registry import reference

_IDENTIFIER = r'(?:"(?:[^"]|"")*"|[^\W\d][\w$]*)'
_NAME = re.compile(rf"'(?:[^']|'')*'|{_IDENTIFIER}(?:\.{_IDENTIFIER})*")
_EXPRESSIONS: tuple[Texts, ...] = (
    ("pg_attrdef", "oid", ("adbin", "adbinpretty")),
    ("pg_constraint", "oid", ("conbin", "conbinpretty")),
    ("pg_index", "indexrelid", ("indexprs", "indexprlist", "indpred", "indpredpretty")),
    ("pg_policy", "oid", ("polqual", "polwithcheck")),
    ("pg_trigger", "oid", ("tgqual", "tgqualpretty")),
    ("pg_type", "oid", ("typdefaultbin",)),
    ("pg_class", "oid", ("relpartconstraint",)),
    ("pg_proc", "oid", ("proargdefaults",)),
)
"""Catalogs with expressions: the name, the key, and the columns with texts."""


def refer(cursor: Cursor) -> None:
    """Write the texts of all databases with references. Of a view's texts, those that had other names are dropped."""
    for (database,) in rows(cursor, "SELECT oid FROM hg.pg_database"):
        names = _Names.read(cursor, database)
        for texts_of in _EXPRESSIONS:
            rewrite(cursor, database, texts_of, names.in_expressions)
        run(cursor, "UPDATE hg.pg_rewrite SET ev_action = ev_query WHERE dbid = ? AND ev_query IS NOT NULL", [database])
        rewrite(cursor, database, ("pg_rewrite", "oid", ("ev_action", "ev_pretty")), names.in_statement)
        _rewrite_functions(cursor, database, names)
    for column in ("ev_query", "ev_qualified"):
        run(cursor, f"ALTER TABLE hg.pg_rewrite DROP COLUMN IF EXISTS {column}")


def _rewrite_functions(cursor: Cursor, database: int, names: _Names) -> None:
    """Write the printed parts of functions, and remove the name at the beginning of their definitions."""
    sql = (
        "SELECT p.oid, n.nspname, p.proname, p.proargumentstext, p.proidentitytext, p.proresulttext, p.prodef FROM hg.pg_proc p"
        " JOIN hg.pg_namespace n ON n.oid = p.pronamespace AND n.dbid IN (0, p.dbid) WHERE p.dbid = ? AND p.prodef IS NOT NULL"
    )
    for oid, schema, name, arguments, identity, result, definition in rows(cursor, sql, [database]):
        end = " LANGUAGE sql AS ''"
        changed = [
            names.in_statement(arguments, "CREATE PROCEDURE x(", f"){end}"),
            names.in_statement(identity, "CREATE PROCEDURE x(", f"){end}"),
            result and names.in_statement(result, "CREATE FUNCTION x() RETURNS ", end),
            names.in_statement(definition).split(f"{quote_ident(schema)}.{quote_ident(name)}", 1)[1],
        ]
        columns = "proargumentstext = ?, proidentitytext = ?, proresulttext = ?, prodef = ?"
        run(cursor, f"UPDATE hg.pg_proc SET {columns} WHERE dbid = ? AND oid = ?", [*changed, database, oid])


@dataclass(frozen=True)
class _Names:
    """The names of a database: those of built-in types and functions, and the users' objects with their schemas and oids, the oldest first.

    A function has the least and the greatest number of arguments of its calls.
    """

    builtin_types: frozenset[str]
    builtin_functions: frozenset[str]
    types: dict[str, list[tuple[str, int]]]
    relations: dict[str, dict[str, int]]
    functions: dict[str, list[tuple[str, int, int, int]]]

    @classmethod
    def read(cls, cursor: Cursor, database: int) -> _Names:
        """Read the names of a database."""

        def joined(columns: str, catalog: str, schema: str) -> list[tuple[Any, ...]]:
            sql = f"SELECT {columns} FROM hg.{catalog} o JOIN hg.pg_namespace n ON n.oid = o.{schema} AND n.dbid IN (0, o.dbid)"
            return rows(cursor, f"{sql} WHERE o.dbid = ? ORDER BY o.oid", [database])

        types: dict[str, list[tuple[str, int]]] = {}
        for name, schema, oid in joined("o.typname, n.nspname, o.oid", "pg_type", "typnamespace"):
            types.setdefault(name, []).append((schema, oid))
        relations: dict[str, dict[str, int]] = {}
        for name, schema, oid in joined("o.relname, n.nspname, o.oid", "pg_class", "relnamespace"):
            relations.setdefault(name, {})[schema] = oid
        functions: dict[str, list[tuple[str, int, int, int]]] = {}
        columns = "o.proname, n.nspname, o.oid, o.pronargs, o.pronargdefaults, o.provariadic"
        for name, schema, oid, count, defaults, variadic in joined(columns, "pg_proc", "pronamespace"):
            most = 1000 if variadic else count
            functions.setdefault(name, []).append((schema, oid, count - defaults - bool(variadic), most))
        builtin_types = frozenset(name for (name,) in rows(cursor, "SELECT typname FROM hg.pg_type WHERE dbid = 0"))
        builtin_functions = frozenset(name for (name,) in rows(cursor, "SELECT proname FROM hg.pg_proc WHERE dbid = 0"))
        return cls(builtin_types, builtin_functions, types, relations, functions)

    def in_expressions(self, text: str) -> str:
        """Return expressions, separated by commas, with references."""
        return SEPARATOR.join(self.in_statement(part, "SELECT ") for part in text.split(SEPARATOR))

    def in_statement(self, text: str, before: str = "", after: str = "") -> str:
        """Return a text with references, or unchanged if it is not a statement together with the texts around it."""
        try:
            tree = parse(before + text + after)[0].node
        except PostgresError:
            return text
        statement = before + text
        queries = {node.ctename for node in walk(tree) if node.DESCRIPTOR.name == "CommonTableExpr"}
        classes = {unwrap(node.arg).location for node in walk(tree) if _is_class(node)}
        for node in sorted(walk(tree), key=lambda node: -getattr(node, "location", -1)):
            name = self._reference(node, queries, classes)
            span = None if name is None else _NAME.match(statement, node.location)
            if name is not None and span is not None and span.start() >= len(before):
                statement = statement[: span.start()] + name + statement[span.end() :]
        return statement.removeprefix(before)

    def _reference(self, node: ParseNode, queries: AbstractSet[str], classes: AbstractSet[int]) -> str | None:
        """Return the name to write for the user's object that a node names, or None for any other node.

        `queries`: the names in WITH. `classes`: the locations of constants of type regclass.
        """
        if node.DESCRIPTOR.name == "RangeVar":
            is_query = not node.schemaname and node.relname in queries
            oid = None if is_query else self.relations.get(node.relname, {}).get(node.schemaname or "public")
            return None if oid is None else reference(oid)
        if node.DESCRIPTOR.name == "A_Const":
            *schema, name = split_identifiers(node.sval.sval, ".") or [""] if node.location in classes else [""]
            oid = self.relations.get(name, {}).get(schema[-1] if schema else "public")
            return None if oid is None else f"'{reference(oid)}'"
        if node.DESCRIPTOR.name == "TypeName":
            *schema, name = strings(node.names)
            fitting = [oid for own, oid in self.types.get(name, ()) if [own] == schema or (not schema and name not in self.builtin_types)]
            return reference(fitting[0]) if fitting else None
        if node.DESCRIPTOR.name != "FuncCall":
            return None
        *schema, name = strings(node.funcname)
        named = [function for function in self.functions.get(name, ()) if [function[0]] == schema or not schema]
        called = [function for function in named if function[2] <= len(node.args) <= function[3]]
        if not called or (not schema and name in self.builtin_functions):
            return None
        return reference(called[0][1]) if len(called) == 1 else f"{quote_ident(called[0][0])}.{quote_ident(name)}"


def _is_class(node: ParseNode) -> bool:
    """Return whether a node is a constant of type regclass."""
    is_cast = node.DESCRIPTOR.name == "TypeCast" and unwrap(node.arg).DESCRIPTOR.name == "A_Const"
    return is_cast and strings(node.type_name.names)[-1] == "regclass"
