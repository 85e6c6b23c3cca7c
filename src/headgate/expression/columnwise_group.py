"""Groups of rows and their aggregates, computed over Arrow columns in the driver.

Called by `commands.query.driver`. Invariant: as in `columnwise`, the values are PostgreSQL's, or `NotColumnwise` is raised and Spark
computes them. `is_known` decides from the tree alone whether all aggregates of an expression have an Arrow form.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headgate.expression import builtin, columnwise
from headgate.expression import node as n
from headgate.expression.implementation.aggregate.aggregate import ArrowCall
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.implementation.implementations import AGGREGATES
from headgate.types import buffers


def is_known(aggregate: n.Aggregate) -> bool:
    """Return whether Arrow has an exact form of an aggregate and of its arguments."""
    if _call(aggregate) is None or aggregate.order or (aggregate.distinct and not all(map(columnwise.is_grouped, aggregate.args))):
        return False
    return all(columnwise.is_known(operand) for operand in aggregate.children())


def _call(aggregate: n.Aggregate) -> ArrowCall | None:
    kernel = AGGREGATES.get(builtin.function(aggregate.function).name)
    return None if kernel is None or kernel.arrow is None else kernel.arrow(aggregate)


def groups(
    items: Mapping[str, n.Expression], aggregates: Mapping[str, n.Aggregate], columns: Mapping[str, pa.Array], rows: int
) -> tuple[dict[str, pa.Array], int]:
    """Return the columns of the groups by the keys of `items` and `aggregates`, and how many groups there are.

    Without items all rows are one group. Numeric values are text or decimals with the scale that PostgreSQL shows.
    """
    arrays = {key: columnwise.group_key(item.type, columnwise.value(item, columns, rows)) for key, item in items.items()}
    kernels, finishes = [], {}
    for key, aggregate in aggregates.items():
        call = _call(aggregate)
        if call is None:
            raise NotColumnwise(builtin.function(aggregate.function).name)
        arrays[key] = _argument(aggregate, call, columns, rows)
        kernels += [(key, name, options) for name, options in call.kernels]
        finishes[key] = call
    if not kernels and not items:
        raise NotColumnwise("one group without aggregates")
    grouped = pa.table(arrays).group_by(list(items)).aggregate(kernels)
    results = {key: buffers.whole(grouped.column(key)) for key in items}
    for key, call in finishes.items():
        values = [buffers.whole(grouped.column(f"{key}_{name}")) for name, _ in call.kernels]
        results[key] = values[0] if call.finish is None else call.finish(*values)
    return results, grouped.num_rows


def _argument(aggregate: n.Aggregate, call: ArrowCall, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return the values that an aggregate takes, NULL in rows that its FILTER leaves out; of count(*) true in each row."""
    values = columnwise.value(aggregate.args[0], columns, rows) if aggregate.args else pa.repeat(True, rows)
    if aggregate.distinct:
        values = columnwise.group_key(aggregate.args[0].type, values)
    if aggregate.filter is not None:
        passing = columnwise.condition(aggregate.filter, columns, rows)
        values = pc.if_else(passing, values, pa.scalar(None, values.type))
    return values if call.prepare is None else call.prepare(values)
