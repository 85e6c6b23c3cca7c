"""Determines which changes of a relation a connection publishes, and how: pure functions over the catalog's state at one LSN.

`published` combines the publications named in START_REPLICATION for one changed relation, as pgoutput's get_rel_sync_entry,
pgoutput_row_filter_init and pgoutput_column_list_init do in PostgreSQL 15. Called by `stream`, `change_range` and
`alteration`.

    publications of a leaf L under a root P                      sent as   filter and columns of
    lists L                                                      L         L
    lists P, not via root                                        L         none
    lists P, via root                                            P         P in this publication
    A lists P via root; B lists L                                P         P in A (B only adds its actions)
    FOR ALL TABLES, via root                                     topmost   none
    FOR ALL TABLES or IN SCHEMA (of the relation sent as)        …         none: every row, all columns
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.catalog.history import PublishedState
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.catalog.replication.publication import Publication
from headgate.errors import PostgresError


class PublishedAction(enum.StrEnum):
    """A publishable operation. The value is the letter of its message."""

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"
    TRUNCATE = "T"


GENERATED_COLUMNS = 18
"""The first release that publishes generated columns."""
FILTERED = (PublishedAction.INSERT, PublishedAction.UPDATE, PublishedAction.DELETE)


@dataclass(frozen=True)
class Published:
    """How the changes of `relation` are sent, and which of its rows a subscriber has.

    `target`: the relation in the messages (the changed one, or a partitioned table above it). `filters`: the bound filters of each
    action as JSON, ORed; an action without an entry passes unfiltered. `columns`: attnums of the target that are sent, in table order.
    `copied`: the filters of an initial copy, those of all publications ORed whatever they publish; none: every row.
    """

    relation: Relation
    target: Relation
    actions: frozenset[PublishedAction]
    filters: Mapping[PublishedAction, tuple[str, ...]] = field(default_factory=dict)
    columns: tuple[int, ...] = ()
    publications: tuple[str, ...] = ()
    """The names of the publications that publish the relation."""
    copied: tuple[str, ...] = ()

    @property
    def sent_columns(self) -> tuple[Column, ...]:
        attnums = set(self.columns)
        return tuple(column for column in self.target.columns if column.attnum in attnums)

    @property
    def unfiltered(self) -> bool:
        """Whether every row passes."""
        return not self.filters


def named(state: PublishedState, names: Iterable[str], missing: Callable[[str], None] | None = None) -> list[Publication]:
    """Return the publications of these names. Raise 42704 for one that does not exist at this LSN, unless `missing` handles it."""
    publications = []
    for name in names:
        publication = state.publications.get(name)
        if publication is None and missing is not None:
            missing(name)
            continue
        if publication is None:
            raise PostgresError("42704", f'publication "{name}" does not exist')
        publications.append(publication)
    return publications


def published(state: PublishedState, publications: Sequence[Publication], oid: int, announced: int = 15) -> Published | None:
    """Return how changes of the relation are sent, or None if it is not a published table at this LSN.

    Raise 0A000 for differing column lists. `announced`: the major release whose rules decide which lists differ.
    """
    relation = state.relations.get(oid)
    if relation is None or relation.kind not in TABLE_KINDS or relation.persistence != "p":
        return None
    ancestors = state.ancestors(oid)
    actions: set[PublishedAction] = set()
    level, target_oid = 0, oid
    contributing: list[Publication] = []
    names: list[str] = []
    for publication in publications:
        sent_as = _sent_as(state, publication, relation, ancestors)
        if sent_as is None or (relation.is_partitioned and not publication.via_root):
            continue
        sent_level, as_oid = sent_as
        names.append(publication.name)
        actions |= publishes(publication)
        if sent_level > level:
            level, target_oid, contributing = sent_level, as_oid, [publication]
        elif sent_level == level:
            contributing.append(publication)
    target = state.relations.get(target_oid, relation)
    if not actions:
        return Published(relation, target, frozenset())
    filters = _filters(contributing, target)
    copied = _copied(contributing, target)
    of_rows = actions & set(FILTERED)  # column lists do not matter for a TRUNCATE alone (pgoutput.c, get_rel_sync_entry)
    columns = _columns(contributing if of_rows else (), target, announced)
    return Published(relation, target, frozenset(actions), filters, columns, tuple(names), copied)


def _sent_as(state: PublishedState, publication: Publication, relation: Relation, ancestors: Sequence[int]) -> tuple[int, int] | None:
    """Return (level, OID) of the relation as which it is sent: 0 for itself, n for its n-th ancestor. None if it is not published."""
    if publication.all_tables:
        return (len(ancestors), ancestors[-1]) if publication.via_root and ancestors else (0, relation.oid)
    top = 0
    for level, ancestor in enumerate(ancestors, 1):
        above = state.relations.get(ancestor)
        if publication.member(ancestor) is not None or (above is not None and above.namespace_oid in publication.schemas):
            top = level
    if top and publication.via_root:
        return top, ancestors[top - 1]
    if top or publication.member(relation.oid) is not None or relation.namespace_oid in publication.schemas:
        return 0, relation.oid
    return None


def publishes(publication: Publication) -> set[PublishedAction]:
    flags = {
        PublishedAction.INSERT: publication.insert,
        PublishedAction.UPDATE: publication.update,
        PublishedAction.DELETE: publication.delete,
        PublishedAction.TRUNCATE: publication.truncate,
    }
    return {action for action, enabled in flags.items() if enabled}


def _whole(publication: Publication, target: Relation) -> bool:
    """Return whether the publication includes the target without a filter or column list: FOR ALL TABLES or by schema."""
    return publication.all_tables or target.namespace_oid in publication.schemas


def _filters(publications: Sequence[Publication], target: Relation) -> dict[PublishedAction, tuple[str, ...]]:
    """Return the filters of each action, ORed. An action for which one publication has no filter is omitted."""
    filters: dict[PublishedAction, list[str]] = {}
    unfiltered: set[PublishedAction] = set()
    for publication in publications:
        member = None if _whole(publication, target) else publication.member(target.oid)
        for action in publishes(publication) & set(FILTERED):
            if member is None or member.tree is None:
                unfiltered.add(action)
            else:
                filters.setdefault(action, []).append(member.tree)
    return {action: tuple(dict.fromkeys(trees)) for action, trees in filters.items() if action not in unfiltered}


def _copied(publications: Sequence[Publication], target: Relation) -> tuple[str, ...]:
    """Return the filters of an initial copy; none if one publication has none (fetch_remote_table_info)."""
    members = [None if _whole(publication, target) else publication.member(target.oid) for publication in publications]
    trees = [member.tree for member in members if member is not None and member.tree is not None]
    return tuple(dict.fromkeys(trees)) if len(trees) == len(members) else ()


def _columns(publications: Sequence[Publication], target: Relation, announced: int) -> tuple[int, ...]:
    """Return the published columns. Generated ones are included if a list has them, or if all publications without a list say so (18).

    A list of all columns counts as none: of all that the relation has, with dropped and generated ones (15), or of all that would be sent
    (18).
    """
    listed = [(publication, None if _whole(publication, target) else publication.member(target.oid)) for publication in publications]
    stored = {publication.gencols for publication, member in listed if member is None or member.columns is None}
    if len(stored) > 1 and any(column.generated for column in target.columns):
        raise PostgresError(
            "0A000",
            f'cannot use different values of publish_generated_columns for table "{target.schema}.{target.name}" in different publications',
        )
    all_columns = tuple(column.attnum for column in target.columns if True in stored or not column.generated)
    lists: list[tuple[int, ...] | None] = []
    for _, member in listed:
        columns = None if member is None or member.columns is None else tuple(sorted(member.columns))
        whole = columns is not None and (
            len(columns) == len(target.all_columns) if announced < GENERATED_COLUMNS else columns == all_columns
        )
        lists.append(None if whole else columns)
    if any(column_list != lists[0] for column_list in lists):
        raise PostgresError(
            "0A000", f'cannot use different column lists for table "{target.schema}.{target.name}" in different publications'
        )
    column_list = lists[0] if lists else None
    return all_columns if column_list is None else tuple(column.attnum for column in target.columns if column.attnum in column_list)


def truncated(published_as: Published) -> bool:
    """Return whether a TRUNCATE of the relation is sent: not if it is a partition that is published as another table."""
    return PublishedAction.TRUNCATE in published_as.actions and published_as.target.oid == published_as.relation.oid


def identity_columns(relation: Relation) -> frozenset[int] | None:
    """Return the attnums of the old row that the log contains. None = all (FULL), empty = none."""
    if relation.replica_identity == ReplicaIdentity.FULL:
        return None
    return frozenset(relation.identity_key() or ())
