"""Reads a publisher's definitions of tables: columns, types, keys, partitions, comments, for `create_tables` and `schema_evolution`.

The commands that create and change tables (`commands.subscription`) call `read`. A few queries fetch the definitions of all tables. They
are simple enough for PostgreSQL from 12 on and for a node. All data is untrusted: numbers are checked here, texts by the code that uses
them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from headgate.walreceiver import answer
from headgate.walreceiver.connection import PublisherConnection, literal
from headgate.walreceiver.link import Row
from headgate.walreceiver.remote import PublishedTable, array_elements

_LEVELS = 64
"""The maximum depth of partitions, and of types over types."""


@dataclass(frozen=True)
class RemoteAttribute:
    """A column of a composite type. `shown`: the result of format_type."""

    name: str
    type_oid: int
    shown: str


@dataclass(frozen=True)
class RemoteType:
    """A type. `kind`: pg_type.typtype. `element` of an array and `base` of a domain are OIDs, 0 for none. `labels` are those of an enum.

    `attributes` are those of a composite type; the row type of a table has none.
    """

    oid: int
    schema: str
    name: str
    kind: str
    element: int
    base: int
    base_typmod: int
    shown: str
    base_shown: str
    not_null: bool
    default: str | None
    labels: tuple[str, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    attributes: tuple[RemoteAttribute, ...] = ()


@dataclass(frozen=True)
class DefinedColumn:
    """A column. `shown`: the result of format_type. `added_with`: the value in rows that are older than the column, if it is known.

    `dimensions`: the number of brackets in the declaration of an array (attndims).
    """

    attnum: int
    name: str
    type_oid: int
    typmod: int
    shown: str
    not_null: bool
    identity: str
    generated: bool
    default: str | None
    dropped: bool
    added_with: str | None = None
    comment: str | None = None
    dimensions: int = 0


@dataclass(frozen=True)
class RemoteTable:
    """A table. `key`: the columns that identify a row. `parent`: the OID of the table of which this is a partition, 0 for none."""

    oid: int
    schema: str
    name: str
    kind: str
    replica_identity: str
    columns: tuple[DefinedColumn, ...]
    key: tuple[int, ...] = ()
    parent: int = 0
    bound: str | None = None
    strategy: str = ""
    partition_key: tuple[int, ...] = ()
    comment: str | None = None
    published: tuple[str, ...] | None = None

    @property
    def live(self) -> tuple[DefinedColumn, ...]:
        """The published columns and the generated ones, which are never published, unless a column list omits some of the other columns."""
        existing = [column for column in self.columns if not column.dropped]
        if self.published is None:
            return tuple(existing)
        whole = all(column.generated or column.name in self.published for column in existing)
        return tuple(column for column in existing if column.name in self.published or (column.generated and whole))


@dataclass
class Definitions:
    """Tables by OID (with ancestors of partitions), the published ones by name, types by OID, and comments of schemas."""

    tables: dict[int, RemoteTable] = field(default_factory=dict)
    named: dict[tuple[str, str], RemoteTable] = field(default_factory=dict)
    types: dict[int, RemoteType] = field(default_factory=dict)
    schemas: dict[str, str] = field(default_factory=dict)


def read(connection: PublisherConnection, published: Sequence[PublishedTable], types: Collection[int] = ()) -> Definitions:
    """Read the definitions of these tables, of the tables of which they are partitions, of their columns' types and of further `types`."""
    definitions = Definitions()
    lists = {(table.schema, table.name): table.columns for table in published}
    rows = [
        row for schema in sorted({table.schema for table in published}) for row in _relations(connection, _in_schema(schema, published))
    ]
    _add_tables(connection, definitions, rows, lists)
    for _ in range(_LEVELS):
        above = {table.parent for table in definitions.tables.values() if table.parent} - set(definitions.tables)
        if not above:
            break
        _add_tables(connection, definitions, _relations(connection, f"c.oid IN ({_numbers(above)})"), {})
    _read_types(connection, definitions, types)
    schemas = sorted({table.schema for table in definitions.tables.values()})
    if schemas:
        _read_schemas(connection, definitions, schemas)
    return definitions


def _in_schema(schema: str, published: Sequence[PublishedTable]) -> str:
    names = ", ".join(literal(table.name) for table in published if table.schema == schema)
    return f"n.nspname = {literal(schema)} AND c.relname IN ({names})"


def _relations(connection: PublisherConnection, condition: str) -> list[Row]:
    return connection.query(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident, i.inhparent,"
        " pg_catalog.pg_get_expr(c.relpartbound, c.oid), p.partstrat, p.partattrs FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid AND c.relispartition"
        f" LEFT JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = c.oid WHERE c.relkind IN ('r', 'p') AND {condition}",
        9,
    )


def _add_tables(
    connection: PublisherConnection, definitions: Definitions, rows: Sequence[Row], lists: dict[tuple[str, str], tuple[str, ...] | None]
) -> None:
    """Add tables with their columns, keys and comments."""
    oids = [answer.number(row[0]) for row in rows]
    if not oids:
        return
    columns, keys, comments = _columns(connection, oids), _keys(connection, oids), _comments(connection, oids)
    for oid, row in zip(oids, rows, strict=True):
        schema, name = str(row[1]), str(row[2])
        if connection.server_version >= 180000:  # a published generated column is sent, and is an ordinary column here
            sent = lists.get((schema, name)) or ()
            columns[oid] = [
                replace(column, generated=False, default=None) if column.generated and column.name in sent else column
                for column in columns.get(oid, ())
            ]
        table = RemoteTable(
            oid,
            schema,
            name,
            kind=str(row[3]),
            replica_identity=str(row[4]),
            columns=tuple(replace(column, comment=comments.get((oid, column.attnum))) for column in columns.get(oid, ())),
            key=keys.get(oid, ()),
            parent=0 if row[5] is None else answer.number(row[5]),
            bound=row[6],
            strategy=row[7] or "",
            partition_key=_attnums(row[8]),
            comment=comments.get((oid, 0)),
            published=lists.get((schema, name)),
        )
        definitions.tables[oid] = table
        if (schema, name) in lists:
            definitions.named[schema, name] = table


def _columns(connection: PublisherConnection, oids: Sequence[int]) -> dict[int, list[DefinedColumn]]:
    old = "CASE WHEN a.atthasmissing THEN a.attmissingval END" if not connection.is_node else "NULL"
    rows = connection.query(
        "SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,"
        f" a.attidentity, a.attgenerated, pg_catalog.pg_get_expr(d.adbin, d.adrelid), a.attisdropped, {old}, a.attndims"
        " FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
        f" WHERE a.attrelid IN ({_numbers(oids)}) AND a.attnum > 0 ORDER BY a.attrelid, a.attnum",
        13,
    )
    columns: dict[int, list[DefinedColumn]] = {}
    for row in rows:
        columns.setdefault(answer.number(row[0]), []).append(
            DefinedColumn(
                answer.attnum(row[1]),
                str(row[2]),
                type_oid=answer.number(row[3]),
                typmod=answer.number(row[4], least=-1, most=2**31 - 1),
                shown=str(row[5]),
                not_null=row[6] == "t",
                identity=row[7] or "",
                generated=bool(row[8]),
                default=row[9],
                dropped=row[10] == "t",
                added_with=_only(row[11]),
                dimensions=answer.number(row[12], most=2**15 - 1),
            )
        )
    return columns


def _only(array: str | None) -> str | None:
    """Return the single element of attmissingval, or None."""
    elements = () if array is None or array.startswith("{{") else array_elements(array)
    return elements[0] if len(elements) == 1 else None


def _keys(connection: PublisherConnection, oids: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the columns of the replica identity's index, or else of the primary key."""
    rows = connection.query(
        "SELECT i.indrelid, i.indkey, i.indisprimary, i.indisreplident FROM pg_catalog.pg_index i"
        f" WHERE i.indrelid IN ({_numbers(oids)}) AND (i.indisprimary OR i.indisreplident) ORDER BY i.indisreplident",
        4,
    )
    return {answer.number(row[0]): _attnums(row[1]) for row in rows}


def _comments(connection: PublisherConnection, oids: Sequence[int]) -> dict[tuple[int, int], str]:
    rows = connection.query(
        "SELECT d.objoid, d.objsubid, d.description FROM pg_catalog.pg_description d"
        f" WHERE d.classoid = 1259 AND d.objoid IN ({_numbers(oids)})",
        3,
    )
    return {(answer.number(row[0]), answer.attnum(row[1])): row[2] for row in rows if row[2]}


def _read_schemas(connection: PublisherConnection, definitions: Definitions, names: Sequence[str]) -> None:
    rows = connection.query(
        "SELECT n.nspname, d.description FROM pg_catalog.pg_namespace n"
        f" JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.classoid = 2615"
        f" WHERE n.nspname IN ({', '.join(map(literal, names))})",
        2,
    )
    definitions.schemas = {str(row[0]): row[1] for row in rows if row[1]}


def _read_types(connection: PublisherConnection, definitions: Definitions, further: Collection[int]) -> None:
    """Read the types of all columns, further ones, and the types of which they consist."""
    missing = set(further) | {column.type_oid for table in definitions.tables.values() for column in table.columns if not column.dropped}
    for _ in range(_LEVELS):
        missing -= set(definitions.types)
        if not missing:
            break
        new_types = _with_attributes(connection, _types(connection, missing))
        definitions.types |= new_types
        missing = {oid for new_type in new_types.values() for oid in (new_type.element, new_type.base) if oid}
        missing |= {attribute.type_oid for new_type in new_types.values() for attribute in new_type.attributes}
    _read_labels(connection, definitions)
    _read_checks(connection, definitions)


def _read_labels(connection: PublisherConnection, definitions: Definitions) -> None:
    """Add the labels of enums."""
    enums = [oid for oid, known_type in definitions.types.items() if known_type.kind == "e"]
    if not enums:
        return
    labels: dict[int, list[str]] = {}
    listed = "SELECT e.enumtypid, e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid IN"
    for row in connection.query(f"{listed} ({_numbers(enums)}) ORDER BY e.enumtypid, e.enumsortorder", 2):
        labels.setdefault(answer.number(row[0]), []).append(str(row[1]))
    definitions.types |= {oid: replace(definitions.types[oid], labels=tuple(labels.get(oid, ()))) for oid in enums}


def _read_checks(connection: PublisherConnection, definitions: Definitions) -> None:
    """Add the CHECK constraints of domains."""
    domains = [oid for oid, known_type in definitions.types.items() if known_type.kind == "d"]
    if not domains:
        return
    checks: dict[int, list[tuple[str, str]]] = {}
    listed = "SELECT k.contypid, k.conname, pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k WHERE k.contype = 'c'"
    for row in connection.query(f"{listed} AND k.contypid IN ({_numbers(domains)}) ORDER BY k.contypid, k.conname", 3):
        checks.setdefault(answer.number(row[0]), []).append((str(row[1]), str(row[2])))
    definitions.types |= {oid: replace(definitions.types[oid], checks=tuple(checks.get(oid, ()))) for oid in domains}


def _types(connection: PublisherConnection, oids: Iterable[int]) -> dict[int, RemoteType]:
    rows = connection.query(
        "SELECT t.oid, n.nspname, t.typname, t.typtype, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END,"
        " t.typbasetype, t.typtypmod,"
        " pg_catalog.format_type(t.oid, -1), pg_catalog.format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault"
        f" FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE t.oid IN ({_numbers(oids)})",
        11,
    )
    types = [
        RemoteType(
            answer.number(row[0]),
            str(row[1]),
            str(row[2]),
            kind=str(row[3]),
            element=answer.number(row[4]),
            base=answer.number(row[5]),
            base_typmod=answer.number(row[6], least=-1, most=2**31 - 1),
            shown=str(row[7]),
            base_shown=str(row[8]),
            not_null=row[9] == "t",
            default=row[10],
        )
        for row in rows
    ]
    return {remote_type.oid: remote_type for remote_type in types}


def _with_attributes(connection: PublisherConnection, types: dict[int, RemoteType]) -> dict[int, RemoteType]:
    composite = [oid for oid, remote_type in types.items() if remote_type.kind == "c"]
    if not composite:
        return types
    rows = connection.query(
        "SELECT t.oid, a.attname, a.atttypid, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_type t"
        " JOIN pg_catalog.pg_class c ON c.oid = t.typrelid AND c.relkind = 'c' JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid"
        f" WHERE t.oid IN ({_numbers(composite)}) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY t.oid, a.attnum",
        4,
    )
    attributes: dict[int, list[RemoteAttribute]] = {}
    for row in rows:
        attributes.setdefault(answer.number(row[0]), []).append(RemoteAttribute(str(row[1]), answer.number(row[2]), str(row[3])))
    return types | {oid: replace(types[oid], attributes=tuple(attributes.get(oid, ()))) for oid in composite}


def _attnums(vector: str | None) -> tuple[int, ...]:
    """Parse an int2vector. 0 stands for an expression."""
    return tuple(answer.attnum(number) for number in re.findall(r"\d+", vector or ""))


def _numbers(oids: Iterable[int]) -> str:
    return ", ".join(str(oid) for oid in sorted(oids))
