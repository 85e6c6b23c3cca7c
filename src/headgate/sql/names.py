"""Names in SQL text: quoting as PostgreSQL's quote_identifier, lists of names, type names, roles.

Used to print names into SQL (deparse, COPY statements, messages) and to read them from parse trees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql.parser import position, unwrap
from headgate.types import registry
from headgate.types import typmod as modifiers

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")

# pg_get_keywords() of PostgreSQL 15 where catcode <> 'U': quote_identifier quotes these
KEYWORDS = frozenset(
    """
all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case cast char character
check coalesce collate collation column concurrently constraint create cross current_catalog current_date current_role
current_schema current_time current_timestamp current_user dec decimal default deferrable desc distinct do else end except exists
extract false fetch float for foreign freeze from full grant greatest group grouping having ilike in initially inner inout int
integer intersect interval into is isnull join lateral leading least left like limit localtime localtimestamp national natural
nchar none normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay placing position
precision primary real references returning right row select session_user setof similar smallint some substring symmetric table
tablesample then time timestamp to trailing treat trim true union unique user using values varchar variadic verbose when where
window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
""".split()
)


def quote_ident(name: str) -> str:
    """Return the name as an SQL identifier, quoted only if necessary."""
    if _PLAIN.match(name) and name not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    if "\\" in text:
        return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + text.replace("'", "''") + "'"


def qualified(schema: str | None, name: str) -> str:
    """Return schema.name, quoted if necessary."""
    return quote_ident(name) if not schema else f"{quote_ident(schema)}.{quote_ident(name)}"


def strings(nodes: Iterable[pb.Node]) -> list[str]:
    """Return the values of a list of String nodes, such as a column list or a qualified name."""
    return [unwrap(node).sval for node in nodes]


def split_name(nodes: Iterable[pb.Node], current_database: str | None = None) -> tuple[str | None, str]:
    """Return (schema, name) of a qualified name in String nodes. A third, leading part must be the name of the database."""
    parts = strings(nodes)
    if len(parts) == 3 and current_database is not None and parts[0] != current_database:
        raise PostgresError("0A000", f"cross-database references are not implemented: {'.'.join(parts)}")
    if len(parts) > 3:
        raise PostgresError("42601", f"improper qualified name (too many dotted names): {'.'.join(parts)}")
    return (parts[-2] if len(parts) > 1 else None, parts[-1])


def split_identifiers(text: str, separator: str = ",") -> list[str] | None:
    """Split a list as PostgreSQL's SplitIdentifierString: unquoted words are folded to lower case. Return None for invalid syntax."""
    rest = text.strip()
    names: list[str] = []
    if not rest:
        return names
    while True:
        match = re.match(rf'"((?:[^"]|"")*)"|([^{separator}"\s]+)', rest)
        if not match or (match[1] is not None and not match[1]):
            return None
        name = match[1].replace('""', '"') if match[1] is not None else match[2].lower()
        names.append(name.encode()[:63].decode(errors="ignore"))
        rest = rest[match.end() :].lstrip()
        if not rest:
            return names
        if rest[0] != separator:
            return None
        rest = rest[1:].lstrip()


def _integer_constant(node: pb.Node) -> int | None:
    inner = unwrap(node)
    return int(inner.ival.ival) if inner.DESCRIPTOR.name == "A_Const" and inner.HasField("ival") else None


def shown_type(node: pb.TypeName) -> str:
    """Return a TypeName as messages show it: the names joined by dots, `[]` after an array."""
    return ".".join(strings(node.names)) + ("[]" if node.array_bounds else "")


def type_name(node: pb.TypeName, types: registry.TypeRegistry | None = None) -> tuple[int, int]:
    """Return (oid, typmod) of a TypeName. Raise 42704 `type "x" does not exist` with the position, 22023 for an invalid modifier."""
    if node.type_oid and not node.names:
        return int(node.type_oid), int(node.typemod)
    known = types or registry.known()
    parts = strings(node.names)
    if len(parts) > 1:
        registry.check_schema(parts[-2], known)
    pg_type = known.find_name(parts[-1], parts[-2] if len(parts) > 1 else None)
    if node.setof or node.pct_type or pg_type is None:
        raise PostgresError("42704", f'type "{shown_type(node)}" does not exist', location=node.location)
    modifier = -1
    if node.typmods:
        values = [value for typmod_node in node.typmods if (value := _integer_constant(typmod_node)) is not None]
        if len(values) < len(node.typmods):
            raise PostgresError("42601", "type modifiers must be simple constants or identifiers", location=node.location)
        try:
            modifier = _modifier(pg_type, values)
        except PostgresError as error:
            error.position = position(node.location)
            raise
    if node.array_bounds:
        if pg_type.is_array:
            return pg_type.oid, modifier
        if not pg_type.array:
            raise PostgresError("42704", f'type "{shown_type(node)}" does not exist', location=node.location)
        return pg_type.array, modifier
    return pg_type.oid, modifier


def _modifier(pg_type: registry.PgType, values: list[int]) -> int:
    if pg_type.oid == registry.INTERVAL:  # the grammar puts the mask of fields first
        fields = modifiers.interval_fields(values[0] << 16)
        return modifiers.interval(fields, values[1] if len(values) > 1 else None)
    return modifiers.from_arguments(pg_type.oid, pg_type.name, values)


def role_name(node: pb.RoleSpec, user: str, session_user: str) -> str:
    """Return the role that a RoleSpec names. CURRENT_USER and similar are resolved; PUBLIC is rejected with 42704."""
    if node.roletype == pb.ROLESPEC_CSTRING:
        return str(node.rolename)
    if node.roletype in (pb.ROLESPEC_CURRENT_ROLE, pb.ROLESPEC_CURRENT_USER):
        return user
    if node.roletype == pb.ROLESPEC_SESSION_USER:
        return session_user
    raise PostgresError("42704", 'role "public" does not exist')
