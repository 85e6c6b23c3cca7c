"""What the catalog was at a place in the log: a stream judges a change by the relations and publications that held there.

hg.history keeps one row per object and change: kind ('relation', 'publication', 'schema'), oid, the state as JSON (NULL: the
object is gone), at (lsn, seq) = the commit LSN of the log entry and the place of the change in its transaction. `record` is called
in the committing transaction and writes what differs from the last recorded state; `at` reads the last rows at or before a place.
A transaction that creates a table (seq 0), inserts (seq 1) and publishes it (seq 2) at LSN 0/500 leaves a row for the relation at
(0/500, 0) and one for the publication at (0/500, 2); the insert is judged by `at(…, 0/500, 1)`: not published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from headgate.catalog.cursor import Rows
from headgate.catalog.physical import Cursor, rows, run
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.replication import publication as publications
from headgate.catalog.replication.publication import Publication
from headgate.catalog.unwritten import PROVISIONAL

_LATEST = (
    "SELECT kind, oid, state FROM hg.history WHERE dbid = ? AND (lsn < ? OR (lsn = ? AND seq <= ?))"
    " QUALIFY row_number() OVER (PARTITION BY kind, oid ORDER BY lsn DESC, seq DESC) = 1"
)

_SEEN = (
    "SELECT kind, oid, state FROM hg.history WHERE dbid = ? AND (lsn <= ? OR (lsn = ? AND seq <= ?)){}"
    " QUALIFY row_number() OVER (PARTITION BY kind, oid ORDER BY (lsn = ?) DESC, lsn DESC, seq DESC) = 1"
)
_OF_RELATION = "SELECT lsn, seq, state FROM hg.history WHERE dbid = ? AND kind = ? AND oid = ?"
_OTHERS = "SELECT 1 FROM hg.pg_namespace, hg.pg_publication, hg.pg_publication_rel, hg.pg_publication_namespace"
"""Names the catalogs of schemas and publications."""
_FEW = 8
"""The states of so many relations are read one by one: these queries are kept, and need no DuckDB for a new relation."""


@dataclass(frozen=True)
class PublishedState:
    """Relations (by oid), publications (by name) and schemas (name by oid) of one database at one place of the log."""

    relations: dict[int, Relation] = field(default_factory=dict)
    publications: dict[str, Publication] = field(default_factory=dict)
    schemas: dict[int, str] = field(default_factory=dict)

    def ancestors(self, relation: int) -> list[int]:
        """oids of the partitioned tables above a relation, nearest first."""
        found: list[int] = []
        at = self.relations.get(relation)
        while at is not None and at.parent:
            found.append(at.parent)
            at = self.relations.get(at.parent)
        return found


def current(cursor: Cursor, database: int, among: AbstractSet[int] | None = None) -> PublishedState:
    """The state as the cursor's transaction sees it; `among`: of these relations (oids) only."""
    names = rows(cursor, "SELECT oid, nspname FROM hg.pg_namespace WHERE dbid = ?", [database])
    if among is None:
        found = relations.all_tables(cursor, database)
    else:
        found = [each for each in relations.load_many(cursor, database, sorted(among)) if each.kind in TABLE_KINDS]
    return PublishedState(
        {each.oid: each for each in found},
        {each.name: each for each in publications.all_publications(cursor, database)},
        dict(names),
    )


def touched(*relations_seen: Relation) -> set[int] | None:
    """The relations that what was done to one table may have changed, by what it was before and after; None: whichever.

    A foreign key belongs to both of its tables. A partitioned table is altered with its partitions.
    """
    if any(each.kind == RelationKind.PARTITIONED_TABLE for each in relations_seen):
        return None
    keys = [key for each in relations_seen for key in (*each.foreign_keys, *each.referenced)]
    return {each.oid for each in relations_seen} | {oid for key in keys for oid in (key.relation, key.target)}


def record(cursor: Cursor, database: int, lsn: int, seq: int, among: AbstractSet[int] | None = None) -> bool:
    """Write the objects of the database that changed since the last record, at the place (lsn, seq). Return whether there are any.

    `among`: no relation but one of these (oids) has changed. `lsn` is `provisional` until the transaction's place is known; provisional
    rows of others (prepared ones) are ignored.
    """
    if among is not None and len(among) <= _FEW and not cursor.has_written(_OTHERS):
        before = {("relation", oid): _last_state(cursor, database, lsn, oid) for oid in among}
        found = [each for each in relations.load_many(cursor, database, sorted(among)) if each.kind in TABLE_KINDS]
        if not found or any(state is not None for state in before.values()) or _is_begun(cursor, database):
            return _write_changed(cursor, (database, lsn, seq), before, PublishedState({each.oid: each for each in found}))
    some = "" if among is None else f" AND (kind <> 'relation' OR oid IN ({', '.join(map(str, [0, *sorted(among)]))}))"
    known = rows(cursor, _SEEN.format(some), [database, PROVISIONAL - 1, lsn, 2**31 - 1, lsn])
    if not known and among is not None and not _is_begun(cursor, database):
        among = None
    before = {(kind, oid): state for kind, oid, state in known}
    return _write_changed(cursor, (database, lsn, seq), before, current(cursor, database, among))


def _is_begun(cursor: Cursor, database: int) -> bool:
    """Return whether anything has been recorded of a database."""
    return bool(rows(cursor, "SELECT 1 FROM hg.history WHERE dbid = ? LIMIT 1", [database]))


def _last_state(cursor: Cursor, database: int, own: int, oid: int) -> str | None:
    """Return the last state of a relation that a transaction, whose records are at `own`, has recorded or sees; None if there is none."""
    found = rows(cursor, _OF_RELATION, [database, "relation", oid])
    seen = [(lsn == own, lsn, seq, state) for lsn, seq, state in found if lsn == own or lsn < PROVISIONAL]
    return max(seen, key=lambda row: row[:3])[3] if seen else None


def _write_changed(cursor: Cursor, place: tuple[int, int, int], before: Mapping[tuple[str, int], str | None], now: PublishedState) -> bool:
    """Write the objects that differ from their last states, at (database, lsn, seq). Return whether there are any."""
    objects = dict(_objects(now))
    changed: list[tuple[tuple[str, int], str | None]] = [(key, state) for key, state in objects.items() if before.get(key) != state]
    changed += [(key, None) for key, last in before.items() if last is not None and key not in objects]
    for key, state in changed:
        _insert(cursor, *place, *key, state)
    return bool(changed)


def _insert(cursor: Cursor, *row: object) -> None:
    run(cursor, "INSERT INTO hg.history (dbid, lsn, seq, kind, oid, state) VALUES (?, ?, ?, ?, ?, ?)", row)


def at(cursor: Cursor, database: int, lsn: int, seq: int) -> PublishedState:
    """The state last recorded at or before (lsn, seq); an empty one if nothing was recorded by then."""
    state = PublishedState()
    for kind, oid, text in rows(cursor, _LATEST, [database, lsn, lsn, seq]):
        if text is not None:
            _add(state, kind, oid, json.loads(text))
    return state


def seen(cursor: Cursor, database: int, base: int, own: int, seq: int) -> PublishedState:
    """What a transaction saw: what others had recorded at or before `base`, and over it its own changes (at `own`) up to `seq`."""
    state = PublishedState()
    for kind, oid, text in rows(cursor, _SEEN.format(""), [database, base, own, seq, own]):
        if text is not None:
            _add(state, kind, oid, json.loads(text))
    return state


def last_change(cursor: Cursor, database: int, until: int) -> int:
    """The LSN of the last change at or before `until`; -1 where there is none."""
    found = rows(cursor, "SELECT max(lsn) FROM hg.history WHERE dbid = ? AND lsn <= ?", [database, until])
    return -1 if found[0][0] is None else int(found[0][0])


def place(cursor: Cursor, database: int, xid: int, lsn: int) -> None:
    """Gives what a transaction has recorded its place in the log."""
    run(cursor, "UPDATE hg.history SET lsn = ? WHERE dbid = ? AND lsn = ?", [lsn, database, PROVISIONAL + xid])


def recorded(cursor: Cursor, database: int, xid: int) -> Rows:
    """The rows that a transaction without a place has recorded, for `repeat` in another catalog transaction."""
    return rows(cursor, "SELECT * FROM hg.history WHERE dbid = ? AND lsn = ?", [database, PROVISIONAL + xid])


def repeat(cursor: Cursor, recorded: Rows) -> None:
    """Writes rows that `recorded` gave."""
    for row in recorded:
        _insert(cursor, *row)


def place_prepared(cursor: Cursor, database: int, xid: int, lsn: int) -> None:
    """As `place`, for COMMIT PREPARED: the provisional rows stay for slots that read the PREPARE again."""
    run(
        cursor,
        "INSERT INTO hg.history SELECT DISTINCT dbid, ?::UBIGINT, seq, kind, oid, state FROM hg.history WHERE dbid = ? AND lsn = ?",
        [lsn, database, PROVISIONAL + xid],
    )


def changes(cursor: Cursor, database: int, after: int, until: int) -> list[tuple[int, int]]:
    """The places (lsn, seq) in (after, until] at which the state changed, in order."""
    sql = "SELECT DISTINCT lsn, seq FROM hg.history WHERE dbid = ? AND lsn > ? AND lsn <= ? ORDER BY 1, 2"
    return [(lsn, seq) for lsn, seq in rows(cursor, sql, [database, after, until])]


def following(cursor: Cursor, database: int) -> set[int]:
    """The LSNs at which a publication changed whose alterations are followed (`reconcile`).

    All that the history has: so the answer is kept (`cursor`) until the catalog changes, and a stream may ask for each batch.
    """
    sql = (
        "SELECT DISTINCT lsn FROM hg.history WHERE dbid = ? AND lsn < ? AND kind = 'publication' AND contains(state, '\"reconcile\":true')"
    )
    return {int(lsn) for (lsn,) in rows(cursor, sql, [database, PROVISIONAL])}


def prune(cursor: Cursor, database: int, lsn: int) -> None:
    """Removes what no reader at or after `lsn` needs: rows that a later one, itself before `lsn`, supersedes."""
    run(
        cursor,
        "DELETE FROM hg.history h WHERE dbid = ? AND lsn < ? AND EXISTS (SELECT 1 FROM hg.history n WHERE n.dbid = h.dbid AND n.kind ="
        " h.kind AND n.oid = h.oid AND n.lsn < ? AND (n.lsn > h.lsn OR (n.lsn = h.lsn AND n.seq > h.seq)))",
        [database, lsn, lsn],
    )


def forget_provisional(cursor: Cursor, kept: Iterable[int]) -> None:
    """Removes what was recorded by transactions that have not been prepared, or whose PREPARE the log has forgotten; `kept`: xids."""
    run(cursor, "DELETE FROM hg.history WHERE lsn >= ? AND NOT list_contains(?, lsn - ?)", [PROVISIONAL, list(kept), PROVISIONAL])


def _objects(state: PublishedState) -> Iterable[tuple[tuple[str, int], str]]:
    for relation in state.relations.values():
        yield ("relation", relation.oid), _text(relation.dump())
    for publication in state.publications.values():
        yield ("publication", publication.oid), _text(publication.dump())
    for oid, name in state.schemas.items():
        yield ("schema", oid), _text(name)


def _add(state: PublishedState, kind: str, oid: int, value: Any) -> None:
    if kind == "relation":
        state.relations[oid] = Relation.load(value)
    elif kind == "publication":
        state.publications[value["name"]] = Publication.load(value)
    else:
        state.schemas[oid] = value


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
