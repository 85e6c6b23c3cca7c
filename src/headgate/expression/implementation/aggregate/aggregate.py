"""The implementation of one of PostgreSQL's aggregates: its forms for each engine.

The modules of this package have tables of implementations (`AGGREGATES`) by name, because all aggregates share one C function.
`implementations` merges the tables. The compilers' `aggregate` looks calls up there, including those over a window. The compilers handle
DISTINCT, FILTER and ORDER BY as far as the engine supports them. A form examines them only if it must implement or refuse them.

    spark        builds the value of a call over the rows of a group (`spark.aggregate_call`)
    takes        whether the Spark form supports the type of the first argument, as the aggregate is declared
    arrow        the kernels that compute it over the rows of a group in the driver, or None if Arrow has no exact answer
    duckdb       returns the DuckDB call for a query on the system catalogs, or None if the call is not supported
    gathers      keeps the rows in their input order, so that the order of a sorted subquery in FROM must be preserved
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.expression import node as n
from headgate.expression.builtin import Function
from headgate.expression.duckdb.value import Env as DuckdbEnv
from headgate.expression.spark.aggregate_call import AggregateCall
from headgate.expression.spark.value import Value


@dataclass(frozen=True)
class DuckdbCall:
    """A call in DuckDB's SQL: its function, its arguments, and the SQL `around` the call, which includes its FILTER and OVER."""

    function: str
    arguments: str
    around: str = "{}"


DuckdbForm = Callable[[n.Aggregate, Sequence[str], DuckdbEnv], DuckdbCall | None]
"""(the call, the SQL of its arguments, the environment) → the DuckDB call."""


@dataclass(frozen=True)
class ArrowCall:
    """Kernels of Arrow over the argument of an aggregate, with their options.

    `prepare` makes the argument what the kernels compute exactly, or raises `NotColumnwise`. `finish` makes the aggregate's value, in
    stored form or as a decimal, of what the kernels give.
    """

    kernels: tuple[tuple[str, object], ...]
    prepare: Callable[[pa.Array], pa.Array] | None = None
    finish: Callable[..., pa.Array] | None = None


ArrowForm = Callable[[n.Aggregate], ArrowCall | None]
"""(the call) → the kernels; decided by the types alone."""


def _any(_: int) -> bool:
    return True


@dataclass(frozen=True)
class AggregateImplementation:
    """The forms of one aggregate. The module docstring describes the fields."""

    spark: Callable[[AggregateCall], Value]
    takes: Callable[[int], bool] = _any
    duckdb: DuckdbForm | None = None
    arrow: ArrowForm | None = None
    gathers: bool = False

    def known(self, function: Function) -> bool:
        """Return whether Spark's form supports the aggregate with these arguments."""
        return not function.arguments or self.takes(function.arguments[0])
