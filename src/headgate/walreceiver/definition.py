"""What a publisher says of tables: columns, types, keys, partitions, comments. What `create_tables` and `schema_evolution` work from.

`read` is called by the commands that make and change tables (`commands.subscription`). A few queries serve all
tables; each is plain enough for PostgreSQL from 12 on and for a node. All of it is data that anybody may have written: numbers are checked
here, texts by whoever uses them.
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
"""How deep partitions, and types over types, may lie."""


@dataclass(frozen=True)
class RemoteAttribute:
    """A column of a composite type. `shown`: format_type."""

    name: str
    type_oid: int
    shown: str


@dataclass(frozen=True)
class RemoteType:
    """A type. `kind`: pg_type.typtype; `element` of an array and `base` of a domain are oids, 0 for none; `labels` are an enum's.

    `attributes` are those of a composite type; a table's row type has none.
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
    """A column. `shown`: format_type; `added_with`: what rows have that are older than the column, where that is known.

    `dimensions`: the pairs of brackets that an array was declared with (attndims).
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
    """A table. `key`: the columns that name a row; `parent` the oid of the table that this is a partition of, 0 for none."""

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
        """The columns that are published, and the generated ones, which never are, unless a column list leaves some of the others out."""
        there = [each for each in self.columns if not each.dropped]
        if self.published is None:
            return tuple(there)
        whole = all(each.generated or each.name in self.published for each in there)
        return tuple(each for each in there if each.name in self.published or (each.generated and whole))


@dataclass
class Definitions:
    """Tables by their oid (ancestors of partitions too), the published ones by name, types by their oid, comments of schemas."""

    tables: dict[int, RemoteTable] = field(default_factory=dict)
    named: dict[tuple[str, str], RemoteTable] = field(default_factory=dict)
    types: dict[int, RemoteType] = field(default_factory=dict)
    schemas: dict[str, str] = field(default_factory=dict)


def read(connection: PublisherConnection, published: Sequence[PublishedTable], types: Collection[int] = ()) -> Definitions:
    """What the publisher says of these tables, the tables that they are partitions of, the types of their columns and further types."""
    found = Definitions()
    lists = {(each.schema, each.name): each.columns for each in published}
    rows = [row for schema in sorted({each.schema for each in published}) for row in _relations(connection, _in_schema(schema, published))]
    _take(connection, found, rows, lists)
    for _ in range(_LEVELS):
        above = {each.parent for each in found.tables.values() if each.parent} - set(found.tables)
        if not above:
            break
        _take(connection, found, _relations(connection, f"c.oid IN ({_numbers(above)})"), {})
    _read_types(connection, found, types)
    named = sorted({each.schema for each in found.tables.values()})
    if named:
        _read_schemas(connection, found, named)
    return found


def _in_schema(schema: str, published: Sequence[PublishedTable]) -> str:
    names = ", ".join(literal(each.name) for each in published if each.schema == schema)
    return f"n.nspname = {literal(schema)} AND c.relname IN ({names})"


def _relations(connection: PublisherConnection, where: str) -> list[Row]:
    return connection.query(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident, i.inhparent,"
        " pg_catalog.pg_get_expr(c.relpartbound, c.oid), p.partstrat, p.partattrs FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid AND c.relispartition"
        f" LEFT JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = c.oid WHERE c.relkind IN ('r', 'p') AND {where}",
        9,
    )


def _take(
    connection: PublisherConnection, found: Definitions, rows: Sequence[Row], lists: dict[tuple[str, str], tuple[str, ...] | None]
) -> None:
    """Adds tables with their columns, keys and comments."""
    oids = [answer.number(row[0]) for row in rows]
    if not oids:
        return
    columns, keys, comments = _columns(connection, oids), _keys(connection, oids), _comments(connection, oids)
    for oid, row in zip(oids, rows, strict=True):
        schema, name = str(row[1]), str(row[2])
        if connection.server_version >= 180000:  # what is published is sent, and is no generated column here
            sent = lists.get((schema, name)) or ()
            columns[oid] = [
                replace(each, generated=False, default=None) if each.generated and each.name in sent else each
                for each in columns.get(oid, ())
            ]
        table = RemoteTable(
            oid, schema, name, str(row[3]), str(row[4]),
            tuple(replace(each, comment=comments.get((oid, each.attnum))) for each in columns.get(oid, ())),
            keys.get(oid, ()), 0 if row[5] is None else answer.number(row[5]), row[6], row[7] or "", _attnums(row[8]),
            comments.get((oid, 0)), lists.get((schema, name)),
        )  # fmt: skip
        found.tables[oid] = table
        if (schema, name) in lists:
            found.named[schema, name] = table


def _columns(connection: PublisherConnection, oids: Sequence[int]) -> dict[int, list[DefinedColumn]]:
    old = "CASE WHEN a.atthasmissing THEN a.attmissingval END" if not connection.is_node else "NULL"
    rows = connection.query(
        "SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,"
        f" a.attidentity, a.attgenerated, pg_catalog.pg_get_expr(d.adbin, d.adrelid), a.attisdropped, {old}, a.attndims"
        " FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
        f" WHERE a.attrelid IN ({_numbers(oids)}) AND a.attnum > 0 ORDER BY a.attrelid, a.attnum",
        13,
    )
    found: dict[int, list[DefinedColumn]] = {}
    for row in rows:
        found.setdefault(answer.number(row[0]), []).append(
            DefinedColumn(
                answer.attnum(row[1]),
                str(row[2]),
                answer.number(row[3]),
                answer.number(row[4], least=-1, most=2**31 - 1),
                str(row[5]),
                row[6] == "t",
                row[7] or "",
                bool(row[8]),
                row[9],
                row[10] == "t",
                _only(row[11]),
                dimensions=answer.number(row[12], most=2**15 - 1),
            )
        )  # fmt: skip
    return found


def _only(array: str | None) -> str | None:
    """The one element of attmissingval."""
    elements = () if array is None or array.startswith("{{") else array_elements(array)
    return elements[0] if len(elements) == 1 else None


def _keys(connection: PublisherConnection, oids: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """The replica identity's index, else the primary key."""
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


def _read_schemas(connection: PublisherConnection, found: Definitions, names: Sequence[str]) -> None:
    rows = connection.query(
        "SELECT n.nspname, d.description FROM pg_catalog.pg_namespace n"
        f" JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.classoid = 2615"
        f" WHERE n.nspname IN ({', '.join(map(literal, names))})",
        2,
    )
    found.schemas = {str(row[0]): row[1] for row in rows if row[1]}


def _read_types(connection: PublisherConnection, found: Definitions, further: Collection[int]) -> None:
    """The types of all columns, further ones, and the types that those are made of."""
    wanted = set(further) | {column.type_oid for table in found.tables.values() for column in table.columns if not column.dropped}
    for _ in range(_LEVELS):
        wanted -= set(found.types)
        if not wanted:
            break
        read_now = _with_attributes(connection, _types(connection, wanted))
        found.types |= read_now
        wanted = {oid for each in read_now.values() for oid in (each.element, each.base) if oid}
        wanted |= {attribute.type_oid for each in read_now.values() for attribute in each.attributes}
    enums = [oid for oid, each in found.types.items() if each.kind == "e"]
    if enums:
        labels: dict[int, list[str]] = {}
        listed = "SELECT e.enumtypid, e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid IN"
        for row in connection.query(f"{listed} ({_numbers(enums)}) ORDER BY e.enumtypid, e.enumsortorder", 2):
            labels.setdefault(answer.number(row[0]), []).append(str(row[1]))
        found.types |= {oid: replace(found.types[oid], labels=tuple(labels.get(oid, ()))) for oid in enums}
    domains = [oid for oid, each in found.types.items() if each.kind == "d"]
    if domains:
        checks: dict[int, list[tuple[str, str]]] = {}
        listed = (
            "SELECT k.contypid, k.conname, pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k WHERE k.contype = 'c'"
        )
        for row in connection.query(f"{listed} AND k.contypid IN ({_numbers(domains)}) ORDER BY k.contypid, k.conname", 3):
            checks.setdefault(answer.number(row[0]), []).append((str(row[1]), str(row[2])))
        found.types |= {oid: replace(found.types[oid], checks=tuple(checks.get(oid, ()))) for oid in domains}


def _types(connection: PublisherConnection, oids: Iterable[int]) -> dict[int, RemoteType]:
    rows = connection.query(
        "SELECT t.oid, n.nspname, t.typname, t.typtype, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END,"
        " t.typbasetype, t.typtypmod,"
        " pg_catalog.format_type(t.oid, -1), pg_catalog.format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault"
        f" FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE t.oid IN ({_numbers(oids)})",
        11,
    )
    found = [
        RemoteType(
            answer.number(row[0]), str(row[1]), str(row[2]), str(row[3]), answer.number(row[4]), answer.number(row[5]),
            answer.number(row[6], least=-1, most=2**31 - 1), str(row[7]), str(row[8]), row[9] == "t", row[10],
        )
        for row in rows
    ]  # fmt: skip
    return {each.oid: each for each in found}


def _with_attributes(connection: PublisherConnection, types: dict[int, RemoteType]) -> dict[int, RemoteType]:
    """The types, the composite ones with their attributes."""
    composite = [oid for oid, each in types.items() if each.kind == "c"]
    if not composite:
        return types
    rows = connection.query(
        "SELECT t.oid, a.attname, a.atttypid, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_type t"
        " JOIN pg_catalog.pg_class c ON c.oid = t.typrelid AND c.relkind = 'c' JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid"
        f" WHERE t.oid IN ({_numbers(composite)}) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY t.oid, a.attnum",
        4,
    )
    found: dict[int, list[RemoteAttribute]] = {}
    for row in rows:
        found.setdefault(answer.number(row[0]), []).append(RemoteAttribute(str(row[1]), answer.number(row[2]), str(row[3])))
    return types | {oid: replace(types[oid], attributes=tuple(found.get(oid, ()))) for oid in composite}


def _attnums(vector: str | None) -> tuple[int, ...]:
    """An int2vector; 0 stands for an expression."""
    return tuple(answer.attnum(number) for number in re.findall(r"\d+", vector or ""))


def _numbers(oids: Iterable[int]) -> str:
    return ", ".join(str(oid) for oid in sorted(oids))
