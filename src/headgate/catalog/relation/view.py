"""Views in the catalog: pg_class with relkind 'v', columns and row type, the rule _RETURN with the texts of its query, dependencies.

`commands.view.view` builds the texts of a view's query, with references to all relations, types and functions (`registry.reference`). A
node evaluates the plain one. pg_get_viewdef prints both with the objects' names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.catalog.physical import Cursor, Oids, delete, insert, one, rows, update
from headgate.catalog.relation import attribute, definition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.definition import Definition
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.settings.definition import read_bool

RULE, RELATION, CONSTRAINT = 2618, 1259, 2606
Use = tuple[int, int, int]
"""An object on which a view's query depends: catalog, oid, and attnum, or 0 for a relation or constraint itself."""


@dataclass(frozen=True)
class Texts:
    """The texts of a view's query, without the semicolon."""

    plain: str
    pretty: str


def create(
    cursor: Cursor, oids: Oids, database: int, namespace: int, name: str, owner: int, columns: Sequence[Column], texts: Texts,
    uses: Iterable[Use], options: Sequence[str],
) -> Relation:  # fmt: skip
    """Create a view. Raise 42P07 if the name is in use."""
    view = definition.create(cursor, oids, database, Definition(namespace, name, columns, owner, kind=RelationKind.VIEW))
    update(cursor, "pg_class", {"dbid": database, "oid": view.oid}, relhasrules=True, relfilenode=0, reloptions=list(options) or None)
    _write_rule(cursor, oids, view, texts, uses)
    return view


def replace(
    cursor: Cursor, oids: Oids, view: Relation, added: Sequence[Column], texts: Texts, uses: Iterable[Use], options: Sequence[str]
) -> None:
    """Replace a view's query (CREATE OR REPLACE VIEW) by one with the same columns, and possibly further ones after them."""
    for column in added:
        attribute.add_column(cursor, oids, relations.get(cursor, view.database, view.oid), column)
    set_options(cursor, view.database, view.oid, options)
    _drop_rule(cursor, view.database, view.oid)
    _write_rule(cursor, oids, view, texts, uses)


def query(cursor: Cursor, database: int, oid: int) -> str:
    """Return the text that a node evaluates."""
    row = one(cursor, "SELECT ev_action FROM hg.pg_rewrite WHERE dbid = ? AND ev_class = ? AND rulename = '_RETURN'", [database, oid])
    return "" if row is None else str(row[0])


def options(cursor: Cursor, database: int, oid: int) -> list[str]:
    """Return the options of a view, as ``name=value``."""
    row = one(cursor, "SELECT reloptions FROM hg.pg_class WHERE dbid = ? AND oid = ?", [database, oid])
    return [] if row is None or row[0] is None else list(row[0])


def set_options(cursor: Cursor, database: int, oid: int, options: Sequence[str]) -> None:
    update(cursor, "pg_class", {"dbid": database, "oid": oid}, reloptions=list(options) or None)


def readers(cursor: Cursor, database: int, relation: int) -> list[int]:
    """Return the views (oids) that read a relation directly."""
    sql = (
        "SELECT DISTINCT w.ev_class FROM hg.pg_depend d JOIN hg.pg_rewrite w ON w.oid = d.objid AND w.dbid = d.dbid WHERE d.dbid = ?"
        " AND d.classid = 2618 AND d.refclassid = 1259 AND d.refobjid = ? AND d.deptype = 'n' ORDER BY w.ev_class"
    )
    return [oid for (oid,) in rows(cursor, sql, [database, relation])]


def naming(cursor: Cursor, database: int, name: str) -> list[int]:
    """Return the views (oids) whose queries have a name in their text."""
    sql = "SELECT ev_class FROM hg.pg_rewrite WHERE dbid = ? AND contains(ev_action, ?) ORDER BY 1"
    return [oid for (oid,) in rows(cursor, sql, [database, name])]


def write_texts(cursor: Cursor, database: int, oid: int, texts: Texts) -> None:
    """Rewrite the texts, after an object that the view reads was renamed."""
    update(cursor, "pg_rewrite", {"dbid": database, "ev_class": oid}, ev_action=texts.plain, ev_pretty=texts.pretty)


def _write_rule(cursor: Cursor, oids: Oids, view: Relation, texts: Texts, uses: Iterable[Use]) -> None:
    rule = oids()
    insert(
        cursor, "pg_rewrite", dbid=view.database, oid=rule, rulename="_RETURN", ev_class=view.oid, ev_type="1", ev_enabled="O",
        is_instead=True, ev_qual="<>", ev_action=texts.plain, ev_pretty=texts.pretty,
    )  # fmt: skip
    insert(cursor, "pg_depend", dbid=view.database, classid=RULE, objid=rule, refclassid=RELATION, refobjid=view.oid, deptype="i")
    for catalog, oid, attnum in sorted(set(uses)):
        insert(
            cursor, "pg_depend", dbid=view.database, classid=RULE, objid=rule, refclassid=catalog, refobjid=oid, refobjsubid=attnum,
            deptype="n",
        )  # fmt: skip


def _drop_rule(cursor: Cursor, database: int, view: int) -> None:
    row = one(cursor, "SELECT oid FROM hg.pg_rewrite WHERE dbid = ? AND ev_class = ?", [database, view])
    if row is not None:
        delete(cursor, "pg_depend", dbid=database, classid=2618, objid=row[0])
        delete(cursor, "pg_rewrite", dbid=database, oid=row[0])


def sources(cursor: Cursor, database: int, view: int) -> list[int]:
    """Return the oids of the relations that a view's query names."""
    relation_oids = rows(
        cursor,
        "SELECT DISTINCT d.refobjid FROM hg.pg_depend d JOIN hg.pg_rewrite r ON r.dbid = d.dbid AND r.oid = d.objid"
        " WHERE r.dbid = ? AND r.ev_class = ? AND d.classid = ? AND d.refclassid = ? AND d.deptype = 'n' ORDER BY 1",
        [database, view, RULE, RELATION],
    )
    return [oid for (oid,) in relation_oids]


def invokers_rights(options: Iterable[str]) -> bool:
    """Return whether a view with these options reads its tables with the privileges of the current user."""
    return _is_on(options, "security_invoker")


def is_barrier(options: Iterable[str]) -> bool:
    """Return whether a view with these options hides the rows that it excludes from the conditions of a query."""
    return _is_on(options, "security_barrier")


def _is_on(options: Iterable[str], name: str) -> bool:
    values = dict(option.split("=", 1) for option in options)
    return read_bool(values.get(name, "false")) is True
