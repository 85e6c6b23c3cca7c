"""Look up the rows that a WHERE clause can match when it fixes all columns of a unique index. The driver reads them, as apply does.

`from_clause` calls it for the only table of a FROM, as do UPDATE, DELETE and `answer`. ``WHERE id = 7 AND b > now()`` fixes `id`, and
so do ``id IN (7, 8)`` and ``id = ANY ($1)``. `changes.lookup` finds the rows of these keys in the files, and they replace the table in the
statement. The whole WHERE is then evaluated over them, so the lookup may return too many rows, but never too few.

The value that is compared with the column must be a constant after parameter substitution. The operator must be the equality operator of
the index.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headgate.analysis.query import PlanColumn
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.changes import lookup
from headgate.commands.query.driver import values_list
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding import binder
from headgate.expression.binding.scope import Scope
from headgate.expression.node import (
    ArrayExpr,
    ColumnRef,
    Const,
    Expression,
    Form,
    FuncExpr,
    OpExpr,
    Relabel,
    ScalarArrayOp,
    SubLink,
    TypeRef,
    UserCall,
    conjuncts,
    walk,
)
from headgate.sql.parser import ParseNode, anded
from headgate.sql.parser import walk as walk_tree
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.delta.table_state import TableState
from headgate.storage.spark.local_relation import in_one_piece
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers, registry
from headgate.types.storage import arrow_type
from headgate.types.text import array as arrays
from headgate.types.text.text import read_text

MOST = 1000
"""Maximum number of keys per statement."""
_EQUAL = 3
"""The btree strategy number of equality."""
_CASTS = frozenset({Form.EXPLICIT, Form.IMPLICIT})


class Keyed(Protocol):
    """A column that expressions reference by its key."""

    @property
    def key(self) -> str: ...


@dataclass(frozen=True)
class WantedKeys:
    """Keys of a table. `values` has the columns k0, k1, …, as `lookup.find` expects them."""

    key: lookup.RowKey
    values: pa.Table


def frame(planner: Planner, relation: Relation, columns: Sequence[PlanColumn], where: Expression) -> DataFrame | None:
    """Return the rows that a condition can match, or None if it does not fix a key or names more than `MOST` keys.

    `columns`: the table's columns, as the condition references them.
    """
    if planner.describing or relation.rows_key in planner.frozen:
        return None
    keys = of_terms(planner, relation, columns, conjuncts(where))
    if keys is None:
        return None
    return in_one_piece(planner.session_spark, rows(planner, relation, keys), spark_columns(relation))


def rows(planner: Planner, relation: Relation, keys: WantedKeys) -> pa.Table:
    """Return the rows with these keys as this statement sees them, and all rows that the transaction has added but not yet written."""
    state, pending = planner.transaction.reader.shown(relation)
    stored_rows = _found(planner, relation, state, keys)
    return pa.concat_tables([stored_rows.drop_columns([FILE, ROW]), *pending])


def positions(planner: Planner, relation: Relation, keys: WantedKeys, *, keeps_keys: bool) -> pa.Table:
    """Return the rows with these keys and FILE and ROW of each. Acquires the table's write lock (see `TableReader.positions`)."""
    state = planner.transaction.reader.changing(relation, keeps_keys=keeps_keys)
    return _found(planner, relation, state, keys)


def _found(planner: Planner, relation: Relation, state: TableState, keys: WantedKeys) -> pa.Table:
    table = planner.transaction.reader.table(relation)
    matches = lookup.find_in(table, relation, state, keys.key, keys.values)
    old = buffers.whole(matches["old"])
    rows = pa.table([*old.flatten(), matches["file"], matches["row"]], names=[*[column.name for column in relation.columns], FILE, ROW])
    if rows.num_rows < 2:
        return rows
    files = pa.array([table.uri(name) for name in state.files], pa.string())
    file_positions = pa.table({"file": pc.index_in(matches["file"], value_set=files), "row": matches["row"]})
    return rows.take(pc.sort_indices(file_positions, [("file", "ascending"), ("row", "ascending")]))


def of_where(planner: Planner, relation: Relation, where: ParseNode, scope: Scope) -> WantedKeys | None:
    """Return the keys that a WHERE clause fixes, or None. `scope` has the relation as its only table."""
    context = planner.context.within(construct="WHERE")
    parts = [part for part in anded(where) if not any(node.DESCRIPTOR.name == "SubLink" for node in walk_tree(part))]
    try:
        terms = [binder.bind_raw(part, scope, context) for part in parts]
    except PostgresError:  # planning the query as usual raises the error
        return None
    return of_terms(planner, relation, scope.tables[0].columns, terms)


def of_terms(planner: Planner, relation: Relation, columns: Sequence[Keyed], terms: Iterable[Expression]) -> WantedKeys | None:
    """Return the keys that the terms of an AND fix, or None. `columns`: the relation's columns, as the terms reference them."""
    indexes = [index for index in relation.unique_indexes if index.plain and index.immediate]
    if relation.kind != RelationKind.TABLE or relation.with_children or not indexes:
        return None
    by_key = {shown.key: column for shown, column in zip(columns, relation.columns, strict=True)}
    fixed: dict[int, list[str]] = {}
    try:
        for term in terms:
            if _may_fix(term):
                _fix(planner.prepare(term), by_key, fixed)
    except PostgresError:  # planning the query as usual raises the error
        return None
    for index in indexes:
        if all(attnum in fixed for attnum in index.attnums) and math.prod(len(fixed[attnum]) for attnum in index.attnums) <= MOST:
            return _keys(planner, relation, index.attnums, fixed)
    return None


def _may_fix(term: Expression) -> bool:
    """Return whether a condition is an equality without subqueries and calls."""
    if not isinstance(term, OpExpr | ScalarArrayOp):
        return False
    return not any(isinstance(node, SubLink | UserCall) or (isinstance(node, FuncExpr) and node.form not in _CASTS) for node in walk(term))


def _fix(bound: Expression, by_key: dict[str, Column], fixed: dict[int, list[str]]) -> None:
    """Add to `fixed` the values that a condition allows for a column, as text in the column's type."""
    match bound:
        case OpExpr(operator=operator, args=(left, right)):
            sides = [(left, right), (right, left)]
            values = [[value] for _, value in sides]
        case ScalarArrayOp(operator=operator, any=True, args=(left, right)):
            sides, values = [(left, right)], [list(_items(right))]
        case _:
            return
    if not any(strategy == _EQUAL for _, strategy in builtin.builtins().families.get(operator, ())):
        return
    for (side, _), candidates in zip(sides, values, strict=True):
        column = _column(side, by_key)
        if column is None or column.attnum in fixed:
            continue
        texts = [_text(value, column) for value in candidates]
        if texts and all(known for known, _ in texts):
            fixed[column.attnum] = list(dict.fromkeys(text for _, text in texts if text is not None))


def _column(node: Expression, by_key: dict[str, Column]) -> Column | None:
    """Return the column that one side of a condition references, also through a cast that does not change the stored value.

    A cast of varchar to char(n) changes the comparison: it ignores trailing blanks, which the index distinguishes.
    """
    inner = node
    while type(inner) is Relabel:
        inner = inner.arg
    if _is_padded(inner) != _is_padded(node):
        return None
    return by_key.get(inner.key) if isinstance(inner, ColumnRef) and inner.attnum > 0 and not inner.levels_up else None


def _is_padded(node: Expression) -> bool:
    return registry.known().base(node.type.oid)[0] == registry.BPCHAR


def _items(node: Expression) -> Iterable[Expression]:
    """Return the items of a constant array. For any other expression, return an item that is not a constant."""
    while type(node) is Relabel:
        node = node.arg
    if isinstance(node, ArrayExpr) and not node.nested:
        return node.elements
    if isinstance(node, Const) and node.value is not None:
        element = registry.known().by_oid(node.type.oid).element
        return [Const(type=TypeRef(element), value=text) for text in arrays.parts(node.value)[1]]
    return [node]


def _text(value: Expression, column: Column) -> tuple[bool, str | None]:
    """Return whether the value is a constant that can be compared in the column's type, and its text. None as text: it equals nothing."""
    while type(value) is Relabel:
        value = value.arg
    kind = registry.known().base(column.type_oid)[0]
    if not isinstance(value, Const):
        return False, None
    if value.value is None:
        return True, None
    if value.type.oid == kind or {value.type.oid, kind} <= {registry.TEXT, registry.VARCHAR}:
        return True, value.value
    if {value.type.oid, kind} <= values_list.WHOLE.keys():
        folded = values_list.folded(value, TypeRef(kind))
        return True, None if folded is None else folded.value  # out of the column's range, so it equals no value in it
    return False, None


def _keys(planner: Planner, relation: Relation, attnums: Sequence[int], fixed: dict[int, list[str]]) -> WantedKeys | None:
    key = lookup.key_of(relation, attnums)
    product = list(itertools.product(*[fixed[attnum] for attnum in attnums]))
    columns = []
    for place, (column, kind) in enumerate(zip(relation.columns_at(attnums), key.kinds, strict=True)):
        base, _ = registry.known().base(column.type_oid, column.typmod)
        texts = pa.array([values[place] for values in product], pa.string())
        try:
            # read in the stored type but without the length limit, which a value that equals no stored value may exceed
            read = read_text(texts, base, -1, session=planner.evaluation.context.forms)
            columns.append(lookup.canonical_array(read.cast(arrow_type(column.type_oid, column.typmod)), kind))
        except (PostgresError, pa.ArrowInvalid):
            return None
    table = pa.table(columns, names=[f"k{place}" for place in range(len(columns))])
    return WantedKeys(key, table if table.num_rows == 1 else table.group_by(table.column_names, use_threads=False).aggregate([]))
