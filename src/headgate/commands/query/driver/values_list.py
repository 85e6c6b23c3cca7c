"""VALUES lists of INSERT: constants are read into Arrow columns by the driver, other expressions by one Spark row.

Called by `insert`, and for defaults. An INSERT of constants starts no Spark job: that is what keeps it fast.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.catalog.relation.relation import Column
from headgate.expression import columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Const, Expression, TypeRef
from headgate.types import registry
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner

WHOLE = {registry.INT2: 2**15, registry.INT4: 2**31, registry.INT8: 2**63}
_NUMBERS = (registry.NUMERIC, registry.FLOAT4, registry.FLOAT8)


def folded(expression: Expression, target: TypeRef) -> Const | None:
    """The constant that a constant is in a column of type `target`, where its text form says so; None: let Spark compute it."""
    if not isinstance(expression, Const):
        return None
    source, text = expression.type.oid, expression.value
    if text is None:
        return Const(type=target, value=None)
    if source in WHOLE and target.oid in WHOLE:
        limit = WHOLE[target.oid]
        return Const(type=target, value=text) if -limit <= int(text) < limit else None
    if source in WHOLE and (target.oid in _NUMBERS or target.oid in (registry.TEXT, registry.VARCHAR)):
        return Const(type=target, value=text)
    if source == registry.NUMERIC and target.oid in (registry.NUMERIC, registry.TEXT, registry.VARCHAR):
        return Const(type=target, value=text)
    if source == registry.NUMERIC and target.oid == registry.FLOAT8 and text not in ("NaN", "Infinity", "-Infinity"):
        return Const(type=target, value=text)
    if source in (registry.TEXT, registry.VARCHAR) and target.oid in (registry.TEXT, registry.VARCHAR, registry.BPCHAR):
        return Const(type=target, value=text)
    return Const(type=target, value=text) if source == target.oid and target.typmod < 0 else None


def column_of(planner: Planner, column: Column, cells: Sequence[Expression | None]) -> pa.Array:
    """The values of one column: `cells` are expressions in the column's type, None for NULL."""
    kind = arrow_type(column.type_oid, column.typmod)
    texts: list[str | None] = []
    computed: dict[int, Expression] = {}
    for place, cell in enumerate(cells):
        if isinstance(cell, Const) or cell is None:
            texts.append(None if cell is None else cell.value)
        else:
            texts.append(None)
            computed[place] = cell
    array = read_text(pa.array(texts, pa.string()), column.type_oid, column.typmod, session=planner.evaluation.context.forms)
    if not computed:
        return array
    values = [each.cast(kind) for each in evaluate(planner, list(computed.values()))]
    places = list(range(len(cells)))
    for number, place in enumerate(computed):
        places[place] = len(cells) + number
    return pa.concat_arrays([array, *values]).take(pa.array(places))


def evaluate(planner: Planner, expressions: Sequence[Expression]) -> list[pa.Array]:
    """The values (in stored form) of expressions without columns, an array of one each: by Arrow if it has all, else by one Spark row."""
    with contextlib.suppress(NotColumnwise):
        return [columnwise.value(planner.prepare(each), {}, 1) for each in expressions]
    columns = [planner.column(each).alias(f"v{place}") for place, each in enumerate(expressions)]
    table = planner.one_row().select(*columns).toArrow()
    return [pa.concat_arrays(table.column(place).chunks) for place in range(len(expressions))]
