"""The printed keys of indexes and constraints, which pg_get_indexdef and pg_get_constraintdef insert into their texts.

The texts are written when a key is created and when one of its columns is renamed, so that a query that prints thousands of them only
reads. Called by `index` for a new index, by `attribute` and `foreign_key` for a relation, and by `macros.install` for all relations of a
database.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headgate.catalog.physical import Cursor, rows, run
from headgate.catalog.pretty import pretty
from headgate.catalog.relation.relation import Relation
from headgate.sql.names import quote_ident
from headgate.sql.parser import parse_expression

DESCENDING, NULLS_FIRST = 1, 2
"""Bits of pg_index.indoption."""

_ACTIONS = {"r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
_BARE = ("FuncCall", "CoalesceExpr", "MinMaxExpr", "SQLValueFunction")
_OF_INDEX = ("indkeytext", "indkeypretty", "indcolumns", "indcolumnspretty", "indincludetext")
Names = dict[tuple[int, int], str]


def write(cursor: Cursor, database: int, relation: int | None = None) -> None:
    """Write the texts of one relation's keys (and of the foreign keys that reference it), or of all keys of a database."""
    names = _names(cursor, database, relation)
    scope = f"dbid = {int(database)}" + ("" if relation is None else f" AND indrelid = {int(relation)}")
    indexes = rows(
        cursor,
        "SELECT indexrelid, indrelid, indkey, indnkeyatts, indoption, indclass, indexprlist, indkeytext, indkeypretty, indcolumns,"
        f" indcolumnspretty, indincludetext FROM hg.pg_index WHERE {scope}",
    )
    classes = _classes(cursor)
    changed = []
    for oid, owner, key, count, options, operators, expressions, *before in indexes:
        now = _of_index(owner, key, count, options, operators, expressions or (), names, classes)
        if now != before:
            changed.append((oid, *now))
    _update(cursor, database, "pg_index", "indexrelid", _OF_INDEX, changed)
    _constraints(cursor, database, relation, names)


def of_index(
    cursor: Cursor, relation: Relation, key: Sequence[int], count: int, options: Sequence[int], operators: Sequence[int],
    expressions: Sequence[str],
) -> dict[str, object]:  # fmt: skip
    """Return the texts of a new index, by column of pg_index. The attnums of `key` after the first `count` are those of INCLUDE."""
    names = {(relation.oid, column.attnum): quote_ident(column.name) for column in relation.all_columns}
    return dict(zip(_OF_INDEX, _of_index(relation.oid, key, count, options, operators, expressions, names, _classes(cursor)), strict=True))


def listed(relation: Relation, key: Sequence[int]) -> str:
    """Return the text of a constraint's key (pg_constraint.conkeytext)."""
    names = {column.attnum: quote_ident(column.name) for column in relation.all_columns}
    return ", ".join(names.get(attnum, "") for attnum in key)


def _classes(cursor: Cursor) -> dict[int, str]:
    """Return the names of the operator classes that are printed."""
    return dict(rows(cursor, "SELECT oid, opcname FROM hg.pg_opclass WHERE NOT opcdefault"))


def _of_index(
    owner: int, key: Sequence[int], count: int, options: Sequence[int], operators: Sequence[int], expressions: Sequence[str], names: Names,
    classes: dict[int, str],
) -> list[object]:  # fmt: skip
    columns, pretty_columns = _columns(owner, key, expressions, names)
    return [
        _key(columns[:count], options, operators, classes),
        _key(pretty_columns[:count], options, operators, classes),
        columns,
        pretty_columns,
        ", ".join(columns[count:]) or None,
    ]


def _names(cursor: Cursor, database: int, relation: int | None) -> Names:
    scope = f"dbid = {int(database)} AND attnum > 0"
    if relation is not None:
        touching = f"(conrelid = {int(relation)} OR confrelid = {int(relation)})"
        ends = f"FROM hg.pg_constraint WHERE dbid = {int(database)} AND contype = 'f' AND {touching}"
        scope += f" AND (attrelid = {int(relation)} OR attrelid IN (SELECT conrelid {ends} UNION ALL SELECT confrelid {ends}))"
    attributes = rows(cursor, f"SELECT attrelid, attnum, attname FROM hg.pg_attribute WHERE {scope}")
    return {(owner, attnum): quote_ident(name) for owner, attnum, name in attributes}


def _columns(owner: int, key: Sequence[int], expressions: Sequence[str], names: Names) -> tuple[list[str], list[str]]:
    """Return the parts of a key, plain and pretty: a column's name, a call, or an expression in parentheses."""
    plain, pretty_parts = [], []
    left = list(expressions)
    for attnum in key:
        if attnum:
            plain.append(names.get((owner, attnum), ""))
            pretty_parts.append(plain[-1])
            continue
        text = left.pop(0) if left else ""
        bare = text and parse_expression(text).DESCRIPTOR.name in _BARE
        plain.append(text if bare else f"({text})")
        pretty_parts.append(pretty(text) if bare else f"({pretty(text)})")
    return plain, pretty_parts


def _key(columns: Sequence[str], options: Sequence[int], operators: Sequence[int], classes: dict[int, str]) -> str:
    parts = []
    for place, text in enumerate(columns):
        option = options[place] if place < len(options) else 0
        operator = classes.get(operators[place] if place < len(operators) else 0)
        part = text + (f" {operator}" if operator else "") + (" DESC" if option & DESCENDING else "")
        if bool(option & DESCENDING) != bool(option & NULLS_FIRST):
            part += " NULLS LAST" if option & DESCENDING else " NULLS FIRST"
        parts.append(part)
    return ", ".join(parts)


def _constraints(cursor: Cursor, database: int, relation: int | None, names: Names) -> None:
    scope = f"k.dbid = {int(database)} AND k.conrelid <> 0" + (
        "" if relation is None else f" AND (k.conrelid = {int(relation)} OR k.confrelid = {int(relation)})"
    )
    constraints = rows(
        cursor,
        "SELECT k.oid, k.contype, k.conrelid, k.conkey, k.confrelid, k.confkey, k.confupdtype, k.confdeltype, k.confmatchtype,"
        " k.confdelsetcols, i.indincludetext, k.conkeytext, k.conreference, k.conincludetext FROM hg.pg_constraint k"
        " LEFT JOIN hg.pg_index i ON i.indexrelid = k.conindid AND i.dbid = k.dbid AND k.contype IN ('p', 'u')"
        f" WHERE {scope} AND k.conkey IS NOT NULL",
    )
    changed = []
    for oid, kind, owner, key, target, target_key, on_update, on_delete, match, chosen, included, *before in constraints:
        key_names = ", ".join(names.get((owner, attnum), "") for attnum in key)
        reference = None
        if kind == "f":
            reference = f"({', '.join(names.get((target, attnum), '') for attnum in target_key)})" + (" MATCH FULL" if match == "f" else "")
            reference += f" ON UPDATE {_ACTIONS[on_update]}" if on_update in _ACTIONS else ""
            reference += f" ON DELETE {_ACTIONS[on_delete]}" if on_delete in _ACTIONS else ""
            reference += f" ({', '.join(names.get((owner, attnum), '') for attnum in chosen)})" if chosen else ""
        if [key_names, reference, included] != before:
            changed.append((oid, key_names, reference, included))
    _update(cursor, database, "pg_constraint", "oid", ("conkeytext", "conreference", "conincludetext"), changed)


def _update(cursor: Cursor, database: int, table: str, key: str, columns: Sequence[str], changed: Sequence[tuple[object, ...]]) -> None:
    if not changed:
        return
    kinds = [pa.uint32(), *[pa.list_(pa.string()) if name.startswith("indcolumns") else pa.string() for name in columns]]
    arrays = [pa.array(list(values), kind) for values, kind in zip(zip(*changed, strict=True), kinds, strict=True)]
    cursor.register("hg_key_texts", pa.table(arrays, names=["hg_key", *columns]))
    assignments = ", ".join(f"{name} = g.{name}" for name in columns)
    run(cursor, f"UPDATE hg.{table} SET {assignments} FROM hg_key_texts g WHERE dbid = {int(database)} AND {table}.{key} = g.hg_key")
    cursor.unregister("hg_key_texts")
