"""The members that CREATE and ALTER PUBLICATION name: resolve object lists to relations with column lists and filters, and to schemas.

Called by `publication`. The order of checks is PostgreSQL's: names are resolved, then WHERE is transformed, then column lists
are checked against the rest of the publication, then ownership and the kind of relation. This module writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog import namespace as namespaces
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import inheritance
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, TABLE_KINDS, RelationKind
from headgate.catalog.session import SessionContext
from headgate.commands import lookup, privilege
from headgate.errors import PostgresError
from headgate.expression.binding.scope import SYSTEM_COLUMNS
from headgate.rowfilter.check import FUNCTION
from headgate.rowfilter.filter import RowFilter, bind_filter
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap, walk
from headgate.types.registry import FIRST_USER_OID
from headgate.types.text_column import TextSettings


@dataclass
class TableObject:
    """A table that a command names. `columns` are attnums after the check. `filter` is set by `bind_filters`."""

    relation: Relation
    where: ParseNode | None
    column_names: tuple[str, ...] | None
    filter: RowFilter | None = None
    columns: tuple[int, ...] | None = None


def resolve(nodes: Iterable[pb.Node], cursor: Cursor, context: SessionContext) -> tuple[list[pb.PublicationTable], list[int]]:
    """Return (PublicationTable nodes, schema oids) of an object list. Schemas are resolved first, without duplicates."""
    tables: list[pb.PublicationTable] = []
    schemas: list[int] = []
    for node in nodes:
        spec = unwrap(node)
        if spec.pubobjtype == pb.PUBLICATIONOBJ_TABLE:
            tables.append(spec.pubtable)
            continue
        if spec.pubobjtype == pb.PUBLICATIONOBJ_TABLES_IN_SCHEMA:
            oid = lookup.used_namespace(cursor, context.database, spec.name)
        else:
            path = [name for name in lookup.search_path(cursor, context) if name != context.temp_schema]
            if not path:
                raise PostgresError("3F000", "no schema has been selected for CURRENT_SCHEMA")
            oid = lookup.used_namespace(cursor, context.database, path[0])
        if oid not in schemas:
            schemas.append(oid)
    return tables, schemas


def open_tables(nodes: Iterable[pb.PublicationTable], cursor: Cursor, context: SessionContext) -> list[TableObject]:
    """Return the named tables, with their current children unless ONLY is used."""
    tables: dict[int, TableObject] = {}
    for node in nodes:
        relation = lookup.target(cursor, context, node.relation)
        hold.use(cursor, "pg_class", relation.oid)
        if relation.kind in INDEX_KINDS:
            raise PostgresError("42809", f'"{relation.name}" is an index')
        if relation.kind == RelationKind.COMPOSITE_TYPE:
            raise PostgresError("42809", f'"{relation.name}" is a composite type')
        where = node.where_clause if node.HasField("where_clause") else None
        columns = tuple(names.strings(node.columns)) if node.columns else None
        earlier = tables.get(relation.oid)
        if earlier is not None:
            _refuse_conflict(relation, earlier, where, columns)
            continue
        tables[relation.oid] = TableObject(relation, where, columns)
        if node.relation.inh and not relation.is_partitioned:
            for child in inheritance.below(cursor, relation):
                earlier = tables.get(child.oid)
                if earlier is not None:
                    _refuse_conflict(relation, earlier, where, columns)
                else:
                    tables[child.oid] = TableObject(child, where, columns)
    return list(tables.values())


def _refuse_conflict(relation: Relation, known: TableObject, where: ParseNode | None, columns: tuple[str, ...] | None) -> None:
    if where is not None or known.where is not None:
        raise PostgresError("42710", f'conflicting or redundant WHERE clauses for table "{relation.name}"')
    if columns is not None or known.column_names is not None:
        raise PostgresError("42710", f'conflicting or redundant column lists for table "{relation.name}"')


def bind_filters(tables: Iterable[TableObject], via_root: bool, forms: TextSettings, is_users: Callable[[pb.FuncCall], bool]) -> None:
    """Bind each WHERE to its table. Constants are read under `forms`.

    `is_users` tests whether a call is of a user-defined function, which is refused (0A000). Raise 22023 for a filter on a partitioned table
    that is not published through its root.
    """
    for table in tables:
        if table.where is None:
            continue
        if table.relation.is_partitioned and not via_root:
            raise PostgresError(
                "22023",
                f'cannot use publication WHERE clause for relation "{table.relation.name}"',
                detail="WHERE clause cannot be used for a partitioned table when publish_via_partition_root is false.",
            )
        for call in walk(table.where):
            if call.DESCRIPTOR.name == "FuncCall" and is_users(call):
                message = "invalid publication WHERE expression"
                raise PostgresError("0A000", message, detail=FUNCTION, location=call.location)
        table.filter = bind_filter(table.where, table.relation, forms=forms)


def check_column_lists(publication: str, tables: Iterable[TableObject], with_schemas: bool, via_root: bool) -> None:
    """Raise 22023 for a column list together with schemas, or on a partitioned table that is not published through its root."""
    for table in tables:
        if table.column_names is None:
            continue
        message = f'cannot use column list for relation "{table.relation.schema}.{table.relation.name}" in publication "{publication}"'
        if with_schemas:
            raise PostgresError(
                "22023", message, detail="Column lists cannot be specified in publications containing FOR TABLES IN SCHEMA elements."
            )
        if table.relation.is_partitioned and not via_root:
            raise PostgresError(
                "22023", message, detail="Column lists cannot be specified for partitioned tables when publish_via_partition_root is false."
            )


def check_table(table: TableObject, cursor: Cursor, role: str, *, generated: bool) -> None:
    """Check ownership, the kind of relation, and the column list, whose names become attnums. `generated` allows generated columns."""
    relation = table.relation
    privilege.check_owner(
        cursor, role, relation.owner, "table" if relation.kind in TABLE_KINDS else lookup.KINDS[relation.kind], relation.name
    )
    refused = None
    if relation.kind not in TABLE_KINDS:
        refused = lookup.PLURALS[relation.kind]
    elif relation.oid < FIRST_USER_OID and relation.schema != "information_schema":
        refused = "system tables"
    elif relation.persistence == "t":
        refused = "temporary tables"
    elif relation.persistence == "u":
        refused = "unlogged tables"
    if refused is not None:
        raise PostgresError(
            "22023", f'cannot add relation "{relation.name}" to publication', detail=f"This operation is not supported for {refused}."
        )
    table.columns = _attnums(relation, table.column_names, generated)


def _attnums(relation: Relation, column_names: tuple[str, ...] | None, generated: bool) -> tuple[int, ...] | None:
    if column_names is None:
        return None
    numbers: set[int] = set()
    for name in column_names:
        if name in SYSTEM_COLUMNS:
            raise PostgresError("42P10", f'cannot use system column "{name}" in publication column list')
        column = relation.existing_column(name)
        if column.generated and not generated:
            raise PostgresError("42P10", f'cannot use generated column "{name}" in publication column list')
        if column.attnum in numbers:
            raise PostgresError("42710", f'duplicate column "{name}" in publication column list')
        numbers.add(column.attnum)
    return tuple(sorted(numbers))


def check_schema(cursor: Cursor, database: int, oid: int) -> None:
    """Raise 22023 for a system schema or a temporary one."""
    name = namespaces.name_of(cursor, database, oid)
    message = f'cannot add schema "{name}" to publication'
    if name in ("pg_catalog", "pg_toast"):
        raise PostgresError("22023", message, detail="This operation is not supported for system schemas.")
    if name.startswith(("pg_temp_", "pg_toast_temp_")):
        raise PostgresError("22023", message, detail="Temporary schemas cannot be replicated.")
