"""Tables that inherit from others (manual, 5.10): rows of pg_inherits whose child is not a partition, and the counts of inherited parts.

Called by the commands on tables and by the storage. A child has the columns of its parents by name, and may have more columns in another
order. A statement that names a table without ONLY means the tables below it too. Its `Relation` then has `with_children`, and `tree` lists
the tables whose rows it has.

Invariant: a column or constraint with attinhcount or coninhcount > 0 exists in that many parents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headgate.catalog.physical import Cursor, delete, insert, one, rows, update
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.partition import Branch
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.errors import existing


def expanded(cursor: Cursor, relation: Relation) -> Relation:
    """Return the relation that a statement means without ONLY: together with the tables that inherit from it, if there are any."""
    has_children = relation.has_children and bool(_children(cursor, relation.database, relation.oid))
    return replace(relation, with_children=True) if has_children else relation


def tree(cursor: Cursor, relation: Relation) -> Branch:
    """Return a table with all tables that inherit from it, at any depth, as its branches."""
    root = relations.get(cursor, relation.database, relation.oid)
    return Branch(root, None, tuple(map(Branch, below(cursor, root))))


def below(cursor: Cursor, relation: Relation) -> list[Relation]:
    """Return the tables that inherit from a table, or its partitions, at any depth, each once (find_all_inheritors)."""
    if not relation.is_partitioned and not relation.has_children:
        return []
    reached = [relation.oid]
    for parent in reached:
        reached += [child for child in _children(cursor, relation.database, parent) if child not in reached]
    return relations.load_many(cursor, relation.database, reached[1:])


def children(cursor: Cursor, relation: Relation) -> list[Relation]:
    """Return the partitions directly below a partitioned table, or the tables that inherit directly from a table."""
    if not relation.is_partitioned and not relation.has_children:
        return []
    return relations.load_many(cursor, relation.database, _children(cursor, relation.database, relation.oid))


def _children(cursor: Cursor, database: int, parent: int) -> list[int]:
    sql = "SELECT inhrelid FROM hg.pg_inherits WHERE dbid = ? AND inhparent = ? ORDER BY inhrelid"
    return [oid for (oid,) in rows(cursor, sql, [database, parent])]


def parents(cursor: Cursor, relation: Relation) -> list[int]:
    """Return the tables from which a table inherits directly, in the order of INHERITS. A partition has none."""
    if relation.kind != RelationKind.TABLE or relation.parent:
        return []
    found = rows(
        cursor, "SELECT inhseqno, inhparent FROM hg.pg_inherits WHERE dbid = ? AND inhrelid = ?", [relation.database, relation.oid]
    )
    return [parent for _, parent in sorted(found)]


# ---- rows of the catalogs -------------------------------------------------------------------------------------------


def add_parents(cursor: Cursor, child: Relation, parents: Iterable[Relation], first: int = 1) -> None:
    """Let a table inherit from others: rows of pg_inherits, numbered from `first`, and of pg_depend."""
    database = child.database
    for number, parent in enumerate(parents, first):
        insert(cursor, "pg_inherits", dbid=database, inhrelid=child.oid, inhparent=parent.oid, inhseqno=number, inhdetachpending=False)
        insert(cursor, "pg_depend", dbid=database, classid=1259, objid=child.oid, refclassid=1259, refobjid=parent.oid, deptype="n")
        if not parent.has_children:
            update(cursor, "pg_class", {"dbid": database, "oid": parent.oid}, relhassubclass=True)


def remove_parent(cursor: Cursor, child: Relation, parent: Relation) -> None:
    """Remove what `add_parents` has written for one parent."""
    delete(cursor, "pg_inherits", dbid=child.database, inhrelid=child.oid, inhparent=parent.oid)
    delete(cursor, "pg_depend", dbid=child.database, classid=1259, objid=child.oid, refclassid=1259, refobjid=parent.oid)


def next_number(cursor: Cursor, child: Relation) -> int:
    """Return the inhseqno of the next parent."""
    numbers = rows(cursor, "SELECT inhseqno FROM hg.pg_inherits WHERE dbid = ? AND inhrelid = ?", [child.database, child.oid])
    return 1 + max((number for (number,) in numbers), default=0)


Origin = tuple[int, bool]
"""From how many parents a column or constraint comes, and whether the table has it without them too."""


def column_origin(cursor: Cursor, relation: Relation, name: str) -> Origin:
    sql = "SELECT attinhcount, attislocal FROM hg.pg_attribute WHERE dbid = ? AND attrelid = ? AND attname = ?"
    return _origin(cursor, sql, relation, name)


def check_origin(cursor: Cursor, relation: Relation, name: str) -> Origin:
    sql = "SELECT coninhcount, conislocal FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ? AND conname = ?"
    return _origin(cursor, sql, relation, name)


def _origin(cursor: Cursor, sql: str, relation: Relation, name: str) -> Origin:
    count, is_local = existing(one(cursor, sql, [relation.database, relation.oid, name]), "XX000", f'"{name}" of "{relation.name}"')
    return count, is_local


def set_column_origin(cursor: Cursor, relation: Relation, name: str, origin: Origin) -> None:
    where = {"dbid": relation.database, "attrelid": relation.oid, "attname": name}
    update(cursor, "pg_attribute", where, attinhcount=origin[0], attislocal=origin[1])


def set_check_origin(cursor: Cursor, relation: Relation, name: str, origin: Origin) -> None:
    where = {"dbid": relation.database, "conrelid": relation.oid, "conname": name}
    update(cursor, "pg_constraint", where, coninhcount=origin[0], conislocal=origin[1])
