"""What depends on a table's columns through its membership in publications: row filters and column lists.

Called by ALTER TABLE before a column is dropped, changed or renamed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate.catalog.physical import Cursor, run
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
    """The memberships whose filter or column list uses a column, by the publications' oids."""
    found = []
    for publication in publications.of_relation(cursor, relation.database, relation.oid):
        member = publication.member(relation.oid)
        if member is None:
            continue
        used = set(member.columns or ())
        if member.tree is not None:
            used |= {each.attnum for each in walk(serialization.load(member.tree)) if isinstance(each, ColumnRef)}
        if attnum in used:
            found.append(Membership(relation.database, publication.oid, publication.name, relation.oid))
    return sorted(found, key=lambda each: each.publication_oid)


def remove(cursor: Cursor, members: list[Membership]) -> None:
    """Takes the table out of the publications (DROP COLUMN … CASCADE)."""
    for member in members:
        publications.drop_member(cursor, member.database, member.publication_oid, member.relation)


def renamed(cursor: Cursor, old: Relation, new: Relation) -> None:
    """Writes the filters of a relation anew after a column was renamed."""
    names = {each.attnum: each.name for each in new.columns}
    for publication in publications.of_relation(cursor, old.database, old.oid):
        member = publication.member(old.oid)
        if member is None or member.tree is None:
            continue
        bound = rewriting.rewrite(
            serialization.load(member.tree),
            lambda each: replace(each, name=names[each.attnum]) if isinstance(each, ColumnRef) and each.attnum in names else None,
        )
        run(
            cursor,
            "UPDATE hg.pg_publication_rel SET prqual = ?, prqualtree = ? WHERE dbid = ? AND prpubid = ? AND prrelid = ?",
            [deparse(bound), serialization.dump(bound), old.database, publication.oid, old.oid],
        )
