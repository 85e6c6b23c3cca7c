"""Create relations: the rows of pg_class, pg_type, pg_partitioned_table and pg_depend, and the columns and constraints of a new table.

Called by the commands that create tables and by `view`, inside their transaction. The functions check only what depends on the catalog (a
name in use). The caller has checked the definition (types, expressions, matching keys). Each change leaves the rows as PostgreSQL 15 would,
because psql reads them. Columns, indexes and constraints are written by `attribute`, `index` and `constraint`. `pg_class` changes an
existing relation, `removal` removes one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.catalog import user_type
from headgate.catalog.physical import Cursor, Oids, insert, insert_all, one
from headgate.catalog.relation import attribute
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.constraint import NewCheck, add_check
from headgate.catalog.relation.index import IndexKey, add_key
from headgate.catalog.relation.object_name import require_free
from headgate.catalog.relation.relation import Column, PartitionKey, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.errors import PostgresError

HEAP = 2


@dataclass(frozen=True)
class Definition:
    """The definition of a new table. `columns` are numbered by their position."""

    namespace: int
    name: str
    columns: Sequence[Column]
    owner: int = 10
    kind: RelationKind = RelationKind.TABLE
    persistence: str = "p"
    keys: Sequence[IndexKey] = ()
    checks: Sequence[NewCheck] = ()
    partition_key: PartitionKey | None = None
    options: Sequence[str] = ()


def create(cursor: Cursor, oids: Oids, database: int, definition: Definition) -> Relation:
    """Create a table with its row type, indexes and constraints. Raise 42P07 if the name is in use in the schema."""
    require_free(cursor, database, definition.namespace, definition.name)
    _require_no_type(cursor, database, definition)
    oid = oids()
    row_type = _create_row_type(cursor, oids, database, definition, oid)
    insert(
        cursor, "pg_class", dbid=database, oid=oid, relname=definition.name, relnamespace=definition.namespace, reltype=row_type,
        relowner=definition.owner, relam=HEAP if definition.kind in {RelationKind.TABLE, RelationKind.TOAST_TABLE} else 0,
        relfilenode=oid if definition.kind != RelationKind.PARTITIONED_TABLE else 0,
        reltuples=-1.0, relpersistence=definition.persistence, relkind=definition.kind, relnatts=len(definition.columns),
        relispopulated=True, relreplident=ReplicaIdentity.DEFAULT if definition.kind in TABLE_KINDS else ReplicaIdentity.NOTHING,
        reloptions=list(definition.options) or None,
        relfrozenxid=700 if definition.kind == RelationKind.TABLE else 0, relminmxid=1 if definition.kind == RelationKind.TABLE else 0,
    )  # fmt: skip
    columns = [(column, place) for place, column in enumerate(definition.columns, 1)]
    attribute.write_columns(cursor, oids, database, oid, columns)
    if definition.partition_key is not None:
        key = definition.partition_key
        insert(
            cursor, "pg_partitioned_table", dbid=database, partrelid=oid, partstrat=key.strategy, partnatts=len(key.attnums),
            partattrs=list(key.attnums), partkeydef=key.text, partdefid=0, partclass=list(key.classes), partcollation=list(key.collations),
            partexprs=json.dumps(key.expressions) if key.expressions else None,
        )  # fmt: skip
    insert(cursor, "pg_depend", dbid=database, classid=1259, objid=oid, refclassid=2615, refobjid=definition.namespace, deptype="n")
    for new_key in definition.keys:
        add_key(cursor, oids, relations.get(cursor, database, oid), new_key)
    for check in definition.checks:
        add_check(cursor, oids, relations.get(cursor, database, oid), check)
    return _build(cursor, database, oid, definition)


def _build(cursor: Cursor, database: int, oid: int, definition: Definition) -> Relation:
    """Return the relation. A plain one is built from the definition, which saves the four queries that would read it."""
    schema = one(cursor, "SELECT nspname FROM hg.pg_namespace WHERE oid = ? AND dbid IN (0, ?)", [definition.namespace, database])
    if definition.kind != RelationKind.TABLE or definition.keys or definition.checks or schema is None:
        return relations.get(cursor, database, oid)
    columns = tuple(
        replace(column, attnum=place, dropped=False, dimensions=attribute.dimensions_of(column))
        for place, column in enumerate(definition.columns, 1)
    )
    return Relation(
        oid, database, definition.namespace, schema[0], definition.name, RelationKind.TABLE, columns, definition.owner,
        definition.persistence,
        options=tuple(definition.options),
    )  # fmt: skip


def _require_no_type(cursor: Cursor, database: int, definition: Definition) -> None:
    """Raise 42710 if the schema has a type with the table's name, because the table's row type needs the name."""
    try:
        user_type.require_free(cursor, database, definition.namespace, definition.name)
    except PostgresError as error:
        error.hint = (
            "A relation has an associated type of the same name, so you must use a name that doesn't conflict with any existing type."
        )
        raise


def _create_row_type(cursor: Cursor, oids: Oids, database: int, definition: Definition, relation: int) -> int:
    """Create the composite type of a table's rows and its array type (PostgreSQL's _name)."""
    own, array = oids(), oids()
    over = user_type.array_name(cursor, database, definition.namespace, definition.name)
    common = {
        "typnamespace": definition.namespace,
        "typowner": definition.owner,
        "typisdefined": True,
        "typdelim": ",",
        "typalign": "d",
        "typstorage": "x",
        "typtypmod": -1,
        "typlen": -1,
    }
    rows = {
        "typname": (definition.name, over), "oid": (own, array), "typtype": ("c", "b"), "typcategory": ("C", "A"),
        "typrelid": (relation, 0), "typarray": (array, 0), "typelem": (0, own), "typsubscript": (0, 6179),
        "typinput": (2290, 750), "typoutput": (2291, 751), "typreceive": (2402, 2400), "typsend": (2403, 2401), "typanalyze": (0, 3816),
    }  # fmt: skip
    insert_all(
        cursor, "pg_type", [{"dbid": database, **common, **{name: values[index] for name, values in rows.items()}} for index in (0, 1)]
    )
    return own
