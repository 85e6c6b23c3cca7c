"""The catalog's past states, by their position in the log: a stream evaluates a change by the relations and publications of that position.

hg.history keeps one row per object and change: kind ('relation', 'publication', 'schema'), oid, the state as JSON (NULL: the object was
dropped) and the position (lsn, seq), which is the commit LSN of the log entry and the number of the change in its transaction. `record` is
called in the committing transaction and writes the objects that differ from their last recorded state. `at` reads the last rows at or
before a position.
A transaction that creates a table (seq 0), inserts (seq 1) and publishes it (seq 2) at LSN 0/500 leaves a row for the relation at
(0/500, 0) and one for the publication at (0/500, 2). The insert is evaluated by `at(…, 0/500, 1)`, so it is not published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from headgate.catalog.cursor import Rows
from headgate.catalog.physical import Cursor, rows, run, update
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
"""A query that names the catalogs of schemas and publications, to test whether a transaction has written to them."""
_FEW = 8
"""Maximum number of relations whose states are read one by one. The results of these queries are cached, and for a new relation they do
not need DuckDB."""


@dataclass(frozen=True)
class PublishedState:
    """Relations (by oid), publications (by name) and schemas (name by oid) of one database at one position of the log."""

    relations: dict[int, Relation] = field(default_factory=dict)
    publications: dict[str, Publication] = field(default_factory=dict)
    schemas: dict[int, str] = field(default_factory=dict)

    def ancestors(self, relation: int) -> list[int]:
        """Return the oids of the partitioned tables above a relation, nearest first."""
        oids: list[int] = []
        relation_above = self.relations.get(relation)
        while relation_above is not None and relation_above.parent:
            oids.append(relation_above.parent)
            relation_above = self.relations.get(relation_above.parent)
        return oids


def current(cursor: Cursor, database: int, among: AbstractSet[int] | None = None) -> PublishedState:
    """Return the state that the cursor's transaction sees. With `among`, include only these relations (oids)."""
    names = rows(cursor, "SELECT oid, nspname FROM hg.pg_namespace WHERE dbid = ?", [database])
    if among is None:
        tables = relations.all_tables(cursor, database)
    else:
        tables = [table for table in relations.load_many(cursor, database, sorted(among)) if table.kind in TABLE_KINDS]
    return PublishedState(
        {table.oid: table for table in tables},
        {publication.name: publication for publication in publications.all_publications(cursor, database)},
        dict(names),
    )


def touched(*relations_seen: Relation) -> set[int] | None:
    """Return the oids of the relations that a change of one table may have affected, or None if it may be any relation.

    The arguments are the table before and after the change. A foreign key belongs to both of its tables. A partitioned table is altered
    with its partitions.
    """
    if any(table.kind == RelationKind.PARTITIONED_TABLE for table in relations_seen):
        return None
    keys = [key for table in relations_seen for key in (*table.foreign_keys, *table.referenced)]
    return {table.oid for table in relations_seen} | {oid for key in keys for oid in (key.relation, key.target)}


def record(cursor: Cursor, database: int, lsn: int, seq: int, among: AbstractSet[int] | None = None, *, again: bool = False) -> bool:
    """Write the objects of the database that changed since the last record, at the position (lsn, seq). Return whether there are any.

    `again`: there may be rows at this position, which are replaced: an ALTER TABLE of several columns records each of its steps.
    With `among`, the caller guarantees that only these relations (oids) have changed. `lsn` is `provisional` until the transaction's
    position is known. Provisional rows of other (prepared) transactions are ignored.
    """
    if among is not None and len(among) <= _FEW and not cursor.has_written(_OTHERS):
        before = {("relation", oid): _last_state(cursor, database, lsn, oid) for oid in among}
        tables = [table for table in relations.load_many(cursor, database, sorted(among)) if table.kind in TABLE_KINDS]
        if not tables or any(state is not None for state in before.values()) or _is_begun(cursor, database):
            now = PublishedState({table.oid: table for table in tables})
            return _write_changed(cursor, (database, lsn, seq), before, now, again=again)
    scope = "" if among is None else f" AND (kind <> 'relation' OR oid IN ({', '.join(map(str, [0, *sorted(among)]))}))"
    recorded_states = rows(cursor, _SEEN.format(scope), [database, PROVISIONAL - 1, lsn, 2**31 - 1, lsn])
    if not recorded_states and among is not None and not _is_begun(cursor, database):
        among = None
    before = {(kind, oid): state for kind, oid, state in recorded_states}
    return _write_changed(cursor, (database, lsn, seq), before, current(cursor, database, among), again=again)


def _is_begun(cursor: Cursor, database: int) -> bool:
    return bool(rows(cursor, "SELECT 1 FROM hg.history WHERE dbid = ? LIMIT 1", [database]))


def _last_state(cursor: Cursor, database: int, own: int, oid: int) -> str | None:
    """Return the last state of a relation that a transaction, whose records are at `own`, has recorded or sees; None if there is none."""
    states = rows(cursor, _OF_RELATION, [database, "relation", oid])
    seen = [(lsn == own, lsn, seq, state) for lsn, seq, state in states if lsn == own or lsn < PROVISIONAL]
    return max(seen, key=lambda row: row[:3])[3] if seen else None


def _write_changed(
    cursor: Cursor, place: tuple[int, int, int], before: Mapping[tuple[str, int], str | None], now: PublishedState, *, again: bool
) -> bool:
    """Write the objects that differ from their last states, at (database, lsn, seq). Return whether there are any."""
    objects = dict(_objects(now))
    changed: list[tuple[tuple[str, int], str | None]] = [(key, state) for key, state in objects.items() if before.get(key) != state]
    changed += [(key, None) for key, last in before.items() if last is not None and key not in objects]
    for key, state in changed:
        if again:
            run(cursor, "DELETE FROM hg.history WHERE dbid = ? AND lsn = ? AND seq = ? AND kind = ? AND oid = ?", [*place, *key])
        _insert(cursor, *place, *key, state)
    return bool(changed)


def _insert(cursor: Cursor, *row: object) -> None:
    run(cursor, "INSERT INTO hg.history (dbid, lsn, seq, kind, oid, state) VALUES (?, ?, ?, ?, ?, ?)", row)


def at(cursor: Cursor, database: int, lsn: int, seq: int) -> PublishedState:
    """Return the state last recorded at or before (lsn, seq). It is empty if nothing had been recorded by then."""
    state = PublishedState()
    for kind, oid, text in rows(cursor, _LATEST, [database, lsn, lsn, seq]):
        if text is not None:
            _add(state, kind, oid, json.loads(text))
    return state


def seen(cursor: Cursor, database: int, base: int, own: int, seq: int) -> PublishedState:
    """Return the state that a transaction saw: that of others at or before `base`, and its own changes (at `own`) up to `seq`."""
    state = PublishedState()
    for kind, oid, text in rows(cursor, _SEEN.format(""), [database, base, own, seq, own]):
        if text is not None:
            _add(state, kind, oid, json.loads(text))
    return state


def last_change(cursor: Cursor, database: int, until: int) -> int:
    """Return the LSN of the last change at or before `until`, or -1 if there is none."""
    latest = rows(cursor, "SELECT max(lsn) FROM hg.history WHERE dbid = ? AND lsn <= ?", [database, until])
    return -1 if latest[0][0] is None else int(latest[0][0])


def place(cursor: Cursor, database: int, xid: int, lsn: int) -> None:
    """Set the final LSN of the rows that a transaction has recorded."""
    update(cursor, "history", {"dbid": database, "lsn": PROVISIONAL + xid}, lsn=lsn)


def recorded(cursor: Cursor, database: int, xid: int) -> Rows:
    """Return the rows that a transaction without a position has recorded, for `repeat` in another catalog transaction."""
    return rows(cursor, "SELECT * FROM hg.history WHERE dbid = ? AND lsn = ?", [database, PROVISIONAL + xid])


def repeat(cursor: Cursor, recorded: Rows) -> None:
    """Write the rows that `recorded` returned."""
    for row in recorded:
        _insert(cursor, *row)


def place_prepared(cursor: Cursor, database: int, xid: int, lsn: int) -> None:
    """Copy the rows of a prepared transaction to its LSN, for COMMIT PREPARED. Slots that reread the PREPARE need the provisional rows."""
    run(
        cursor,
        "INSERT INTO hg.history SELECT DISTINCT dbid, ?::UBIGINT, seq, kind, oid, state FROM hg.history WHERE dbid = ? AND lsn = ?",
        [lsn, database, PROVISIONAL + xid],
    )


def changes(cursor: Cursor, database: int, after: int, until: int) -> list[tuple[int, int]]:
    """Return the positions (lsn, seq) in (after, until] at which the state changed, in order."""
    sql = "SELECT DISTINCT lsn, seq FROM hg.history WHERE dbid = ? AND lsn > ? AND lsn <= ? ORDER BY 1, 2"
    return [(lsn, seq) for lsn, seq in rows(cursor, sql, [database, after, until])]


def following(cursor: Cursor, database: int) -> set[int]:
    """Return the LSNs at which a publication with `reconcile` changed.

    The query reads the whole history, so its result is cached (`cursor`) until the catalog changes, and a stream may call this for each
    batch.
    """
    sql = (
        "SELECT DISTINCT lsn FROM hg.history WHERE dbid = ? AND lsn < ? AND kind = 'publication' AND contains(state, '\"reconcile\":true')"
    )
    return {int(lsn) for (lsn,) in rows(cursor, sql, [database, PROVISIONAL])}


def prune(cursor: Cursor, database: int, lsn: int, besides: Sequence[int] | None = None) -> None:
    """Delete the rows that no reader at or after `lsn` needs: those superseded by a later row that is itself before `lsn`.

    With `besides`, only rows of relations other than these (oids) are deleted.
    """
    some = "" if besides is None else " AND kind = 'relation' AND NOT list_contains(?, oid)"
    run(
        cursor,
        f"DELETE FROM hg.history h WHERE dbid = ? AND lsn < ?{some} AND EXISTS (SELECT 1 FROM hg.history n WHERE n.dbid = h.dbid AND"
        " n.kind = h.kind AND n.oid = h.oid AND n.lsn < ? AND (n.lsn > h.lsn OR (n.lsn = h.lsn AND n.seq > h.seq)))",
        [database, lsn, *([] if besides is None else [list(besides)]), lsn],
    )


def forget_provisional(cursor: Cursor, prepared: Iterable[int]) -> None:
    """Delete provisional rows of transactions other than `prepared` (xids of prepared transactions that are in the log)."""
    run(cursor, "DELETE FROM hg.history WHERE lsn >= ? AND NOT list_contains(?, lsn - ?)", [PROVISIONAL, list(prepared), PROVISIONAL])


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
