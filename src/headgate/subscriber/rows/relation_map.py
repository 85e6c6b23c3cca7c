"""Maps a published relation to a local table and its columns (PostgreSQL's relation.c).

Tables are matched by qualified name and columns by name. The order of columns does not matter, and types may differ. Called for each
batch, because the local catalog may have changed. Extra local columns get their default on INSERT and keep their value on UPDATE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Column, Index, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.errors import PostgresError
from headgate.pgoutput import message as m


def key_of(relation: Relation) -> tuple[int, ...] | None:
    """Return the attnums of the columns that identify a row of a table (GetRelationIdentityOrPK)."""
    return relation.identity_key() or relation.primary_key or None


def key_names(relation: Relation) -> frozenset[str] | None:
    key = key_of(relation)
    return None if key is None else frozenset(column.name for column in relation.columns if column.attnum in key)


def with_identity_of_leaves(cursor: Cursor, root: Relation, remote: m.Relation) -> Relation:
    """Return a partitioned table as the target of changes: its replica identity is the columns of an old row that its leaves need."""
    leaves = list(partition.load(cursor, root.database, root.oid).leaves())
    if not leaves:
        return root
    keys = {key_names(leaf) for leaf in leaves}
    identity: frozenset[str] = frozenset().union(*(key for key in keys if key is not None))
    if not identity or (None in keys and remote.replica_identity == ReplicaIdentity.FULL):
        return replace(root, replica_identity=ReplicaIdentity.NOTHING, indexes=())
    attnums = tuple(column.attnum for column in root.columns if column.name in identity)
    index = next((index for index in root.indexes if set(index.attnums) == set(attnums)), None) or Index(root.name, 0, attnums, unique=True)
    return replace(root, replica_identity=ReplicaIdentity.INDEX, indexes=(replace(index, replident=True, primary=False),))


_KINDS = {
    "v": "views",
    "m": "materialized views",
    "f": "foreign tables",
    "i": "indexes",
    "S": "sequences",
    "c": "composite types",
    "t": "TOAST tables",
}


_MISSING = "Create the table and run ALTER SUBSCRIPTION ... REFRESH PUBLICATION, or have it made: ... SET (create_tables = true)."


class MissingColumnsError(PostgresError):
    """Raised if the publisher sends columns that the local table does not have."""

    local: Relation
    names: tuple[str, ...] = ()
    remote: m.Relation | None = None


class MissingRelationError(PostgresError):
    """Raised if the publisher sends changes of a table that does not exist here."""


@dataclass(frozen=True)
class Mapping:
    """A published relation and its local table.

    `sources[i]`: index of local column i among the published columns, None if it is not sent.
    `key`: attnums of the local columns that identify a row, None if the whole row does (REPLICA IDENTITY FULL at the publisher).
    `keyed`: False if rows can be neither updated nor deleted, because there is no key.
    """

    remote: m.Relation
    local: Relation
    sources: tuple[int | None, ...]
    key: tuple[int, ...] | None
    refusal: PostgresError | None = None

    @property
    def extra(self) -> tuple[Column, ...]:
        """The local columns that are not sent."""
        return tuple(column for column, source in zip(self.local.columns, self.sources, strict=True) if source is None)


def shown(relation: Relation | m.Relation) -> str:
    """Return ``schema.name`` as in PostgreSQL's messages."""
    return f"{relation.schema or 'pg_catalog'}.{relation.name}"


def local_relation(cursor: Cursor, database: int, schema: str, name: str) -> Relation:
    """Return the local table of this name. Raise 55000 if there is none, 42809 if it is not a table."""
    relation = relations.lookup(cursor, database, schema or "pg_catalog", name)
    if relation is None:
        raise MissingRelationError(
            "55000", f'logical replication target relation "{schema or "pg_catalog"}.{name}" does not exist', hint=_MISSING
        )
    check_kind(relation)
    return relation


def check_kind(relation: Relation) -> None:
    """Raise 42809 unless changes can be applied to the relation."""
    if relation.kind not in TABLE_KINDS:
        raise PostgresError(
            "42809",
            f'cannot use relation "{shown(relation)}" as logical replication target',
            detail=f"This operation is not supported for {_KINDS.get(relation.kind, 'this relation kind')}.",
        )


Names = Callable[[m.Relation, Relation], tuple[str | None, ...] | None]
"""Returns the local names of a published relation's columns, with None for a dropped column. None: they are the publisher's names."""


def map_columns(local: Relation, names: tuple[str | None, ...]) -> tuple[int | None, ...]:
    """Return the source of each local column's value. Raise 55000 with the names of missing columns (generated ones count as missing)."""
    usable = {column.name for column in local.columns if column.generated is None}
    missing = [name for name in names if name is not None and name not in usable]
    if missing:
        listed = ", ".join(f'"{name}"' for name in missing)
        noun = "columns" if len(missing) > 1 else "column"
        error = MissingColumnsError("55000", f'logical replication target relation "{shown(local)}" is missing replicated {noun}: {listed}')
        error.local, error.names = local, tuple(missing)
        raise error
    places = {name: place for place, name in enumerate(names)}
    return tuple(places.get(column.name) if column.generated is None else None for column in local.columns)


def map_relation(cursor: Cursor, database: int, remote: m.Relation, names: Names | None = None) -> Mapping:
    """Return the mapping of a published relation (PostgreSQL's logicalrep_rel_open)."""
    local = local_relation(cursor, database, remote.schema, remote.name)
    target = with_identity_of_leaves(cursor, local, remote) if local.is_partitioned else local
    return mapping(target, remote, None if names is None else names(remote, local))


def mapping(local: Relation, remote: m.Relation, names: tuple[str | None, ...] | None = None) -> Mapping:
    names = names or tuple(column.name for column in remote.columns)
    sources = map_columns(local, names)
    key = key_of(local)
    keyed = {name for name, column in zip(names, remote.columns, strict=True) if column.key and name is not None}
    return Mapping(remote, local, sources, key, _refusal(local, remote, key, keyed))


def no_key(local: Relation) -> PostgresError:
    return PostgresError(
        "55000",
        f'logical replication target relation "{shown(local)}" has neither REPLICA IDENTITY index nor PRIMARY KEY and published'
        " relation does not have REPLICA IDENTITY FULL",
    )


def _refusal(local: Relation, remote: m.Relation, key: tuple[int, ...] | None, sent: set[str]) -> PostgresError | None:
    """Return why rows cannot be updated or deleted, or None if they can."""
    if key is None:
        if remote.replica_identity == ReplicaIdentity.FULL:
            return None
        return no_key(local)
    needed = {column.name for column in local.columns if column.attnum in key}
    if needed <= sent:
        return None
    return PostgresError(
        "55000", f'publisher did not send replica identity column expected by the logical replication target relation "{shown(local)}"'
    )
