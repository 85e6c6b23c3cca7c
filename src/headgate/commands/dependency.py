"""Find the objects that depend on an object to drop, and reject the DROP or drop them too (PostgreSQL's dependency.c).

Called by DROP TABLE, SCHEMA, VIEW, SEQUENCE and by ALTER TABLE DROP COLUMN and DROP CONSTRAINT. With RESTRICT, they raise 2BP01 with the
dependent objects in the DETAIL. With CASCADE, they send a NOTICE and drop the dependent objects too. Objects that belong to an object (its
indexes, defaults, owned sequences, its membership in publications) are dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import foreign_key, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import ForeignKey, Index, Relation
from headgate.catalog.session import SessionContext
from headgate.commands import lookup
from headgate.errors import Notices, PostgresError
from headgate.sql import names
from headgate.storage.transaction.transaction import Transaction

COLUMN = 1249
"""The catalog in the key of a column, whose number is the oid of its table << 11 | attnum. A table has at most 1,600 columns."""
_RELATION = 1259
HINT = "Use DROP ... CASCADE to drop the dependent objects too."


@dataclass(frozen=True)
class Dependant:
    """An object that depends on another. `key` identifies it. `shown` and `on` are the names of it and of the other object in messages.

    `owner`: the relation that it is or belongs to.
    """

    key: tuple[int, int]
    shown: str
    on: str
    drop: Callable[[], None]
    owner: Relation | None = None

    @property
    def place(self) -> int:
        """The oid by which PostgreSQL orders the objects that depend on one: of a column, that of its table."""
        return self.key[1] >> 11 if self.key[0] == COLUMN else self.key[1]


def shown(cursor: Cursor, context: SessionContext, relation: Relation) -> str:
    """Return a relation as dependency messages name it: ``table t``, ``view s.v``. The name is qualified if it is not visible."""
    return f"{lookup.KINDS[relation.kind]} {shown_name(cursor, context, relation)}"


def shown_name(cursor: Cursor, context: SessionContext, relation: Relation) -> str:
    """Return the name of a relation, with the schema if the search path does not find it."""
    visible = relations.find_oid(cursor, context.database, None, relation.name, lookup.search_path(cursor, context)) == relation.oid
    return names.quote_ident(relation.name) if visible else names.qualified(relation.schema, relation.name)


def keys_of(cursor: Cursor, context: SessionContext, relation: Relation) -> list[Dependant]:
    """Return the foreign keys of other tables that reference a table."""
    on = shown(cursor, context, relation)
    return [_of_key(cursor, context, key, on) for key in relation.referenced if key.relation != relation.oid]


def of_column(cursor: Cursor, context: SessionContext, relation: Relation, attnum: int) -> list[Dependant]:
    """Return the foreign keys and views that depend on a column. The table's own expressions and publications are not included."""
    column = relation.numbered(attnum)
    assert column is not None
    on = f"column {column.name} of {shown(cursor, context, relation)}"
    dependants = [
        _of_key(cursor, context, key, on)
        for key in relation.referenced
        if attnum in key.target_columns and (key.relation != relation.oid or attnum not in key.columns)
    ]
    return dependants + views_of(cursor, context, relation, on, attnum)


def of_index(cursor: Cursor, context: SessionContext, relation: Relation, index: Index) -> list[Dependant]:
    """Return the foreign keys and views that depend on a unique index or its constraint."""
    on = f"index {shown_name(cursor, context, relations.get(cursor, relation.database, index.oid))}"
    dependants = [_of_key(cursor, context, key, on) for key in relation.referenced if key.index == index.oid]
    constraint = f"constraint {names.quote_ident(index.name)} on {shown(cursor, context, relation)}"
    return dependants + _readers(cursor, context, f"d.refclassid = 2606 AND d.refobjid = {index.constraint}", constraint, {relation.oid})


def _of_key(cursor: Cursor, context: SessionContext, key: ForeignKey, on: str) -> Dependant:
    """Return a foreign key. For the clone for a partition of the referenced table, it is the constraint that the clone belongs to."""
    owner = relations.get(cursor, context.database, key.relation)
    key = foreign_key.root_of(cursor, owner, key)
    text = f"constraint {key.name} on {shown(cursor, context, owner)}"
    return Dependant((2606, key.oid), text, on, lambda: foreign_key.drop(cursor, context.database, key.oid), owner)


def views_of(cursor: Cursor, context: SessionContext, relation: Relation, on: str, attnum: int = 0) -> list[Dependant]:
    """Return the views that read a relation (or one column of it), and the views that read these."""
    column = f" AND d.refobjsubid = {attnum}" if attnum else ""
    return _readers(cursor, context, f"d.refclassid = 1259 AND d.refobjid = {relation.oid}{column}", on, {relation.oid})


def _readers(cursor: Cursor, context: SessionContext, condition: str, on: str, within: AbstractSet[int]) -> list[Dependant]:
    """Return the views whose dependencies meet a condition, and the views that read these.

    `within`: the relations on the way to these views, because CREATE OR REPLACE VIEW can make views read each other.
    """
    dependants: list[Dependant] = []
    for (oid,) in rows(
        cursor,
        "SELECT DISTINCT w.ev_class FROM hg.pg_depend d JOIN hg.pg_rewrite w ON w.oid = d.objid AND w.dbid = d.dbid WHERE d.dbid = ?"
        f" AND d.classid = 2618 AND d.deptype = 'n' AND {condition} ORDER BY w.ev_class",
        [context.database],
    ):
        if oid in within:
            continue
        view = relations.get(cursor, context.database, oid)

        def drop(oid: int = oid) -> None:
            removal.drop(cursor, context.database, oid)

        name = shown(cursor, context, view)
        dependants.append(Dependant((1259, oid), name, on, drop, view))
        dependants += _readers(cursor, context, f"d.refclassid = 1259 AND d.refobjid = {oid}", name, within | {oid})
    return dependants


def settle(
    transaction: Transaction, candidates: Iterable[Dependant], subjects: Sequence[str], notices: Notices, *, cascade: bool,
    going: Iterable[tuple[int, int]] = (), silent: AbstractSet[tuple[int, int]] = frozenset(),
) -> None:  # fmt: skip
    """Raise 2BP01 if an object depends on the `subjects`. With `cascade`, send a NOTICE and drop the dependent objects instead.

    `going`: the keys of the objects that the command itself drops. `silent`: the keys of those that are dropped and not reported, as are
    defaults, indexes and other parts of a relation that is dropped. An object that depends on several others is reported at its last
    place. As in PostgreSQL, the dependent objects are locked in both cases.
    """
    candidates, gone = list(candidates), set(going)
    relations_dropped = {oid for catalog, oid in (*gone, *(dependant.key for dependant in candidates)) if catalog == _RELATION}
    last = {dependant.key: place for place, dependant in enumerate(candidates)}
    dependants = [
        dependant
        for place, dependant in enumerate(candidates)
        if last[dependant.key] == place and dependant.key not in gone and not _is_part(dependant, relations_dropped)
    ]
    reported = [dependant for dependant in dependants if dependant.key not in silent]
    if not reported:
        return
    for owner in {dependant.owner.oid: dependant.owner for dependant in dependants if dependant.owner is not None}.values():
        transaction.own(owner)
    tell(subjects, [(dependant.shown, dependant.on) for dependant in reported], notices, cascade=cascade)
    for dependant in reversed(dependants):
        dependant.drop()


def _is_part(dependant: Dependant, relations_dropped: AbstractSet[int]) -> bool:
    """Return whether a dependent object is a part of a relation that is dropped too."""
    owner = dependant.owner
    return owner is not None and owner.oid in relations_dropped and dependant.key != (_RELATION, owner.oid)


def tell(subjects: Sequence[str], dependants: Sequence[tuple[str, str]], notices: Notices, *, cascade: bool) -> None:
    """Send the NOTICE `drop cascades to …` for dependent objects, given with what each depends on. Raise 2BP01 unless `cascade`."""
    if not dependants:
        return
    if not cascade:
        subject, pronoun = (subjects[0], "it") if len(subjects) == 1 else ("desired object(s)", "them")
        message = f"cannot drop {subject} because other objects depend on {pronoun}"
        raise PostgresError("2BP01", message, detail="\n".join(f"{shown} depends on {on}" for shown, on in dependants), hint=HINT)
    lines = [f"drop cascades to {shown}" for shown, _ in dependants]
    if len(lines) == 1:
        notices.notice(lines[0])
    else:
        notices.notice(f"drop cascades to {len(lines)} other objects", detail="\n".join(lines))
