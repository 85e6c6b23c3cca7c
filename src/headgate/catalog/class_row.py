"""A relation's own row of pg_class changed: its name, schema, owner and replica identity.

Called by the commands of ALTER TABLE and its like, inside their transaction. What has the relation's name or schema too (its row
type, its indexes and constraints) follows.
"""

from __future__ import annotations

from headgate.catalog import acl, sequence
from headgate.catalog.object_name import require_free
from headgate.catalog.physical import Cursor, run
from headgate.catalog.relation import Relation


def set_class(cursor: Cursor, relation: Relation, column: str, value: object) -> None:
    """Sets one column of the relation's row of pg_class."""
    run(cursor, f"UPDATE hg.pg_class SET {column} = ? WHERE dbid = ? AND oid = ?", [value, relation.database, relation.oid])


def rename(cursor: Cursor, relation: Relation, name: str) -> None:
    """ALTER TABLE … RENAME TO; the row type follows."""
    require_free(cursor, relation.database, relation.namespace_oid, name)
    set_class(cursor, relation, "relname", name)
    scope = [relation.database, relation.oid]
    run(cursor, "UPDATE hg.pg_type SET typname = ? WHERE dbid = ? AND typrelid = ?", [name, *scope])


def set_schema(cursor: Cursor, relation: Relation, namespace: int) -> None:
    """ALTER TABLE … SET SCHEMA: the table, its row type, its indexes and constraints, the sequences of its columns."""
    require_free(cursor, relation.database, namespace, relation.name)
    set_class(cursor, relation, "relnamespace", namespace)
    scope = [relation.database, relation.oid]
    run(cursor, "UPDATE hg.pg_type SET typnamespace = ? WHERE dbid = ? AND typrelid = ?", [namespace, *scope])
    run(cursor, "UPDATE hg.pg_constraint SET connamespace = ? WHERE dbid = ? AND conrelid = ?", [namespace, *scope])
    for index in relation.indexes:
        run(cursor, "UPDATE hg.pg_class SET relnamespace = ? WHERE dbid = ? AND oid = ?", [namespace, relation.database, index.oid])
    for oid, name in sequence.of_columns(cursor, relation.database, relation.oid):
        require_free(cursor, relation.database, namespace, name)
        run(cursor, "UPDATE hg.pg_class SET relnamespace = ? WHERE dbid = ? AND oid = ?", [namespace, relation.database, oid])


def set_owner(cursor: Cursor, relation: Relation, owner: int) -> None:
    """ALTER TABLE … OWNER TO: the relation with its rights, its row type, its indexes, the sequences of its columns."""
    sequences = [oid for oid, _ in sequence.of_columns(cursor, relation.database, relation.oid)]
    for oid in (relation.oid, *[index.oid for index in relation.indexes], *sequences):
        acl.give(cursor, "pg_class", oid, owner, relation.database)
        run(cursor, "UPDATE hg.pg_type SET typowner = ? WHERE dbid = ? AND typrelid = ?", [owner, relation.database, oid])


def set_replica_identity(cursor: Cursor, relation: Relation, identity: str, index: int = 0) -> None:
    """ALTER TABLE … REPLICA IDENTITY; `index` with 'i'."""
    set_class(cursor, relation, "relreplident", identity)
    run(
        cursor,
        "UPDATE hg.pg_index SET indisreplident = (indexrelid = ?) WHERE dbid = ? AND indrelid = ? AND indisreplident <> (indexrelid = ?)",
        [index, relation.database, relation.oid, index],
    )
