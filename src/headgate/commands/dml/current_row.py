"""``WHERE CURRENT OF cursor``: update or delete the row on which a cursor is positioned (execCurrent.c).

A cursor does not record the positions of its rows, so that cursors without such statements cost nothing. The row is identified by the
values that the cursor has shown: the columns of a unique key if they are among its columns, otherwise all columns of the table that it has.
The row is looked up by them (`lookup`) in the table as it was when the cursor was opened. Then its current version is found (`succession`),
under the table's write lock. It may have been changed since by this transaction or by others, or moved to another file by a compaction.
If it was deleted, no row is changed, as in PostgreSQL.

Invariant: no other row is ever changed. If rows are equal in the columns that the cursor shows but differ in others, 0A000 is raised,
with the hint to select the key. Of rows that are equal in all columns, any may be used. Each row of the cursor then claims one of them
(`OpenCursor.chosen`).

The cursor's query must read only the table, without groups or a set operation, or have FOR UPDATE or FOR SHARE of the table. PostgreSQL
examines the plan instead. It accepts fewer queries with a sort, and more with views, subqueries in FROM and UNION ALL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Column, Relation
from headgate.changes import lookup, succession
from headgate.changes.succession import Place, PlacedRow
from headgate.commands import lookup as commands_lookup
from headgate.commands.open_cursor import OpenCursor
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError, existing, not_supported
from headgate.expression import builtin
from headgate.sql import names
from headgate.sql.parser import ParseNode, kind, unwrap, walk
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.write import arrow_row
from headgate.types import buffers, registry, sortkey
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text, write_text
from headgate.types.text_column import TextSettings

Shown = dict[str, str | None]
"""The values that a cursor shows of a row, as texts by column name."""


def is_asked(node: pb.DeleteStmt | pb.UpdateStmt) -> bool:
    return node.HasField("where_clause") and kind(node.where_clause) == "CurrentOfExpr"


def positions(planner: Planner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt, *, keeps_keys: bool) -> pa.Table:
    """Return the row, or none: the table's columns, FILE and ROW. Acquire the write lock of the table or leaf that contains it."""
    condition = unwrap(node.where_clause)
    name = condition.cursor_name or planner.session.parameters[condition.cursor_param - 1].text or ""
    cursor = existing(planner.session.open_cursor(name), "34000", f'cursor "{name}"')
    leaves = _leaves(planner, relation) if node.relation.inh or not relation.is_partitioned else ()
    current = None
    if leaves:
        scanned = _scanned_table(planner, cursor, name, leaves)
        if cursor.at is None:
            raise PostgresError("24000", f'cursor "{name}" is not positioned on a row')
        current = _now(planner, cursor, scanned, leaves, keeps_keys=keeps_keys)
    schema = pa.schema([*arrow_row(relation), pa.field(FILE, pa.string()), pa.field(ROW, pa.int64())])
    if current is None or current.place is None:
        return schema.empty_table()
    values = {field.name: current.values.field(field.name) for field in current.values.type}
    file, row = current.place
    return pa.table([*[values[column.name] for column in relation.columns], pa.array([file]), pa.array([row], pa.int64())], schema=schema)


def _leaves(planner: Planner, relation: Relation) -> Sequence[Relation]:
    return planner.transaction.reader.leaves(relation)


# ---- whether the cursor can be used -----------------------------------------------------------------------------------------


def _scanned_table(planner: Planner, cursor: OpenCursor, name: str, leaves: Sequence[Relation]) -> Relation:
    """Return the table that the cursor's query reads, of which `leaves` are leaves. Raise 24000 if it reads none of them."""
    if kind(cursor.query) != "SelectStmt":
        raise PostgresError("24000", f'cursor "{name}" is not a SELECT query')
    if cursor.held:
        raise PostgresError("24000", f'cursor "{name}" is held from a previous transaction')
    if cursor.view is None:
        raise not_supported("WHERE CURRENT OF a portal that DECLARE has not made is not supported")
    query = cursor.query
    tables = [
        (item_node, table) for item_node in _relations_of(query.from_clause) if (table := _resolve(planner, query, item_node)) is not None
    ]
    scans = [(item, table, {leaf.oid for leaf in _leaves(planner, table)}) for item, table in tables]
    locks = [unwrap(clause) for clause in query.locking_clause]
    for leaf in leaves:
        matching_scans = [(item, table) for item, table, leaf_oids in scans if leaf.oid in leaf_oids]
        if locks:
            locked = [item for item, _ in matching_scans if any(_locks(lock, item) for lock in locks)]
            if not locked:
                message = f'cursor "{name}" does not have a FOR UPDATE/SHARE reference to table "{leaf.name}"'
                raise PostgresError("24000", message)
            if len(locked) > 1:
                raise PostgresError("24000", f'cursor "{name}" has multiple FOR UPDATE/SHARE references to table "{leaf.name}"')
            if len(matching_scans) > 1:
                raise succession.ambiguous(leaf)
        elif not matching_scans or not _is_simple(query):
            raise PostgresError("24000", f'cursor "{name}" is not a simply updatable scan of table "{leaf.name}"')
    return matching_scans[0][1]


def _relations_of(items: Sequence[pb.Node]) -> Iterator[pb.RangeVar]:
    for item in map(unwrap, items):
        if item.DESCRIPTOR.name == "RangeVar":
            yield item
        elif item.DESCRIPTOR.name == "JoinExpr":
            yield from _relations_of([item.larg, item.rarg])


def _resolve(planner: Planner, query: pb.SelectStmt, named: pb.RangeVar) -> Relation | None:
    """Return the table that a name in FROM refers to. Return None if it is not a table or has been dropped."""
    if not named.schemaname and named.relname in {unwrap(cte).ctename for cte in query.with_clause.ctes}:
        return None
    try:
        table = commands_lookup.queried(planner.transaction.cursor, planner.session.context, named)
    except PostgresError:
        return None
    return table if table.kind in ("r", "p") and (named.inh or not table.is_partitioned) else None


def _locks(clause: pb.LockingClause, item: pb.RangeVar) -> bool:
    return not clause.locked_rels or (item.alias.aliasname or item.relname) in {
        unwrap(locked_rel).relname for locked_rel in clause.locked_rels
    }


def _is_simple(query: pb.SelectStmt) -> bool:
    """Return whether each row of a query is one row of the only relation that it reads."""
    if query.op != pb.SETOP_NONE or query.distinct_clause or query.group_clause or query.HasField("having_clause"):
        return False
    if len(query.from_clause) != 1 or kind(query.from_clause[0]) != "RangeVar":
        return False
    calls = [node for item in query.target_list for node in _outside_of_subqueries(item) if kind(node) == "FuncCall"]
    return not any(node.agg_star or node.HasField("over") or _is_other(node) for node in calls)


def _is_other(call: pb.FuncCall) -> bool:
    """Return whether a call may be one of an aggregate or of a set-returning function."""
    functions = builtin.builtins().functions_named.get(names.strings(call.funcname)[-1], ())
    return any(function.kind == "a" or function.retset for function in functions)


def _outside_of_subqueries(item: ParseNode) -> Iterator[ParseNode]:
    inner = {id(node) for part in walk(item) if kind(part) == "SubLink" for node in walk(part.subselect)}
    return (node for node in walk(item) if id(node) not in inner)


# ---- identifying the row ----------------------------------------------------------------------------------------------------


def _now(planner: Planner, cursor: OpenCursor, scanned: Relation, leaves: Sequence[Relation], *, keeps_keys: bool) -> PlacedRow | None:
    """Return the current version of the row, or None if it was deleted or is in none of these leaves."""
    transaction, view = planner.transaction, cursor.view
    assert view is not None
    row = cursor.row()
    cursor_values: Shown = {}
    for index, described in enumerate(cursor.columns):
        column = scanned.numbered(described.attnum) if described.relation == scanned.oid and described.attnum > 0 else None
        if column is not None:
            cursor_values[column.name] = row.column(index)[0].as_py()
    leaf, old_row = _row_when_opened(planner, cursor, scanned, cursor_values)
    if leaf.oid not in {candidate.oid for candidate in leaves}:
        return None
    state = transaction.reader.changing(leaf, keeps_keys=keeps_keys)
    before = view.state((leaf.database, leaf.oid))
    if before is None or before.schema != state.schema or before.physical != state.physical:
        raise not_supported(f'the columns of table "{leaf.name}" have changed since the cursor was declared')
    return succession.current(transaction, leaf, view, old_row, state)


def _row_when_opened(planner: Planner, cursor: OpenCursor, scanned: Relation, shown: Shown) -> tuple[Relation, PlacedRow]:
    """Return the row's leaf, and the row as it was when the cursor was opened."""
    matches = [(leaf, match) for leaf in _of_key(planner, scanned, shown) for match in _like(planner, cursor, leaf, shown)]
    if len(matches) == 1:
        return matches[0]
    if not matches or any(leaf != matches[0][0] or not succession.same(match.values, matches[0][1].values)[0] for leaf, match in matches):
        raise succession.ambiguous(scanned)
    return _choose(planner, cursor, matches)


def _of_key(planner: Planner, scanned: Relation, shown: Shown) -> Sequence[Relation]:
    """Return the leaves that may contain the row. It is one leaf if the cursor shows the columns of the partition key."""
    leaves = _leaves(planner, scanned)
    if not scanned.is_partitioned:
        return leaves
    table, forms = planner.transaction.partitioned(scanned), planner.session.context.forms.of_results
    columns = [column for column in scanned.columns if column.name in table.router.key_names()]
    if any(column.name not in shown for column in columns):
        return leaves
    values = {column.name: _value(column, shown, forms) for column in columns}
    return [leaves[int(table.places(pa.table(values))[0])]]


def _choose(planner: Planner, cursor: OpenCursor, matches: Sequence[tuple[Relation, PlacedRow]]) -> tuple[Relation, PlacedRow]:
    """Choose one of several equal rows: the one chosen before for the cursor's row, otherwise an unclaimed one, preferably not deleted."""
    assert cursor.at is not None
    claimed = cursor.chosen.get(cursor.at)
    places = {match.place: (leaf, match) for leaf, match in matches if match.place is not None}
    if claimed in places:
        return places[claimed]
    claimed_places = {place for at, place in cursor.chosen.items() if at != cursor.at}
    unclaimed = {place: match for place, match in places.items() if place not in claimed_places}
    if not unclaimed:
        raise succession.ambiguous(matches[0][0])
    transaction = planner.transaction
    place: Place = min(
        unclaimed,
        key=lambda position: (
            not succession.is_live(transaction, unclaimed[position][0], transaction.reader.newest(unclaimed[position][0]), position),
            position,
        ),
    )
    cursor.chosen[cursor.at] = place
    return unclaimed[place]


def _like(planner: Planner, cursor: OpenCursor, leaf: Relation, shown: Shown) -> list[PlacedRow]:
    """Return the rows of a table that match the cursor's values, as of the time when the cursor was opened."""
    view, key = cursor.view, (leaf.database, leaf.oid)
    assert view is not None
    if not shown:
        raise succession.ambiguous(leaf)
    candidates: list[PlacedRow] = []
    forms = planner.session.context.forms.of_results
    state, row_key = view.state(key), _lookup_key(leaf, shown, forms)
    if state is not None:
        if row_key is None:
            raise succession.ambiguous(leaf)
        candidates += succession.having(planner.transaction, leaf, state, *row_key)
    matches = [candidate for candidate in candidates if _showing(leaf, candidate.values, shown, forms)[0]]
    for rows in view.pending_rows(key):
        whole = buffers.whole(rows.select([column.name for column in leaf.columns]).to_struct_array())
        matches += [PlacedRow(whole.slice(int(at), 1), None) for at in np.flatnonzero(_showing(leaf, whole, shown, forms))]
    return matches


def _lookup_key(leaf: Relation, shown: Shown, forms: TextSettings) -> tuple[lookup.RowKey, pa.Table] | None:
    """Return the lookup key: a unique key if the cursor shows it, otherwise all shown columns. None if none of these is comparable."""
    shown_columns = {column.name: column for column in leaf.columns if column.name in shown}
    for index in leaf.unique_indexes:
        columns = leaf.columns_at(index.attnums)
        if index.plain and index.immediate and all(shown.get(column.name) is not None for column in columns):
            return _read(leaf, columns, shown, forms)
    comparable = [shown_column for shown_column in shown_columns.values() if sortkey.comparable(shown_column.type_oid, registry.known())]
    return _read(leaf, comparable, shown, forms) if comparable else None


def _read(leaf: Relation, columns: Sequence[Column], shown: Shown, forms: TextSettings) -> tuple[lookup.RowKey, pa.Table]:
    key = lookup.key_of(leaf, [key_column.attnum for key_column in columns])
    values = []
    for column, compared in zip(columns, key.kinds, strict=True):
        values.append(lookup.canonical_array(_value(column, shown, forms), compared))
    return key, pa.table(values, names=[f"k{number}" for number in range(len(values))])


def _value(column: Column, shown: Shown, forms: TextSettings) -> pa.Array:
    """Return the value that the cursor shows of a column, in stored form."""
    base, typmod = registry.known().base(column.type_oid, column.typmod)
    return read_text(pa.array([shown[column.name]], pa.string()), base, typmod, session=forms).cast(
        arrow_type(column.type_oid, column.typmod)
    )


def _showing(leaf: Relation, rows: pa.StructArray, shown: Shown, forms: TextSettings) -> npt.NDArray[np.bool_]:
    """Return which rows match the shown values. Both text and stored form are compared, because text-form settings may have changed."""
    matches = np.ones(len(rows), bool)
    for column in leaf.columns:
        if column.name in shown and len(rows):
            values, text = rows.field(column.name), shown[column.name]
            if text is None:
                matches &= np.asarray(pc.is_null(values))
                continue
            stored = _value(column, shown, forms)
            texts = write_text(values, column.type_oid, session=forms)
            has_same_text = np.asarray(pc.fill_null(pc.equal(texts, text), fill_value=False))
            matches &= has_same_text | np.asarray(pc.fill_null(pc.equal(values, stored[0]), fill_value=False))
    return matches
