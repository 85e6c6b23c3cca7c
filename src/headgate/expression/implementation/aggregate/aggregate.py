"""What a node has of one of PostgreSQL's aggregates: how a call of it is made for each engine.

The modules of this room have tables of them (`AGGREGATES`) by name, as all aggregates are of one C function; `implementations` puts the
tables together, and the compilers' `aggregate` looks calls up there, also those over a window. DISTINCT, FILTER and ORDER BY are the
compilers' as far as the engine has them; a form looks at them where it has to make them itself, or refuses them.

    spark        makes the value of a call over the rows of a group (`spark.aggregate_call`)
    takes        the types of the first argument that the Spark form knows, as the aggregate is declared
    duckdb       what DuckDB is to be called with in a query on the system catalogs; None: it has not got this call
    gathers      keeps the rows in the order in which they come: that of a sorted subquery in FROM is to be followed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.expression import node as n
from headgate.expression.builtin import Function
from headgate.expression.duckdb.value import Env as DuckdbEnv
from headgate.expression.spark.aggregate_call import AggregateCall
from headgate.expression.spark.value import Value


@dataclass(frozen=True)
class DuckdbCall:
    """A call in DuckDB's SQL: its function, its arguments, and what stands around it (behind FILTER and OVER, which are the call's)."""

    function: str
    arguments: str
    around: str = "{}"


DuckdbForm = Callable[[n.Aggregate, Sequence[str], DuckdbEnv], DuckdbCall | None]
"""(the call, the SQL of its arguments, what is around the query) → what DuckDB is called with."""


def _any(_: int) -> bool:
    return True


@dataclass(frozen=True)
class AggregateImplementation:
    """See the module."""

    spark: Callable[[AggregateCall], Value]
    takes: Callable[[int], bool] = _any
    duckdb: DuckdbForm | None = None
    gathers: bool = False

    def known(self, found: Function) -> bool:
        """Whether Spark's form knows the aggregate with these arguments."""
        return not found.arguments or self.takes(found.arguments[0])
