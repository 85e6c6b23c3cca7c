"""What a node has of one of PostgreSQL's functions: how a call of it is made for each engine, and what a call must know of it.

The modules of this room have tables of them (`IMPLEMENTATIONS`) by the function's *key*, the name of PostgreSQL's C function, which
operators and casts go by too; `implementations` puts the tables together, and the compilers look calls up there. An entry is all that
there is to say of a function: no set of names stands beside the tables. Its parts, each of which may be missing, so that the engine
refuses the call (0A000) or, of Arrow, leaves it to Spark:

    spark        makes the Column of a call: Spark's own where that has PostgreSQL's exact meaning, else a function on single values
                 (`expression.functions`) run over Arrow in Spark's workers (`spark.vectorised.scalar`)
    arrow        the same over Arrow arrays in the driver, for the row filters of small batches. A kernel that raises is no error:
                 Spark is asked (`expression.columnwise`)
    duckdb       the SQL of a call in a query on the system catalogs: a template, or a function that makes it (`duckdb.call`)

    raises       an operand that may raise is looked at before a call that skips it where another is NULL: never needed of a function
                 whose operands cannot raise, so that only what raises costs
    null_first   the Column is NULL where an operand is, looked for before the parts that it is made of
    commuted     the same Column made so that the right operand is evaluated first: where that alone may raise, nothing has to be looked at
    any_collation  the order of characters does not matter: any collation of the operands will do
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.expression.duckdb.value import DuckdbForm
from headgate.expression.node import Const, Expression
from headgate.expression.spark.value import Value

SparkForm = Callable[[Expression, Sequence[Value]], Value]
"""(the call, its planned operands) → its value."""
ArrowForm = Callable[..., Any]
"""(arrays or scalars of Arrow, in storage types) → an array or a scalar."""


class Raises(enum.Enum):
    """When a function may end in an error, whatever its operands do."""

    NEVER = enum.auto()
    BY_PATTERN = enum.auto()
    """Only by a second operand that is not known when the expression is compiled: a constant one was looked at then."""
    ANY_TIME = enum.auto()


class NotColumnwise(Exception):
    """Of an Arrow form or of `expression.columnwise`: Arrow has no exact answer, Spark is to be asked."""


class Guarded(str):
    """A template of DuckDB's SQL that by itself would not be NULL for a NULL argument, and is made so."""

    __slots__ = ()


@dataclass(frozen=True)
class Implementation:
    """See the module."""

    spark: SparkForm | None = None
    raises: Raises = Raises.ANY_TIME
    null_first: bool = False
    commuted: SparkForm | None = None
    any_collation: bool = False
    arrow: ArrowForm | None = None
    duckdb: str | Guarded | DuckdbForm | None = None

    def may_raise(self, operands: Sequence[Expression]) -> bool:
        """Whether a call over these operands may end in an error that none of them raised."""
        if self.raises is Raises.BY_PATTERN:
            return not isinstance(operands[1], Const)
        return self.raises is Raises.ANY_TIME


Table = dict[str, SparkForm | Implementation]
"""Entries by key; a function that only Spark has, and of which nothing else is to be said, is its Spark form alone."""


def silent(
    spark: SparkForm,
    *,
    any_collation: bool = False,
    arrow: ArrowForm | None = None,
    duckdb: str | Guarded | DuckdbForm | None = None,
) -> Implementation:
    """A function that never raises."""
    return Implementation(spark, Raises.NEVER, any_collation=any_collation, arrow=arrow, duckdb=duckdb)
