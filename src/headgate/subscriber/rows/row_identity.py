"""Finds the columns that identify a row of a local table: its replica identity or primary key, or those of a partitioned table's leaves.

Called by `relation_map` when a published relation is mapped, and by `partitioned`.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import partition
from headgate.catalog.relation.relation import Index, Relation
from headgate.catalog.relation.replica_identity import ReplicaIdentity
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
