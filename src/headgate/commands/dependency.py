"""What depends on an object that is to go, and what DROP says and does about it (PostgreSQL's dependency.c).

Called by DROP TABLE, SCHEMA, VIEW, SEQUENCE and by ALTER TABLE DROP COLUMN and DROP CONSTRAINT: with RESTRICT they refuse (2BP01,
the dependants in the DETAIL), with CASCADE they tell (NOTICE) and drop the dependants too. What belongs to an object (its indexes,
defaults, owned sequences, its membership in publications) goes without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import attribute, foreign_key, removal
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import ForeignKey, Index, Relation
from headgate.catalog.session import SessionContext
from headgate.commands import lookup
from headgate.errors import Notices, PostgresError
from headgate.sql import names
from headgate.storage.transaction.transaction import Transaction

HINT = "Use DROP ... CASCADE to drop the dependent objects too."


@dataclass(frozen=True)
class Dependant:
    """An object that depends on another. `key` names it, `shown` and `on` are how messages call it and what it depends on.

    `owner`: the relation that it is or belongs to.
    """

    key: tuple[int, int]
    shown: str
    on: str
    drop: Callable[[], None]
    owner: Relation | None = None


def shown(cursor: Cursor, context: SessionContext, relation: Relation) -> str:
    """A relation as messages about dependencies call it: ``table t``, ``view s.v``; qualified where the search path does not find it."""
    return f"{lookup.KINDS[relation.kind]} {shown_name(cursor, context, relation)}"


def shown_name(cursor: Cursor, context: SessionContext, relation: Relation) -> str:
    """Its name, with the schema where the search path does not find it."""
    visible = relations.find_oid(cursor, context.database, None, relation.name, lookup.search_path(cursor, context)) == relation.oid
    return names.quote_ident(relation.name) if visible else names.qualified(relation.schema, relation.name)


def of_relation(cursor: Cursor, context: SessionContext, relation: Relation) -> list[Dependant]:
    """What depends on a table or view: foreign keys of other tables, and views, and what depends on these."""
    on = shown(cursor, context, relation)
    found = [_of_key(cursor, context, key, on) for key in relation.referenced if key.relation != relation.oid]
    return found + views_of(cursor, context, relation, on)


def of_sequence(cursor: Cursor, context: SessionContext, found: Relation) -> list[Dependant]:
    """The defaults that take a sequence's values."""
    made = []
    for oid, table, attnum in rows(
        cursor,
        "SELECT a.oid, a.adrelid, a.adnum FROM hg.pg_depend d JOIN hg.pg_attrdef a ON a.oid = d.objid AND a.dbid = d.dbid WHERE d.dbid = ?"
        " AND d.classid = 2604 AND d.refclassid = 1259 AND d.refobjid = ? AND d.deptype = 'n' ORDER BY a.oid",
        [context.database, found.oid],
    ):
        relation = relations.get(cursor, context.database, table)
        column = relation.numbered(attnum)
        if column is not None:
            text = f"default value for column {column.name} of {shown(cursor, context, relation)}"
            made.append(
                Dependant(
                    (2604, oid),
                    text,
                    f"sequence {shown_name(cursor, context, found)}",
                    _without_default(cursor, relation, attnum),
                    relation,
                )
            )
    return made


def _without_default(cursor: Cursor, relation: Relation, attnum: int) -> Callable[[], None]:
    return lambda: attribute.set_default(cursor, lambda: 0, relation, attnum, None)


def of_column(cursor: Cursor, context: SessionContext, relation: Relation, attnum: int) -> list[Dependant]:
    """What depends on a column, but for the table's own expressions and publications: foreign keys of other tables, and views."""
    column = relation.numbered(attnum)
    assert column is not None
    on = f"column {column.name} of {shown(cursor, context, relation)}"
    found = [
        _of_key(cursor, context, key, on)
        for key in relation.referenced
        if attnum in key.target_columns and (key.relation != relation.oid or attnum not in key.columns)
    ]
    return found + views_of(cursor, context, relation, on, attnum)


def of_index(cursor: Cursor, context: SessionContext, relation: Relation, index: Index) -> list[Dependant]:
    """The foreign keys that need a unique index, which is a constraint's."""
    on = f"index {shown_index(relation, index, cursor, context)}"
    return [_of_key(cursor, context, key, on) for key in relation.referenced if key.index == index.oid]


def shown_index(relation: Relation, index: Index, cursor: Cursor, context: SessionContext) -> str:
    """An index's name as messages show it."""
    return shown_name(cursor, context, relations.get(cursor, relation.database, index.oid))


def _of_key(cursor: Cursor, context: SessionContext, key: ForeignKey, on: str) -> Dependant:
    owner = relations.get(cursor, context.database, key.relation)
    text = f"constraint {key.name} on {shown(cursor, context, owner)}"
    return Dependant((2606, key.oid), text, on, lambda: foreign_key.drop(cursor, context.database, key.oid), owner)


def drop_relation(cursor: Cursor, context: SessionContext, oid: int) -> None:
    """Removes a view (or another relation without rows) from the catalog."""
    removal.drop(cursor, context.database, oid)


def views_of(cursor: Cursor, context: SessionContext, relation: Relation, on: str, attnum: int = 0) -> list[Dependant]:
    """The views that read a relation (or one column of it), and the views that read these."""
    wanted = "" if not attnum else f" AND d.refobjsubid = {int(attnum)}"
    found: list[Dependant] = []
    for (oid,) in rows(
        cursor,
        "SELECT DISTINCT w.ev_class FROM hg.pg_depend d JOIN hg.pg_rewrite w ON w.oid = d.objid AND w.dbid = d.dbid WHERE d.dbid = ?"
        f" AND d.classid = 2618 AND d.refclassid = 1259 AND d.refobjid = ? AND d.deptype = 'n'{wanted} ORDER BY w.ev_class",
        [context.database, relation.oid],
    ):
        view = relations.get(cursor, context.database, oid)

        def drop(oid: int = oid) -> None:
            drop_relation(cursor, context, oid)

        name = shown(cursor, context, view)
        found.append(Dependant((1259, oid), name, on, drop, view))
        found += views_of(cursor, context, view, name)
    return found


def settle(
    transaction: Transaction, found: Iterable[Dependant], subjects: Sequence[str], notices: Notices, *, cascade: bool,
    going: Iterable[tuple[int, int]] = (),
) -> None:  # fmt: skip
    """2BP01 if anything depends on the `subjects`, or with `cascade` a NOTICE, and the dependants are dropped.

    `going` are the keys of the objects that the command drops by itself. As in PostgreSQL, the dependants are waited for in both cases.
    """
    seen = set(going)
    left: list[Dependant] = []
    for each in found:
        if each.key not in seen:
            seen.add(each.key)
            left.append(each)
    if not left:
        return
    for owner in {each.owner.oid: each.owner for each in left if each.owner is not None}.values():
        transaction.own(owner)
    if not cascade:
        subject = (
            f"{subjects[0]} because other objects depend on it"
            if len(subjects) == 1
            else ("desired object(s) because other objects depend on them")
        )
        detail = "\n".join(f"{each.shown} depends on {each.on}" for each in left)
        raise PostgresError("2BP01", f"cannot drop {subject}", detail=detail, hint=HINT)
    tell([each.shown for each in left], notices)
    for each in reversed(left):
        each.drop()


def tell(dropped: Sequence[str], notices: Notices) -> None:
    """NOTICE `drop cascades to …`."""
    if len(dropped) == 1:
        notices.notice(f"drop cascades to {dropped[0]}")
    elif dropped:
        detail = "\n".join(f"drop cascades to {each}" for each in dropped)
        notices.notice(f"drop cascades to {len(dropped)} other objects", detail=detail)
