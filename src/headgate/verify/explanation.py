"""The reason why a row is here or not: how each publication treats it at the publisher, and its last change here (headgate.explain_row).

Called by `server.function.own_function`. A subscriber queries its publisher, any PostgreSQL or node, in SQL. A publisher runs the same
queries on its own tables. A filter is shown as a whole and by the terms that AND and OR combine, each with its value for the present row,
so that the user sees which of them excludes the row. The node that has the row computes the terms, and an error in one is its error.

    publication  a row for each publication: whether the row exists, whether it passes, filter, columns, actions
    term         after it, a row for each term of its filter
    here         on a subscriber: whether the row is here; the last entry of the log that changed it, with time and origin, or, in the
                 column `columns`, the reason why it is not known

The last change is searched in the log backwards, reading only the key's columns, in at most LOOKED entries. Cleaning removes entries that
no slot needs, so the change may not be found although the row is here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import postgast
import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Column, Relation
from headgate.changes.lookup import canonical_array
from headgate.errors import PostgresError
from headgate.sql import grammar
from headgate.sql.names import quote_ident
from headgate.sql.parser import ParseNode, parse
from headgate.storage import feed
from headgate.storage.transaction.log import LogEntry, TableWrite
from headgate.storage.transaction.storage import Storage
from headgate.types import buffers
from headgate.types.registry import BPCHAR
from headgate.types.text import text
from headgate.walreceiver.connection import literal

LOOKED = 1_000
"""Limit of the log entries that are searched for the last change of a row."""
Cell = str | None
Ask = Callable[[str, int], Sequence[Sequence[Cell]]]
"""A function that runs a query with a number of columns on the node that has the row. It returns the cells as text."""


@dataclass(frozen=True)
class MemberTable:
    """A table in a publication. `columns`: None for all; `filter`: None for none. `listed`: whether the publication contains it."""

    publication: str
    publish: tuple[str, ...]
    listed: bool
    columns: tuple[str, ...] | None = None
    filter: str | None = None


@dataclass(frozen=True)
class Explained:
    """One row of the result (see the module)."""

    what: str
    publication: str | None = None
    present: bool | None = None
    passes: bool | None = None
    filter: str | None = None
    columns: str | None = None
    publish: str | None = None
    lsn: int | None = None
    time: int | None = None
    """Microseconds since 2000-01-01."""
    origin: str | None = None


def key_values(relation: Relation, key: str | None) -> dict[str, Cell]:
    """Return the columns and values of a key given as a JSON object. Raise 22023, or 42703 for an unknown column."""
    try:
        values = json.loads(key or "")
    except json.JSONDecodeError as error:
        raise PostgresError("22023", "the key must be a JSON object of columns and values") from error
    if not isinstance(values, dict) or not values:
        raise PostgresError("22023", "the key must be a JSON object of columns and values", hint="""For example '{"id": 7}'.""")
    for name in values:
        if relation.column(name) is None:
            raise PostgresError("42703", f'column "{name}" of relation "{relation.name}" does not exist')
    return {name: value if isinstance(value, str) or value is None else json.dumps(value) for name, value in values.items()}


def condition(values: Mapping[str, Cell]) -> str:
    """Return the WHERE condition for the row with these values."""
    terms = (
        f"{quote_ident(name)} IS NULL" if value is None else f"{quote_ident(name)} = {literal(value)}" for name, value in values.items()
    )
    return " AND ".join(terms)


def terms(condition: str) -> list[str]:
    """Return the terms that AND and OR combine in a filter. Empty if it is a single term or cannot be parsed."""
    try:
        [statement] = parse(f"SELECT WHERE {condition}")
        where = statement.node.where_clause
        return [_condition_text(leaf) for leaf in _leaves(where)] if _joins(where) else []
    except (PostgresError, ValueError, AttributeError, postgast.PgQueryError):  # a publisher may send any text
        return []


def _joins(node: pb.Node) -> bool:
    return node.WhichOneof("node") == "bool_expr" and len(node.bool_expr.args) > 1


def _leaves(node: pb.Node) -> Iterator[pb.Node]:
    if not _joins(node):
        yield node
        return
    for argument in node.bool_expr.args:
        yield from _leaves(argument)


def _condition_text(node: ParseNode) -> str:
    statement = grammar.parse("SELECT WHERE true")
    statement.stmts[0].stmt.select_stmt.where_clause.CopyFrom(node)
    return grammar.deparse(statement).removeprefix("SELECT WHERE ")


def publications_query(names: Sequence[str], schema: str, name: str, *, knows_filters: bool) -> str:
    """Return the query for the publications of a publisher: name, four flags, whether the table is listed, columns, filter."""
    listed = ", ".join(literal(publication) for publication in names)
    lists = "t.attnames::pg_catalog.text, t.rowfilter" if knows_filters else "NULL::pg_catalog.text, NULL::pg_catalog.text"
    return (
        f"SELECT p.pubname, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, t.pubname IS NOT NULL, {lists}"
        " FROM pg_catalog.pg_publication p LEFT JOIN pg_catalog.pg_publication_tables t ON t.pubname = p.pubname"
        f" AND t.schemaname = {literal(schema)} AND t.tablename = {literal(name)} WHERE p.pubname IN ({listed}) ORDER BY p.pubname"
    )


def explained(ask: Ask, source: str, where: str, publications: Sequence[MemberTable]) -> Iterator[Explained]:
    """Yield the rows of the publications. `source`: the table as FROM names it; `where`: the condition that identifies the row."""
    filters = {member.filter: terms(member.filter) for member in publications if member.filter is not None}
    expressions = list(dict.fromkeys(term for whole, parts in filters.items() for term in (whole, *parts)))
    computed = "".join(f", ({term})::pg_catalog.text" for term in expressions)
    matching = ask(f"SELECT 1::pg_catalog.text{computed} FROM {source} WHERE {where} LIMIT 2", len(expressions) + 1)
    if len(matching) > 1:
        raise PostgresError("21000", "the key names more than one row", hint="Name the columns of a unique key.")
    value = dict(zip(expressions, matching[0][1:], strict=True)) if matching else {}
    for member in publications:
        passes = bool(matching) and member.listed and (member.filter is None or _true(value[member.filter]) is True)
        columns = "all" if member.columns is None else ", ".join(member.columns)
        yield Explained(
            "publication", member.publication, bool(matching), passes, member.filter,
            columns if member.listed else "the table is not in the publication", ", ".join(member.publish),
        )  # fmt: skip
        for term in () if member.filter is None else filters[member.filter]:
            yield Explained("term", member.publication, passes=_true(value.get(term)), filter=term)


def _true(cell: Cell) -> bool | None:
    return None if cell is None else cell in ("t", "true")


# ---- what has touched it ---------------------------------------------------------------------------------------------
def last_touch(storage: Storage, leaves: Sequence[Relation], values: Mapping[str, Cell], check: Callable[[], None]) -> LogEntry | str:
    """Return the newest entry that changed the row with these values, or the reason why none is known. `check` may raise."""
    by_oid = {leaf.oid: leaf for leaf in leaves}
    database = leaves[0].database if leaves else 0
    entries, count = storage.log.of_relations(database, list(by_oid), LOOKED), 0
    for entry in entries:
        check()
        count += 1
        for write in reversed(entry.writes):
            leaf = by_oid.get(write.relation)
            if leaf is None:
                continue
            try:
                if write.kind == "truncate" or _touches(storage, leaf, write, values):
                    return entry
            except PostgresError as error:
                if error.sqlstate != "58P01":
                    raise
                return "the files of earlier changes were removed, because they are older than file_retention"
    if count == LOOKED:
        return f"it is not among the last {LOOKED:,} entries of the log that wrote to the table"
    return "its entry of the log was removed, because no slot needs it"


def _touches(storage: Storage, relation: Relation, write: TableWrite, values: Mapping[str, Cell]) -> bool:
    columns = tuple(column for name in values if (column := relation.column(name)) is not None)
    narrow = replace(relation, all_columns=columns)
    return any(_holds(piece, columns, values) for piece in feed.pieces(storage.tables, narrow, write))


def _holds(piece: pa.Table, columns: Sequence[Column], values: Mapping[str, Cell]) -> bool:
    return any(_any(buffers.whole(piece[side]), columns, values) for side in ("old", "new"))


def _any(rows: pa.StructArray, columns: Sequence[Column], values: Mapping[str, Cell]) -> bool:
    matches = np.asarray(pc.is_valid(rows))
    for column in columns:
        stored, value = buffers.field(rows, column.name), values[column.name]
        if value is None:
            matches = matches & np.asarray(pc.is_null(stored))
            continue
        kind = column.type_oid if column.type_oid == BPCHAR else 0
        stored_value = text.read_text(pa.array([value]), column.type_oid, column.typmod)
        is_equal = pc.equal(canonical_array(stored, kind), canonical_array(stored_value, kind)[0])
        matches = matches & np.asarray(pc.fill_null(is_equal, False))
    return bool(matches.any())
