"""``WHERE CURRENT OF cursor``: the row of an UPDATE or DELETE is the one on which a cursor stands (execCurrent.c).

A cursor knows no places of rows, and costs nothing for statements that may never come. What it has shown tells the row: the columns of a
unique key where the cursor has them, otherwise all columns of the table that it has. The row is looked up by them (`lookup`) in the table
as the cursor was opened on it, and then as it is now (`succession`), under the table's write lock: changed since by this transaction or
by others, in another file since a compaction, or gone, as in PostgreSQL: then no row is changed.

What must hold: never another row. Rows that are equal in what the cursor shows but not in the other columns are 0A000, with the advice to
select the key. Rows that are equal in all columns are each as good: a row of the cursor takes one for itself (`OpenCursor.chosen`).

A cursor can be used so whose query reads the table and no other, with neither groups nor a set operation, or one with FOR UPDATE or FOR
SHARE of the table. PostgreSQL asks its plan, which is more narrow where it sorts, and wider for views, subqueries of FROM and UNION ALL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb

from headgate.changes import lookup, succession
from headgate.changes.succession import Place, PlacedRow
from headgate.commands import lookup as commands_lookup
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.sql import names
from headgate.sql.parser import ParseNode, kind, unwrap, walk
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry, sortkey
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text, write_text
from headgate.types.text_column import TextSettings

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Column, Relation
    from headgate.commands.open_cursor import OpenCursor
    from headgate.commands.query.planner import Planner

Shown = dict[str, str | None]
"""What a cursor shows of a row: texts by the names of columns."""


def is_asked(node: pb.DeleteStmt | pb.UpdateStmt) -> bool:
    """Whether a statement means the current row of a cursor."""
    return node.HasField("where_clause") and kind(node.where_clause) == "CurrentOfExpr"


def positions(planner: Planner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt, *, keeps_keys: bool) -> pa.Table:
    """The row, or none: the columns of the table, FILE and ROW; takes the write lock of the table or leaf in which it is."""
    name = unwrap(node.where_clause).cursor_name
    cursor = planner.session.open_cursor(name)
    if cursor is None:
        raise PostgresError("34000", f'cursor "{name}" does not exist')
    leaves = _leaves(planner, relation) if node.relation.inh or not relation.is_partitioned else ()
    found = None
    if leaves:
        scanned = _scanned(planner, cursor, name, leaves)
        if cursor.at is None:
            raise PostgresError("24000", f'cursor "{name}" is not positioned on a row')
        found = _now(planner, cursor, scanned, leaves, keeps_keys=keeps_keys)
    schema = pa.schema([*arrow_row(relation), pa.field(FILE, pa.string()), pa.field(ROW, pa.int64())])
    if found is None or found.place is None:
        return schema.empty_table()
    values = {each.name: found.values.field(each.name) for each in found.values.type}
    file, row = found.place
    return pa.table([*[values[column.name] for column in relation.columns], pa.array([file]), pa.array([row], pa.int64())], schema=schema)


def _leaves(planner: Planner, relation: Relation) -> Sequence[Relation]:
    return planner.transaction.partitioned(relation).leaves if relation.is_partitioned else (relation,)


# ---- whether the cursor can be used -----------------------------------------------------------------------------------------


def _scanned(planner: Planner, cursor: OpenCursor, name: str, leaves: Sequence[Relation]) -> Relation:
    """The table that the query of a cursor reads, of which `leaves` are leaves; 24000 where it is not."""
    if kind(cursor.query) != "SelectStmt":
        raise PostgresError("24000", f'cursor "{name}" is not a SELECT query')
    if cursor.held:
        raise PostgresError("24000", f'cursor "{name}" is held from a previous transaction')
    if cursor.view is None:
        raise not_supported("WHERE CURRENT OF a portal that DECLARE has not made is not supported")
    query = cursor.query
    named = [(each, table) for each in _named(query.from_clause) if (table := _resolved(planner, query, each)) is not None]
    read = [(each, table, {leaf.oid for leaf in _leaves(planner, table)}) for each, table in named]
    locks = [unwrap(each) for each in query.locking_clause]
    for leaf in leaves:
        over = [(item, table) for item, table, held in read if leaf.oid in held]
        if locks:
            locked = [item for item, _ in over if any(_locks(each, item) for each in locks)]
            if not locked:
                message = f'cursor "{name}" does not have a FOR UPDATE/SHARE reference to table "{leaf.name}"'
                raise PostgresError("24000", message)
            if len(locked) > 1:
                raise PostgresError("24000", f'cursor "{name}" has multiple FOR UPDATE/SHARE references to table "{leaf.name}"')
            if len(over) > 1:
                raise succession.ambiguous(leaf)
        elif not over or not _is_simple(query):
            raise PostgresError("24000", f'cursor "{name}" is not a simply updatable scan of table "{leaf.name}"')
    return over[0][1]


def _named(items: Sequence[pb.Node]) -> Iterator[pb.RangeVar]:
    """The relations that a FROM names."""
    for each in map(unwrap, items):
        if each.DESCRIPTOR.name == "RangeVar":
            yield each
        elif each.DESCRIPTOR.name == "JoinExpr":
            yield from _named([each.larg, each.rarg])


def _resolved(planner: Planner, query: pb.SelectStmt, named: pb.RangeVar) -> Relation | None:
    """The table that a name of a FROM means; None for what is none, or is no more."""
    if not named.schemaname and named.relname in {unwrap(each).ctename for each in query.with_clause.ctes}:
        return None
    try:
        found = commands_lookup.source(planner.transaction.cursor, planner.session.context, named)
    except PostgresError:
        return None
    return found if found.kind in ("r", "p") and (named.inh or not found.is_partitioned) else None


def _locks(clause: pb.LockingClause, item: pb.RangeVar) -> bool:
    return not clause.locked_rels or (item.alias.aliasname or item.relname) in {unwrap(each).relname for each in clause.locked_rels}


def _is_simple(query: pb.SelectStmt) -> bool:
    """Whether each row of a query is one row of the one relation that it reads."""
    if query.op != pb.SETOP_NONE or query.distinct_clause or query.group_clause or query.HasField("having_clause"):
        return False
    if len(query.from_clause) != 1 or kind(query.from_clause[0]) != "RangeVar":
        return False
    calls = [each for item in query.target_list for each in _outside_of_subqueries(item) if kind(each) == "FuncCall"]
    return not any(each.agg_star or each.HasField("over") or _is_other(each) for each in calls)


def _is_other(call: pb.FuncCall) -> bool:
    """Whether a call may be one of an aggregate or of a function that returns a set."""
    named = builtin.builtins().functions_named.get(names.strings(call.funcname)[-1], ())
    return any(each.kind == "a" or each.retset for each in named)


def _outside_of_subqueries(item: ParseNode) -> Iterator[ParseNode]:
    inner = {id(each) for part in walk(item) if kind(part) == "SubLink" for each in walk(part.subselect)}
    return (each for each in walk(item) if id(each) not in inner)


# ---- which row it is --------------------------------------------------------------------------------------------------------


def _now(planner: Planner, cursor: OpenCursor, scanned: Relation, leaves: Sequence[Relation], *, keeps_keys: bool) -> PlacedRow | None:
    """The current row as it is now; None where it is gone, or was in none of these leaves."""
    transaction, view = planner.transaction, cursor.view
    assert view is not None
    row = cursor.row()
    shown: Shown = {}
    for place, described in enumerate(cursor.columns):
        column = scanned.numbered(described.attnum) if described.relation == scanned.oid and described.attnum > 0 else None
        if column is not None:
            shown[column.name] = row.column(place)[0].as_py()
    leaf, then = _then(planner, cursor, scanned, shown)
    if leaf.oid not in {each.oid for each in leaves}:
        return None
    state = transaction.changing(leaf, keeps_keys=keeps_keys)
    before = view.state((leaf.database, leaf.oid))
    if before is None or before.schema != state.schema or before.physical != state.physical:
        raise not_supported(f'the columns of table "{leaf.name}" have changed since the cursor was declared')
    return succession.current(transaction, leaf, view, then, state)


def _then(planner: Planner, cursor: OpenCursor, scanned: Relation, shown: Shown) -> tuple[Relation, PlacedRow]:
    """The row as it was when the cursor was opened, and its leaf."""
    found = [(leaf, each) for leaf in _of_key(planner, scanned, shown) for each in _like(planner, cursor, leaf, shown)]
    if len(found) == 1:
        return found[0]
    if not found or any(leaf != found[0][0] or not succession.same(each.values, found[0][1].values)[0] for leaf, each in found):
        raise succession.ambiguous(scanned)
    return _chosen(planner, cursor, found)


def _of_key(planner: Planner, scanned: Relation, shown: Shown) -> Sequence[Relation]:
    """The leaves in which the row can be: one, where the cursor shows the columns of the partition key."""
    leaves = _leaves(planner, scanned)
    if not scanned.is_partitioned:
        return leaves
    table, forms = planner.transaction.partitioned(scanned), planner.session.context.forms.of_results
    columns = [column for column in scanned.columns if column.name in table.router.key_names()]
    if any(column.name not in shown for column in columns):
        return leaves
    values = {column.name: _value(column, shown, forms) for column in columns}
    return [leaves[int(table.places(pa.table(values))[0])]]


def _chosen(planner: Planner, cursor: OpenCursor, found: Sequence[tuple[Relation, PlacedRow]]) -> tuple[Relation, PlacedRow]:
    """One of rows that are equal in all columns: that which the cursor's row was before, or one that is no other's and is still there."""
    assert cursor.at is not None
    taken = cursor.chosen.get(cursor.at)
    places = {each.place: (leaf, each) for leaf, each in found if each.place is not None}
    if taken in places:
        return places[taken]
    others = {place for at, place in cursor.chosen.items() if at != cursor.at}
    free = {place: each for place, each in places.items() if place not in others}
    if not free:
        raise succession.ambiguous(found[0][0])
    transaction = planner.transaction
    place: Place = min(
        free, key=lambda one: (not succession.is_live(transaction, free[one][0], transaction.newest(free[one][0]), one), one)
    )
    cursor.chosen[cursor.at] = place
    return free[place]


def _like(planner: Planner, cursor: OpenCursor, leaf: Relation, shown: Shown) -> list[PlacedRow]:
    """The rows of a table that show what the cursor shows, as it was opened on them."""
    view, key = cursor.view, (leaf.database, leaf.oid)
    assert view is not None
    if not shown:
        raise succession.ambiguous(leaf)
    found: list[PlacedRow] = []
    forms = planner.session.context.forms.of_results
    state, wanted = view.state(key), _wanted(leaf, shown, forms)
    if state is not None:
        if wanted is None:
            raise succession.ambiguous(leaf)
        found += succession.having(planner.transaction, leaf, state, *wanted)
    kept = [each for each in found if _showing(leaf, each.values, shown, forms)[0]]
    for rows in view.pending_rows(key):
        whole = buffers.whole(rows.select([column.name for column in leaf.columns]).to_struct_array())
        kept += [PlacedRow(whole.slice(int(at), 1), None) for at in np.flatnonzero(_showing(leaf, whole, shown, forms))]
    return kept


def _wanted(leaf: Relation, shown: Shown, forms: TextSettings) -> tuple[lookup.RowKey, pa.Table] | None:
    """What is looked up: a unique key where the cursor shows it, otherwise all that it shows; None where nothing of that compares."""
    known = {column.name: column for column in leaf.columns if column.name in shown}
    for index in leaf.unique_indexes:
        columns = [leaf.numbered(attnum) for attnum in index.attnums]
        if index.plain and index.immediate and all(each is not None and shown.get(each.name) is not None for each in columns):
            return _read(leaf, [each for each in columns if each is not None], shown, forms)
    comparable = [each for each in known.values() if sortkey.comparable(each.type_oid, registry.known())]
    return _read(leaf, comparable, shown, forms) if comparable else None


def _read(leaf: Relation, columns: Sequence[Column], shown: Shown, forms: TextSettings) -> tuple[lookup.RowKey, pa.Table]:
    key = lookup.key_of(leaf, [each.attnum for each in columns])
    values = []
    for column, compared in zip(columns, key.kinds, strict=True):
        values.append(lookup.canonical_array(_value(column, shown, forms), compared))
    return key, pa.table(values, names=[f"k{place}" for place in range(len(values))])


def _value(column: Column, shown: Shown, forms: TextSettings) -> pa.Array:
    """What the cursor shows of a column, in stored form."""
    base, typmod = registry.known().base(column.type_oid, column.typmod)
    return read_text(pa.array([shown[column.name]], pa.string()), base, typmod, session=forms).cast(
        arrow_type(column.type_oid, column.typmod)
    )


def _showing(leaf: Relation, rows: pa.StructArray, shown: Shown, forms: TextSettings) -> npt.NDArray[np.bool_]:
    """Which rows the cursor shows so: in text, or in stored form, as a setting may have changed since that decides how a value is shown."""
    found = np.ones(len(rows), bool)
    for column in leaf.columns:
        if column.name in shown and len(rows):
            values, text = rows.field(column.name), shown[column.name]
            if text is None:
                found &= np.asarray(pc.is_null(values))
                continue
            stored = _value(column, shown, forms)
            texts = write_text(values, column.type_oid, column.typmod, session=forms)
            alike = np.asarray(pc.fill_null(pc.equal(texts, text), fill_value=False))
            found &= alike | np.asarray(pc.fill_null(pc.equal(values, stored[0]), fill_value=False))
    return found
