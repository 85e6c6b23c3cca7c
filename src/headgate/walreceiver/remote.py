"""A subscriber's queries to a publisher: publications, tables, columns, filters. They are the queries that PostgreSQL 15 sends.

PostgreSQL has them in fetch_remote_table_info (tablesync.c) and fetch_table_list (subscriptioncmds.c). Used by CREATE and ALTER
SUBSCRIPTION (`missing_publications`, `published_tables`) and by the table sync (`fetch_relation`, `copy_command`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.sql.names import qualified, quote_ident
from headgate.types import registry
from headgate.walreceiver import answer
from headgate.walreceiver.connection import PublisherConnection, literal, prefixed
from headgate.walreceiver.link import Row


@dataclass(frozen=True)
class PublishedTable:
    """A table in the publications of a subscription. `columns` is None if the publisher does not support column lists."""

    schema: str
    name: str
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RemoteColumn:
    """A published column. `key`: part of the replica identity."""

    attnum: int
    name: str
    type_oid: int
    typmod: int
    key: bool
    generated: bool = False


@dataclass(frozen=True)
class RemoteRelation:
    """A table as the publisher describes it for the initial copy. `filters` is empty if a publication has no filter.

    `key`: the names of the columns of its replica identity, also of those that are not published.
    """

    oid: int
    schema: str
    name: str
    replica_identity: str
    kind: str
    columns: tuple[RemoteColumn, ...]
    filters: tuple[str, ...] = ()
    key: frozenset[str] = frozenset()


def missing_publications(connection: PublisherConnection, publications: Sequence[str]) -> list[str]:
    """Return the given names that do not exist on the publisher, in their order."""
    listed = _list(publications)
    try:
        rows = connection.query(f"SELECT t.pubname FROM\n pg_catalog.pg_publication t WHERE\n t.pubname IN ({listed})", 1)
    except PostgresError as error:
        raise prefixed(error, "XX000", "could not receive list of publications from the publisher") from error
    existing = {row[0] for row in rows}
    return [name for name in publications if name not in existing]


def missing_text(names: Sequence[str]) -> str:
    """Return the warning about publications that do not exist (42704)."""
    shown = ", ".join(f'"{name}"' for name in names)
    return (
        f"publication {shown} does not exist on the publisher" if len(names) == 1 else f"publications {shown} do not exist on the publisher"
    )


def published_tables(connection: PublisherConnection, publications: Sequence[str]) -> list[PublishedTable]:
    """Return the tables of the publications. Raise 0A000 if two publications have different column lists for a table."""
    has_lists = connection.server_version >= 150000
    columns = "\n, t.attnames" if has_lists else ""
    sql = (
        f"SELECT DISTINCT t.schemaname, t.tablename {columns}\nFROM pg_catalog.pg_publication_tables t\n"
        f" WHERE t.pubname IN ({_list(publications)})"
    )
    try:
        rows = connection.query(sql, 3 if has_lists else 2)
    except PostgresError as error:
        raise prefixed(error, "08006", "could not receive list of replicated tables from the publisher") from error
    tables: dict[tuple[str, str], PublishedTable] = {}
    for row in rows:
        schema, name = str(row[0]), str(row[1])
        if (schema, name) in tables:
            text = f'cannot use different column lists for table "{schema}.{name}" in different publications'
            raise PostgresError("0A000", text)
        attnames = row[2] if has_lists else None
        tables[schema, name] = PublishedTable(schema, name, None if attnames is None else array_elements(attnames))
    covered = _covered(connection, set(tables)) if connection.is_node and len(tables) > 1 else set()
    return [table for name, table in tables.items() if name not in covered]


def written_by_subscriptions(
    connection: PublisherConnection, publications: Sequence[str], without: Collection[tuple[str, str]]
) -> list[str]:
    """Return the publications with a table into which a subscription of the publisher writes. `without`: tables that do not count."""
    tree = "" if connection.is_node else (
        " OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(s.srrelid)"
        " UNION SELECT relid FROM pg_catalog.pg_partition_tree(s.srrelid))"
    )  # fmt: skip
    sql = (
        "SELECT DISTINCT t.pubname, t.schemaname, t.tablename FROM pg_catalog.pg_publication_tables t"
        " JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname"
        " JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename"
        f" JOIN pg_catalog.pg_subscription_rel s ON s.srrelid = c.oid{tree} WHERE t.pubname IN ({_list(publications)})"
    )
    rows = _query(connection, sql, "could not receive list of replicated tables from the publisher", 3)
    return sorted({str(name) for name, schema, table in rows if (schema, table) not in without})


def _covered(connection: PublisherConnection, listed: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the partitions whose ancestor is also listed and includes their rows. A node omits them, as PostgreSQL does from 16 on."""
    rows = _query(
        connection,
        "SELECT n.nspname, c.relname, pn.nspname, p.relname FROM pg_catalog.pg_inherits i"
        " JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_class p ON p.oid = i.inhparent"
        " JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace",
        "could not receive list of replicated tables from the publisher",
        4,
    )
    parents = {(str(row[0]), str(row[1])): (str(row[2]), str(row[3])) for row in rows}
    covered = set()
    for table in listed:
        ancestor = parents.get(table)
        while ancestor is not None and ancestor not in listed:
            ancestor = parents.get(ancestor)
        if ancestor is not None:
            covered.add(table)
    return covered


def fetch_relation(connection: PublisherConnection, schema: str, name: str, publications: Sequence[str]) -> RemoteRelation:
    """Read a table with its published columns and filters, inside the transaction of the copy."""
    shown = f"{schema}.{name}"
    about = f'could not fetch table info for table "{shown}" from publisher'
    tables = _query(
        connection,
        "SELECT c.oid, c.relreplident, c.relkind  FROM pg_catalog.pg_class c  INNER JOIN pg_catalog.pg_namespace n"
        f"        ON (c.relnamespace = n.oid) WHERE n.nspname = {literal(schema)}   AND c.relname = {literal(name)}",
        about,
        3,
    )
    if not tables:
        raise PostgresError("42704", f'table "{shown}" not found on publisher')
    oid, identity, kind = answer.number(tables[0][0]), str(tables[0][1]), str(tables[0][2])
    included = _column_list(connection, shown, oid, publications)
    generated = ", a.attgenerated != ''" if connection.server_version >= 180000 else ""
    not_generated = "AND a.attgenerated = ''" if 120000 <= connection.server_version < 180000 else ""
    rows = _query(
        connection,
        f"SELECT a.attnum,       a.attname,       a.atttypid,       a.atttypmod, a.attnum = ANY(i.indkey){generated}"
        "  FROM pg_catalog.pg_attribute a"
        f"  LEFT JOIN pg_catalog.pg_index i       ON (i.indexrelid = pg_get_replica_identity_index({oid}))"
        " WHERE a.attnum > 0::pg_catalog.int2   AND NOT a.attisdropped "
        f"{not_generated}   AND a.attrelid = {oid} ORDER BY a.attnum",
        about,
        6 if generated else 5,
    )
    columns = tuple(
        RemoteColumn(
            answer.attnum(row[0]), str(row[1]), answer.number(row[2]), answer.number(row[3], least=-1, most=2**31 - 1),
            row[4] == "t", "t" in row[5:]
        )
        for row in rows
    )  # fmt: skip
    key = frozenset(column.name for column in columns if column.key)
    published = tuple(column for column in columns if included is None or column.attnum in included)
    return RemoteRelation(oid, schema, name, identity, kind, published, _filters(connection, shown, oid, publications), key)


def _column_list(connection: PublisherConnection, shown: str, oid: int, publications: Sequence[str]) -> frozenset[int] | None:
    if connection.server_version < 150000:
        return None
    rows = _query(
        connection,
        "SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)"
        "  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c"
        f" WHERE gpt.relid = {oid} AND c.oid = gpt.relid   AND p.pubname IN ( {_list(publications)} )",
        f'could not fetch column list info for table "{shown}" from publisher',
        1,
    )
    if len(rows) > 1:
        raise PostgresError("0A000", f'cannot use different column lists for table "{shown}" in different publications')
    if not rows or rows[0][0] is None:
        return None
    return frozenset(answer.attnum(number) for number in re.findall(r"\d+", rows[0][0]))


def _filters(connection: PublisherConnection, shown: str, oid: int, publications: Sequence[str]) -> tuple[str, ...]:
    if connection.server_version < 150000:
        return ()
    rows = _query(
        connection,
        "SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt"
        f" WHERE gpt.relid = {oid}   AND p.pubname IN ( {_list(publications)} )",
        f'could not fetch table WHERE clause info for table "{shown}" from publisher',
        1,
    )
    filters = [row[0] for row in rows]
    return () if None in filters else tuple(str(text) for text in filters)


_NO_CAST = frozenset({registry.BOOL, registry.CHAR, registry.BPCHAR, registry.XML, registry.INET, registry.CIDR})
"""The built-in types whose cast to text differs from their output function."""


def as_text(column: str, type_oid: int) -> str:
    """Return an expression for a column's text form according to its type's output function.

    It uses num_nulls, because a composite value of NULLs also satisfies IS NULL.
    """
    name = quote_ident(column)
    if type_oid < registry.FIRST_USER_OID and type_oid not in _NO_CAST:
        return f"{name}::pg_catalog.text"
    return f"CASE WHEN pg_catalog.num_nulls({name}) OPERATOR(pg_catalog.=) 0 THEN pg_catalog.concat({name}) END"


def copy_command(
    relation: RemoteRelation, *, where: str | None = None, binary: bool = False, texts: Collection[RemoteColumn] = frozenset()
) -> str:
    """Return the COPY … TO STDOUT of a table: the plain form if PostgreSQL uses it, else a query with the filters ORed.

    `where` is a further condition (a range of the table). `binary`: use COPY's binary format, in which `texts` are sent in text form.
    """
    columns = ", ".join(
        as_text(column.name, column.type_oid) if column in texts else quote_ident(column.name) for column in relation.columns
    )
    name = qualified(relation.schema, relation.name)
    tail = " WITH (FORMAT binary)" if binary else ""
    selects_rows = bool(relation.filters) or where is not None
    computes_values = bool(texts) or any(column.generated for column in relation.columns)
    if relation.kind == "r" and not selects_rows and not computes_values:
        listed = f" ({columns})" if relation.columns else ""
        return f"COPY {name}{listed} TO STDOUT{tail}"
    only = "ONLY " if relation.kind == "r" else ""
    conditions = [" OR ".join(relation.filters)] if relation.filters else []
    conditions += [where] if where is not None else []
    shown = conditions[0] if len(conditions) == 1 else " AND ".join(f"({condition})" for condition in conditions)
    return f"COPY (SELECT {columns} FROM {only}{name}{' WHERE ' + shown if conditions else ''}) TO STDOUT{tail}"


def array_elements(text: str) -> tuple[str, ...]:
    """Return the elements of the text form of a one-dimensional array of names.

    >>> array_elements('{a,"b c"}')
    ('a', 'b c')
    """
    if not (text.startswith("{") and text.endswith("}")):
        raise PostgresError("08P01", f'malformed array literal: "{text}"')
    elements = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,"{}]+)', text[1:-1])
    return tuple(bare or re.sub(r"\\(.)", r"\1", quoted) for quoted, bare in elements)


def _query(connection: PublisherConnection, sql: str, about: str, fields: int) -> list[Row]:
    try:
        return connection.query(sql, fields)
    except PostgresError as error:
        raise prefixed(error, "08006", about) from error


def _list(names: Sequence[str]) -> str:
    return ", ".join(literal(name) for name in names)
