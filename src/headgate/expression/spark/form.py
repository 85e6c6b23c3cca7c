"""The form of a function for Spark: how a call of it is built, and what the call must know of it.

The families (`spark.functions`, `cast`, `comparison`) have tables of them by the key of PostgreSQL's implementation; `call` looks them up.
What must hold: a form says all that a call treats differently; no set of names stands beside the tables.

    raises       an operand that may raise is looked at before a call that skips it where another is NULL: never needed of a function
                 whose operands cannot raise, so that only what raises costs
    null_first   the call is NULL where an operand is, looked for before the parts that it is made of
    right_first  Spark evaluates the right operand first, PostgreSQL the left
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.expression.node import Const, Expression
from headgate.expression.spark.value import Value

Builder = Callable[[Expression, Sequence[Value]], Value]
"""(the call, its planned operands) → its value."""


class Raises(enum.Enum):
    """When a function may end in an error, whatever its operands do."""

    NEVER = enum.auto()
    BY_PATTERN = enum.auto()
    """Only by a second operand that is not known when the expression is compiled: a constant one was looked at then."""
    ANY_TIME = enum.auto()


@dataclass(frozen=True)
class Form:
    """See the module. A table may have a builder alone where nothing but the defaults is to be said."""

    build: Builder
    raises: Raises = Raises.ANY_TIME
    null_first: bool = False
    right_first: bool = False

    def __call__(self, node: Expression, args: Sequence[Value]) -> Value:
        """The value of the call."""
        return self.build(node, args)

    def may_raise(self, operands: Sequence[Expression]) -> bool:
        """Whether a call over these operands may end in an error that none of them raised."""
        if self.raises is Raises.BY_PATTERN:
            return not isinstance(operands[1], Const)
        return self.raises is Raises.ANY_TIME


def silent(build: Builder) -> Form:
    """The form of a function that never raises."""
    return Form(build, Raises.NEVER)


def right_first(build: Builder) -> Form:
    """The form of a function whose right operand Spark evaluates first."""
    return Form(build, right_first=True)
