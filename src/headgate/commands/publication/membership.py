"""The row filters and column lists of publications that depend on a table's columns.

Called by ALTER TABLE before a column is dropped, changed or renamed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate.catalog.physical import Cursor, update
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import publication as publications
from headgate.expression import rewriting, serialization
from headgate.expression.deparsing.deparse import deparse
from headgate.expression.node import ColumnRef, walk


@dataclass(frozen=True)
class Membership:
    """A table in a publication."""

    database: int
    publication_oid: int
    publication: str
    relation: int


def depending(cursor: Cursor, relation: Relation, attnum: int) -> list[Membership]:
    """Return the memberships whose filter or column list uses a column, ordered by the publications' oids."""
    memberships = []
    for publication in publications.of_relation(cursor, relation.database, relation.oid):
        member = publication.member(relation.oid)
        if member is None:
            continue
        used = set(member.columns or ())
        if member.tree is not None:
            used |= {node.attnum for node in walk(serialization.load(member.tree)) if isinstance(node, ColumnRef)}
        if attnum in used:
            memberships.append(Membership(relation.database, publication.oid, publication.name, relation.oid))
    return sorted(memberships, key=lambda membership: membership.publication_oid)


def remove(cursor: Cursor, members: list[Membership]) -> None:
    """Remove the table from the publications (DROP COLUMN … CASCADE)."""
    for member in members:
        publications.drop_member(cursor, member.database, member.publication_oid, member.relation)


def renamed(cursor: Cursor, old: Relation, new: Relation) -> None:
    """Rewrite the filters of a relation after a column was renamed."""
    names = {column.attnum: column.name for column in new.columns}
    for publication in publications.of_relation(cursor, old.database, old.oid):
        member = publication.member(old.oid)
        if member is None or member.tree is None:
            continue
        bound = rewriting.rewrite(
            serialization.load(member.tree),
            lambda node: replace(node, name=names[node.attnum]) if isinstance(node, ColumnRef) and node.attnum in names else None,
        )
        update(
            cursor,
            "pg_publication_rel",
            {"dbid": old.database, "prpubid": publication.oid, "prrelid": old.oid},
            prqual=deparse(bound),
            prqualtree=serialization.dump(bound),
        )
