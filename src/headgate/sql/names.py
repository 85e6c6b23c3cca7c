"""Names in SQL text: quoting as PostgreSQL's quote_identifier does it, lists of names, type names, roles.

Used wherever a name is printed into SQL (deparse, COPY statements, messages) or read out of a parse tree.
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
    """The name as it must stand in SQL: in quotes only if it needs them."""
    if _PLAIN.match(name) and name not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """The text as a string literal."""
    if "\\" in text:
        return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + text.replace("'", "''") + "'"


def qualified(schema: str | None, name: str) -> str:
    """schema.name, quoted where necessary."""
    return quote_ident(name) if not schema else f"{quote_ident(schema)}.{quote_ident(name)}"


def strings(nodes: Iterable[pb.Node]) -> list[str]:
    """The values of a list of String nodes, as of a column list or a qualified name."""
    return [unwrap(node).sval for node in nodes]


def split_name(nodes: Iterable[pb.Node], current_database: str | None = None) -> tuple[str | None, str]:
    """(schema, name) of a qualified name given as String nodes; a third, leading part must be the database's name."""
    parts = strings(nodes)
    if len(parts) == 3 and current_database is not None and parts[0] != current_database:
        raise PostgresError("0A000", f"cross-database references are not implemented: {'.'.join(parts)}")
    if len(parts) > 3:
        raise PostgresError("42601", f"improper qualified name (too many dotted names): {'.'.join(parts)}")
    return (parts[-2] if len(parts) > 1 else None, parts[-1])


def split_identifiers(text: str, separator: str = ",") -> list[str] | None:
    """PostgreSQL's SplitIdentifierString: unquoted words are down-cased, None where the syntax is wrong."""
    rest = text.strip()
    names: list[str] = []
    if not rest:
        return names
    while True:
        found = re.match(rf'"((?:[^"]|"")*)"|([^{separator}"\s]+)', rest)
        if not found or (found[1] is not None and not found[1]):
            return None
        name = found[1].replace('""', '"') if found[1] is not None else found[2].lower()
        names.append(name.encode()[:63].decode(errors="ignore"))
        rest = rest[found.end() :].lstrip()
        if not rest:
            return names
        if rest[0] != separator:
            return None
        rest = rest[1:].lstrip()


def _constant(node: pb.Node) -> int | None:
    inner = unwrap(node)
    return int(inner.ival.ival) if inner.DESCRIPTOR.name == "A_Const" and inner.HasField("ival") else None


def shown_type(node: pb.TypeName) -> str:
    """A TypeName as messages show it: the names joined by dots, `[]` behind an array."""
    return ".".join(strings(node.names)) + ("[]" if node.array_bounds else "")


def type_name(node: pb.TypeName, types: registry.TypeRegistry | None = None) -> tuple[int, int]:
    """(oid, typmod) of a TypeName; raises 42704 `type "x" does not exist` with the position, 22023 for a bad modifier."""
    if node.type_oid and not node.names:
        return int(node.type_oid), int(node.typemod)
    known = types or registry.known()
    parts = strings(node.names)
    if len(parts) > 1:
        registry.check_schema(parts[-2], known)
    found = known.find_name(parts[-1], parts[-2] if len(parts) > 1 else None)
    if node.setof or node.pct_type or found is None:
        raise PostgresError("42704", f'type "{shown_type(node)}" does not exist', position=position(node.location))
    modifier = -1
    if node.typmods:
        values = [value for each in node.typmods if (value := _constant(each)) is not None]
        if len(values) < len(node.typmods):
            raise PostgresError("42601", "type modifiers must be simple constants or identifiers", position=position(node.location))
        try:
            modifier = _modifier(found, values)
        except PostgresError as error:
            error.position = position(node.location)
            raise
    if node.array_bounds:
        if found.is_array:
            return found.oid, modifier
        if not found.array:
            raise PostgresError("42704", f'type "{shown_type(node)}" does not exist', position=position(node.location))
        return found.array, modifier
    return found.oid, modifier


def _modifier(found: registry.PgType, values: list[int]) -> int:
    if found.oid == registry.INTERVAL:  # the grammar gives the mask of fields first
        fields = modifiers.interval_fields(values[0] << 16)
        return modifiers.interval(fields, values[1] if len(values) > 1 else None)
    return modifiers.from_arguments(found.oid, found.name, values)


def role_name(node: pb.RoleSpec, user: str, session_user: str) -> str:
    """The role that a RoleSpec names: CURRENT_USER and its like are resolved, PUBLIC is refused."""
    if node.roletype == pb.ROLESPEC_CSTRING:
        return str(node.rolename)
    if node.roletype in (pb.ROLESPEC_CURRENT_ROLE, pb.ROLESPEC_CURRENT_USER):
        return user
    if node.roletype == pb.ROLESPEC_SESSION_USER:
        return session_user
    raise PostgresError("42704", 'role "public" does not exist')
