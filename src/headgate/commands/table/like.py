"""CREATE TABLE … (LIKE t INCLUDING …): replace the clause by the column definitions and constraints that it stands for.

Called by CREATE TABLE before the elements are read (expandTableLikeClause in parse_utilcmd.c). Indexes and comments become statements
that are executed after the table has been created.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog.physical import one, rows
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse, position, unwrap
from headgate.types import registry

_SOURCES = TABLE_KINDS | {RelationKind.VIEW, RelationKind.MATERIALIZED_VIEW, RelationKind.FOREIGN_TABLE, RelationKind.COMPOSITE_TYPE}
"""Kinds of relations that LIKE accepts as a source."""
COMMENTS, CONSTRAINTS, DEFAULTS, GENERATED, IDENTITY, INDEXES = 1 << 0, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6
"""Bits of TableLikeClause.options (CREATE_TABLE_LIKE_*)."""


def expand(node: pb.CreateStmt, session: Session) -> tuple[pb.CreateStmt, list[str]]:
    """Return (the statement without LIKE, the statements to execute after it). A statement without LIKE is returned unchanged."""
    if not any(unwrap(element_node).DESCRIPTOR.name == "TableLikeClause" for element_node in node.table_elts):
        return node, []
    expanded = pb.CreateStmt()
    expanded.CopyFrom(node)
    del expanded.table_elts[:]
    later: list[str] = []
    for item in node.table_elts:
        element = unwrap(item)
        if element.DESCRIPTOR.name != "TableLikeClause":
            expanded.table_elts.add().CopyFrom(item)
            continue
        [parsed] = parse(f"CREATE TABLE x ({', '.join(_elements(element, session, node.relation, later))})")
        for element_node in parsed.node.table_elts:
            expanded.table_elts.add().CopyFrom(element_node)
    return expanded, later


def _elements(clause: pb.TableLikeClause, session: Session, target: ParseNode, later: list[str]) -> list[str]:
    cursor, context = session.begin_statement().cursor, session.context
    source = lookup.source(cursor, context, clause.relation)
    hold.use(cursor, "pg_class", source.oid)
    if source.kind not in _SOURCES:
        raise PostgresError(
            "42809",
            f'relation "{source.name}" is invalid in LIKE clause',
            detail=f"This operation is not supported for {lookup.PLURALS[source.kind]}.",
            position=position(clause.relation.location),
        )
    privilege.check_columns(cursor, context.user, source, "SELECT", [column.attnum for column in source.columns])
    options = clause.options
    elements = [_column(session, source, column, options) for column in source.columns]
    if options & CONSTRAINTS:
        elements += [
            f"CONSTRAINT {names.quote_ident(check.name)} CHECK ({check.expression}){' NO INHERIT' if check.no_inherit else ''}"
            for check in source.checks
        ]
    if options & INDEXES:
        elements += _keys(source)
        later += _indexes(session, source, target)
    if options & COMMENTS:
        later += _comments(session, source, target)
    return elements


def _column(session: Session, source: Relation, column: Column, options: int) -> str:
    cursor = session.begin_statement().cursor
    brackets = "[]" * (column.dimensions - 1)  # more than one pair means how an array is stored (array_storage)
    text = f"{names.quote_ident(column.name)} {registry.known().format_type(column.type_oid, column.typmod)}{brackets}"
    if column.not_null:
        text += " NOT NULL"
    if column.generated is not None and options & GENERATED:
        text += f" GENERATED ALWAYS AS ({column.generated}) STORED"
    elif column.default is not None and options & DEFAULTS:
        text += f" DEFAULT {column.default}"
    if column.identity and options & IDENTITY:
        sequence_row = one(
            cursor,
            "SELECT s.seqstart, s.seqincrement, s.seqmin, s.seqmax FROM hg.pg_depend d JOIN hg.pg_sequence s ON s.seqrelid = d.objid"
            " AND s.dbid = d.dbid WHERE d.dbid = ? AND d.refobjid = ? AND d.refobjsubid = ? AND d.deptype = 'i'",
            [source.database, source.oid, column.attnum],
        )
        word = "ALWAYS" if column.identity == "a" else "BY DEFAULT"
        text += f" GENERATED {word} AS IDENTITY"
        if sequence_row is not None:
            start, increment, minimum, maximum = sequence_row
            text += f" (START WITH {start} INCREMENT BY {increment} MINVALUE {minimum} MAXVALUE {maximum})"
    return text


def _keys(source: Relation) -> list[str]:
    keys = []
    for index in source.indexes:
        if not index.constraint:
            continue
        word = "PRIMARY KEY" if index.primary else "UNIQUE NULLS NOT DISTINCT" if index.nulls_not_distinct else "UNIQUE"
        text = f"{word} ({_column_list(source, index.attnums)})"
        text += f" INCLUDE ({_column_list(source, index.included)})" if index.included else ""
        keys.append(text + (" DEFERRABLE" if index.deferrable else ""))
    return keys


def _column_list(source: Relation, attnums: tuple[int, ...]) -> str:
    return ", ".join(names.quote_ident(column.name) for attnum in attnums if (column := source.numbered(attnum)))


def _indexes(session: Session, source: Relation, target: pb.RangeVar) -> list[str]:
    cursor = session.begin_statement().cursor
    statements = []
    for index in source.indexes:
        if index.constraint:
            continue
        row = one(
            cursor,
            "SELECT i.indkeytext, i.indincludetext, i.indpred, i.indnullsnotdistinct, m.amname FROM hg.pg_index i JOIN hg.pg_class c"
            " ON c.oid = i.indexrelid AND c.dbid = i.dbid LEFT JOIN hg.pg_am m ON m.oid = c.relam WHERE i.dbid = ? AND i.indexrelid = ?",
            [source.database, index.oid],
        )
        assert row is not None
        key, included, predicate, nulls, method = row
        table = names.qualified(target.schemaname or None, target.relname)
        text = f"CREATE {'UNIQUE ' if index.unique else ''}INDEX ON {table} USING {method or 'btree'} ({key})"
        text += f" INCLUDE ({included})" if included else ""
        text += " NULLS NOT DISTINCT" if nulls else ""
        statements.append(text + (f" WHERE {predicate}" if predicate else ""))
    return statements


def _comments(session: Session, source: Relation, target: pb.RangeVar) -> list[str]:
    cursor = session.begin_statement().cursor
    statements = []
    for attnum, text in rows(
        cursor,
        "SELECT objsubid, description FROM hg.pg_description WHERE dbid = ? AND objoid = ? AND classoid = 1259 AND objsubid > 0",
        [source.database, source.oid],
    ):
        column = source.numbered(attnum)
        if column is not None:
            name = f"{names.qualified(target.schemaname or None, target.relname)}.{names.quote_ident(column.name)}"
            statements.append(f"COMMENT ON COLUMN {name} IS {names.quote_literal(text)}")
    return statements
