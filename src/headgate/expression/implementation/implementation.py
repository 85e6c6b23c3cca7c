"""The implementation of one of PostgreSQL's functions: its forms for each engine, and the properties that a call depends on.

The modules of this package have tables of implementations (`IMPLEMENTATIONS`) by the function's *key*, the name of PostgreSQL's C function,
which also identifies operators and casts. `implementations` merges the tables, and the compilers look calls up there. An entry holds
everything about a function. There are no further sets of names. Each part of an entry may be missing. The engine then refuses
the call (0A000), or, for Arrow, leaves it to Spark:

    spark        builds the Column of a call: Spark's own function if that has PostgreSQL's exact meaning, otherwise a function on single
                 values (`expression.functions`) that runs over Arrow in Spark's workers (`spark.vectorised.scalar`)
    arrow        the same over Arrow arrays in the driver, for the row filters of small batches. If a kernel raises, Spark evaluates
                 the call instead (`expression.columnwise`)
    duckdb       the SQL of a call in a query on the system catalogs: a template, or a function that builds it (`duckdb.call`)

    raises       when the function itself may raise. An operand that may raise is evaluated before a call that skips it because another
                 operand is NULL. Operands that cannot raise need no such check, so only functions that raise cost more
    null_first   the Column is NULL if an operand is; this is tested before its parts are evaluated
    commuted     the same Column with the right operand evaluated first. If only that one may raise, no check is needed
    any_collation  the order of characters does not matter, so operands may have any collation
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column

from headgate.expression.duckdb.value import DuckdbForm
from headgate.expression.node import Const, Expression
from headgate.expression.spark.value import Rep, Value, of_columns

SparkForm = Callable[[Expression, Sequence[Value]], Value]
"""(the call, its planned operands) → its value."""
Operand: TypeAlias = pa.Array | pa.ChunkedArray | pa.Scalar
"""A column of Arrow or a constant, in the storage type."""
ArrowForm = Callable[..., Operand]


class Raises(enum.Enum):
    """When a function may raise an error, whatever its operands do."""

    NEVER = enum.auto()
    BY_PATTERN = enum.auto()
    """Only because of a second operand that is not a constant. A constant one is checked when the expression is compiled."""
    ANY_TIME = enum.auto()


class NotColumnwise(Exception):
    """Raised by an Arrow form or by `expression.columnwise` if Arrow has no exact answer. The caller then uses Spark."""


class Guarded(str):
    """A template of DuckDB's SQL that is wrapped so that it is NULL for a NULL argument."""

    __slots__ = ()


@dataclass(frozen=True)
class Implementation:
    """The forms and properties of one function. The module docstring describes the fields."""

    spark: SparkForm | None = None
    raises: Raises = Raises.ANY_TIME
    null_first: bool = False
    commuted: SparkForm | None = None
    any_collation: bool = False
    arrow: ArrowForm | None = None
    duckdb: str | Guarded | DuckdbForm | None = None

    def may_raise(self, operands: Sequence[Expression]) -> bool:
        """Return whether a call over these operands may raise an error that none of the operands raised."""
        if self.raises is Raises.BY_PATTERN:
            return not isinstance(operands[1], Const)
        return self.raises is Raises.ANY_TIME


Table = dict[str, SparkForm | Implementation]
"""Entries by key. A function with only a Spark form, and default properties, is represented by that form."""


def native(rep: Rep, build: Callable[..., Column]) -> SparkForm:
    """Return the form of a function that `build` makes of the Columns of its operands."""
    return lambda node, args: of_columns(rep, build, *args)


def silent(
    spark: SparkForm,
    *,
    any_collation: bool = False,
    arrow: ArrowForm | None = None,
    duckdb: str | Guarded | DuckdbForm | None = None,
) -> Implementation:
    """Return the entry of a function that never raises."""
    return Implementation(spark, Raises.NEVER, any_collation=any_collation, arrow=arrow, duckdb=duckdb)
