"""Check the replica identity that UPDATE and DELETE of a published table need (manual, 31.1, 31.3 and 31.4).

Called at the start of UPDATE, DELETE and INSERT … ON CONFLICT DO UPDATE, before any row is examined, once per table that the
command changes (a leaf, if the table is partitioned). All publications of the database count, whether subscribed to or not:

    filter with a column outside the identity              42P10, first
    column list that does not cover the identity           42P10, second (with FULL every list)
    no identity at all                                     55000

Publications are examined in the order of RelationBuildPublicationDesc. The search ends when all four actions are published and either
a filter or a column list is violated for both UPDATE and DELETE. So if one publication violates the first rule and another the second, the
order decides about the error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.catalog.replication import publication as publications
from headgate.catalog.replication.publication import Publication
from headgate.errors import PostgresError
from headgate.expression import serialization
from headgate.expression.node import ColumnRef, walk
from headgate.types.registry import FIRST_USER_OID

_ACTIONS = {"insert", "update", "delete", "truncate"}
_WORDS = {"update": ("update", "updates", "updating"), "delete": ("delete from", "deletes", "deleting from")}


def check(cursor: Cursor, relation: Relation, action: str) -> None:
    """Raise an error unless `action` ('update' or 'delete') can be published for this table, or for each leaf of a partitioned one."""
    if relation.kind == "p":
        for leaf in partition.load(cursor, relation.database, relation.oid).leaves():
            check(cursor, leaf, action)
        return
    if relation.persistence != "p" or relation.oid < FIRST_USER_OID or relation.kind != "r":
        return
    key = relation.identity_key()
    full = relation.replica_identity == ReplicaIdentity.FULL
    broken = _find_broken(cursor, relation, key or (), full=full)
    if action not in broken.published:
        return
    word, plural, doing = _WORDS[action]
    message = f'cannot {word} table "{relation.name}"'
    if action in broken.filter:
        raise PostgresError("42P10", message, detail="Column used in the publication WHERE expression is not part of the replica identity.")
    if action in broken.list:
        raise PostgresError("42P10", message, detail="Column list used by the publication does not cover the replica identity.")
    if not full and key is None:
        raise PostgresError(
            "55000",
            f'cannot {word} table "{relation.name}" because it does not have a replica identity and publishes {plural}',
            hint=f"To enable {doing} the table, set REPLICA IDENTITY using ALTER TABLE.",
        )


@dataclass
class _Broken:
    """The published actions of a table, and the actions for which a filter or a column list needs more than the identity has."""

    published: set[str] = field(default_factory=set)
    filter: set[str] = field(default_factory=set)
    list: set[str] = field(default_factory=set)


def _find_broken(cursor: Cursor, relation: Relation, key: tuple[int, ...], *, full: bool) -> _Broken:
    broken = _Broken()
    for publication, root in _publishing(cursor, relation):
        actions = {candidate_action for candidate_action in _ACTIONS if getattr(publication, candidate_action)}
        broken.published |= actions
        if not full and _filter_outside(publication, root, relation, key):
            broken.filter |= actions & _WORDS.keys()
        if _list_lacks(publication, root, relation, key, full):
            broken.list |= actions & _WORDS.keys()
        if broken.published == _ACTIONS and _WORDS.keys() in (broken.filter, broken.list):
            break
    return broken


def _publishing(cursor: Cursor, relation: Relation) -> list[tuple[Publication, Relation]]:
    """Return the publications of a table, each with the table as which it publishes the rows.

    That is the table itself, or with via_root its topmost published ancestor.

    The order is: those that name the table, its schema, each ancestor and its schema, by oid; then those FOR ALL TABLES.
    """
    all_known = publications.all_publications(cursor, relation.database)
    if not all_known:
        return []
    above = relations.load_many(cursor, relation.database, relations.ancestors(cursor, relation.database, relation.oid))
    chain = (relation, *above)
    publishing = []
    for publication in all_known:
        named_places = [number for number, table in enumerate(chain) if publication.member(table.oid) is not None]
        schema_places = [number for number, table in enumerate(chain) if table.namespace_oid in publication.schemas]
        if publication.all_tables:
            place, top = 2 * len(chain), chain[-1]
        elif named_places or schema_places:
            place = min([*(2 * number for number in named_places), *(2 * number + 1 for number in schema_places)])
            top = chain[max([*named_places, *schema_places])]
        else:
            continue
        publishing.append((place, publication.oid, publication, top if publication.via_root else relation))
    return [(publication, root) for _, _, publication, root in sorted(publishing, key=lambda entry: entry[:2])]


def _filter_outside(publication: Publication, root: Relation, relation: Relation, key: tuple[int, ...]) -> bool:
    member = publication.member(root.oid)
    if member is None or member.tree is None:
        return False
    used = {node.name for node in walk(serialization.load(member.tree)) if isinstance(node, ColumnRef) and node.attnum > 0}
    return not used <= _names(relation, key)


def _list_lacks(publication: Publication, root: Relation, relation: Relation, key: tuple[int, ...], full: bool) -> bool:
    member = publication.member(root.oid)
    if member is None or member.columns is None:
        return False
    return full or not _names(relation, key) <= _names(root, member.columns)


def _names(relation: Relation, attnums: tuple[int, ...]) -> set[str]:
    return {column.name for column in relation.columns if column.attnum in attnums}
