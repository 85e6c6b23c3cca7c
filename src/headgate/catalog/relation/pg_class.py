"""Change a relation's row of pg_class: its name, schema, owner and replica identity.

Called by ALTER TABLE and similar commands, inside their transaction. The row type, indexes and constraints that share the relation's name
or schema are changed with it.
"""

from __future__ import annotations

from headgate.catalog import user_type
from headgate.catalog.physical import Cursor, run, update
from headgate.catalog.relation import constraint, sequence
from headgate.catalog.relation.object_name import require_free
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.catalog.security import acl


def set_class(cursor: Cursor, relation: Relation, column: str, value: object) -> None:
    update(cursor, "pg_class", {"dbid": relation.database, "oid": relation.oid}, **{column: value})


def rename(cursor: Cursor, relation: Relation, name: str) -> None:
    """Rename a relation, with its row type, or the constraint of an index."""
    require_free(cursor, relation.database, relation.namespace_oid, name)
    if relation.kind in INDEX_KINDS:
        constraint.rename_of_index(cursor, relation, name)
    set_class(cursor, relation, "relname", name)
    row_type = user_type.of_relation(cursor, relation.database, relation.oid)
    if row_type is not None:
        user_type.rename(cursor, relation.database, row_type, name)


def set_schema(cursor: Cursor, relation: Relation, namespace: int) -> None:
    """Move a table to another schema, with its row type, indexes, constraints and the sequences of its columns."""
    require_free(cursor, relation.database, namespace, relation.name)
    set_class(cursor, relation, "relnamespace", namespace)
    database = relation.database
    row_type = user_type.of_relation(cursor, database, relation.oid)
    if row_type is not None:
        user_type.set_schema(cursor, database, row_type, namespace)
    update(cursor, "pg_constraint", {"dbid": database, "conrelid": relation.oid}, connamespace=namespace)
    for index in relation.indexes:
        update(cursor, "pg_class", {"dbid": database, "oid": index.oid}, relnamespace=namespace)
    for oid, name in sequence.of_columns(cursor, database, relation.oid):
        require_free(cursor, database, namespace, name)
        update(cursor, "pg_class", {"dbid": database, "oid": oid}, relnamespace=namespace)


def set_owner(cursor: Cursor, relation: Relation, owner: int) -> None:
    """Change the owner of a relation and its ACL, and of its row type, its indexes and the sequences of its columns."""
    sequences = [oid for oid, _ in sequence.of_columns(cursor, relation.database, relation.oid)]
    for oid in (relation.oid, *[index.oid for index in relation.indexes], *sequences):
        acl.give(cursor, "pg_class", oid, owner, relation.database)
        update(cursor, "pg_type", {"dbid": relation.database, "typrelid": oid}, typowner=owner)


def set_replica_identity(cursor: Cursor, relation: Relation, identity: ReplicaIdentity, index: int = 0) -> None:
    """Set the replica identity. `index` is required with 'i'."""
    set_class(cursor, relation, "relreplident", identity)
    run(
        cursor,
        "UPDATE hg.pg_index SET indisreplident = (indexrelid = ?) WHERE dbid = ? AND indrelid = ? AND indisreplident <> (indexrelid = ?)",
        [index, relation.database, relation.oid, index],
    )
