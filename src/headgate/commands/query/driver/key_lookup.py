"""The rows that a WHERE can mean at most, where it fixes all columns of a unique index: read by the driver, as apply reads them.

Called by `from_clause` for the one table of a FROM, by UPDATE and DELETE, and by `single_table`. ``WHERE id = 7 AND b > now()`` fixes `id`;
so do ``id IN (7, 8)`` and ``id = ANY ($1)``. The rows of these keys are found in the files by `changes.lookup` and stand for the table in
the statement: all of WHERE is evaluated over them as it would be over the table, so nothing here has to be more than wide enough.

What must hold: the value beside the column is a constant once parameters are in place, and the operator is the equality by which the
index tells its keys apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation_kind import RelationKind
from headgate.changes import lookup
from headgate.commands.query.driver import values_list
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding import binder
from headgate.expression.binding.scope import Scope
from headgate.expression.node import ArrayExpr, ColumnRef, Const, Expression, OpExpr, Relabel, ScalarArrayOp, TypeRef
from headgate.sql import names
from headgate.sql.parser import ParseNode, anded, walk
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.spark.local_relation import in_one_piece
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers, registry
from headgate.types.storage import arrow_type
from headgate.types.text import array as arrays
from headgate.types.text.text import read_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.catalog.relation.relation import Column, Relation
    from headgate.commands.query.planner import Planner
    from headgate.storage.delta.table_state import TableState

MOST = 1000
"""Keys of one statement that are looked up so."""
_EQUAL = 3
"""The btree strategy of an equality."""
_KINDS = frozenset({pb.AEXPR_OP, pb.AEXPR_OP_ANY, pb.AEXPR_IN})
_OTHERS = frozenset({"SubLink", "FuncCall", "SetToDefault"})


@dataclass(frozen=True)
class WantedKeys:
    """Some keys of a table: `values` has k0, k1, …, as `lookup.find` takes them."""

    key: lookup.RowKey
    values: pa.Table


def frame(planner: Planner, relation: Relation, alias: str, schema: str | None, aliases: Sequence[str]) -> DataFrame | None:
    """The rows of a table that the WHERE of its query can mean; None where they are not few, or where the table is small anyway."""
    where, planner.only_where = planner.only_where, None
    if where is None or planner.describing or relation.oid in planner.frozen:
        return None
    from headgate.commands.query.clause import from_clause

    table, _ = from_clause.named_table(planner, relation, alias, schema, aliases)
    keys = of_where(planner, relation, where, Scope((table,)))
    if keys is None:
        return None
    return in_one_piece(planner.session_spark, rows(planner, relation, keys), spark_columns(relation))


def rows(planner: Planner, relation: Relation, keys: WantedKeys) -> pa.Table:
    """The rows with these keys as this statement sees them, and all that the transaction has added and not written."""
    state, pending = planner.transaction.shown(relation)
    found = _found(planner, relation, state, keys)
    return pa.concat_tables([found.drop_columns([FILE, ROW]), *pending])


def positions(planner: Planner, relation: Relation, keys: WantedKeys, *, keeps_keys: bool) -> pa.Table:
    """The rows with these keys, and FILE and ROW of each; takes the table's write lock (as `Transaction.positions`)."""
    state = planner.transaction.changing(relation, keeps_keys=keeps_keys)
    return _found(planner, relation, state, keys)


def _found(planner: Planner, relation: Relation, state: TableState, keys: WantedKeys) -> pa.Table:
    table = planner.transaction.engine.table((relation.database, relation.oid))
    found = lookup.find_in(table, relation, state, keys.key, keys.values)
    old = buffers.whole(found["old"])
    files = pa.array([table.uri(name) for name in state.files], pa.string())
    written = pa.table({"file": pc.index_in(found["file"], value_set=files), "row": found["row"]})
    rows = pa.table([*old.flatten(), found["file"], found["row"]], names=[*[each.name for each in relation.columns], FILE, ROW])
    return rows.take(pc.sort_indices(written, [("file", "ascending"), ("row", "ascending")]))


def of_where(planner: Planner, relation: Relation, where: ParseNode, scope: Scope) -> WantedKeys | None:
    """The keys that a WHERE names, over a scope that has the relation as its only table; None where it may mean others."""
    indexes = [each for each in relation.unique_indexes if each.plain and each.immediate]
    if relation.kind != RelationKind.TABLE or not indexes:
        return None
    by_key = {each.key: column for each, column in zip(scope.tables[0].columns, relation.columns, strict=True)}
    fixed: dict[int, list[str]] = {}
    try:
        for part in anded(where):
            if _may_fix(part):
                bound = planner.prepare(binder.bind_raw(part, scope, planner.context.within(construct="WHERE")))
                _fix(bound, by_key, fixed)
    except PostgresError:  # the usual way says what is wrong
        return None
    for index in indexes:
        if all(attnum in fixed for attnum in index.attnums) and math.prod(len(fixed[attnum]) for attnum in index.attnums) <= MOST:
            return _keys(planner, relation, index.attnums, fixed)
    return None


def _may_fix(node: ParseNode) -> bool:
    """Whether a condition is an equality, as it is written, with neither a subquery nor a call."""
    if node.DESCRIPTOR.name != "A_Expr" or node.kind not in _KINDS or names.strings(node.name)[-1] != "=":
        return False
    return not any(each.DESCRIPTOR.name in _OTHERS for each in walk(node))


def _fix(bound: Expression, by_key: dict[str, Column], fixed: dict[int, list[str]]) -> None:
    """Notes the values (text form in the column's type) that a condition leaves to a column."""
    match bound:
        case OpExpr(operator=operator, args=(left, right)):
            sides = [(left, right), (right, left)]
            values = [[each] for _, each in sides]
        case ScalarArrayOp(operator=operator, any=True, args=(left, right)):
            sides, values = [(left, right)], [list(_items(right))]
        case _:
            return
    if not any(strategy == _EQUAL for _, strategy in builtin.builtins().families.get(operator, ())):
        return
    for (side, _), found in zip(sides, values, strict=True):
        column = _column(side, by_key)
        if column is None or column.attnum in fixed:
            continue
        texts = [_text(each, column) for each in found]
        if texts and all(known for known, _ in texts):
            fixed[column.attnum] = list(dict.fromkeys(text for _, text in texts if text is not None))


def _column(node: Expression, by_key: dict[str, Column]) -> Column | None:
    """The column that one side of a condition is, in its own type or, where that stores the same, in another."""
    while type(node) is Relabel:
        node = node.arg
    return by_key.get(node.key) if isinstance(node, ColumnRef) and node.attnum > 0 and not node.levels_up else None


def _items(node: Expression) -> Iterable[Expression]:
    """The items of a constant array; what is none has an item that is no constant."""
    while type(node) is Relabel:
        node = node.arg
    if isinstance(node, ArrayExpr) and not node.nested:
        return node.elements
    if isinstance(node, Const) and node.value is not None:
        element = registry.known().by_oid(node.type.oid).element
        return [Const(type=TypeRef(element), value=text) for text in arrays.parts(node.value)[1]]
    return [node]


def _text(value: Expression, column: Column) -> tuple[bool, str | None]:
    """Whether the other side is a constant of the column's type, and its text; None: it equals nothing."""
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
        return True, None if folded is None else folded.value  # out of the column's range: equal to nothing in it
    return False, None


def _keys(planner: Planner, relation: Relation, attnums: Sequence[int], fixed: dict[int, list[str]]) -> WantedKeys | None:
    key = lookup.key_of(relation, attnums)
    product = list(itertools.product(*[fixed[attnum] for attnum in attnums]))
    columns = []
    for place, (attnum, kind) in enumerate(zip(attnums, key.kinds, strict=True)):
        column = relation.numbered(attnum)
        assert column is not None
        base, _ = registry.known().base(column.type_oid, column.typmod)
        texts = pa.array([values[place] for values in product], pa.string())
        try:
            # in the type as it is stored; without its length, which a value may exceed that is equal to none in the column
            read = read_text(texts, base, -1, session=planner.evaluation.context.forms)
            columns.append(lookup.canonical_array(read.cast(arrow_type(column.type_oid, column.typmod)), kind))
        except (PostgresError, pa.ArrowInvalid):
            return None
    table = pa.table(columns, names=[f"k{place}" for place in range(len(columns))])
    return WantedKeys(key, table.group_by(table.column_names, use_threads=False).aggregate([]))
