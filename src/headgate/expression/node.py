"""The nodes of the typed expression, which is a parse tree after names, operators and types have been resolved.

Built by `binder`, read by `deparse`, `serialization`, `spark.compiler` and the row filter's checks. The nodes are those of PostgreSQL
(primnodes.h), without the fields that only its executor needs. Every node is frozen and compares by value. A node's `location` is the byte
offset of its token in the source text, or -1 if unknown. The module `location` computes that of a whole expression.

Invariant: `type` is the node's exact result type. Operands already have the types that the operator or function takes, because all
coercions are in the tree. So only the binder decides on types.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from headgate.types import registry

DEFAULT_COLLATION = 100


@dataclass(frozen=True, slots=True)
class TypeRef:
    """A type with its modifier and collation (0: the type is not collatable, 100: default).

    `fields`: the names and types of the columns of a record, if they are known.
    """

    oid: int
    typmod: int = -1
    collation: int = 0
    fields: tuple[tuple[str, TypeRef], ...] = field(default=(), compare=False, repr=False)


BOOLEAN = TypeRef(registry.BOOL)
INTEGER = TypeRef(registry.INT4)
TEXT = TypeRef(registry.TEXT, -1, DEFAULT_COLLATION)
UNKNOWN = TypeRef(registry.UNKNOWN)


class Form(enum.StrEnum):
    """How a call was written, which decides how it is printed (CoercionForm)."""

    CALL = "call"
    EXPLICIT = "explicit"
    IMPLICIT = "implicit"
    SQL = "sql"


class BoolKind(enum.StrEnum):
    """The connective of a BoolExpr."""

    AND = "AND"
    OR = "OR"
    NOT = "NOT"


class TestKind(enum.StrEnum):
    """The test of a BooleanTest."""

    TRUE = "IS TRUE"
    NOT_TRUE = "IS NOT TRUE"
    FALSE = "IS FALSE"
    NOT_FALSE = "IS NOT FALSE"
    UNKNOWN = "IS UNKNOWN"
    NOT_UNKNOWN = "IS NOT UNKNOWN"


@dataclass(frozen=True, kw_only=True)
class Expression:
    """Base class of all nodes."""

    type: TypeRef
    location: int = field(default=-1, compare=False)

    def children(self) -> Iterator[Expression]:
        """Yield the operands, in the order in which PostgreSQL walks them."""
        for name in names(type(self)):
            yield from _expressions(getattr(self, name))


_NAMES: dict[str, tuple[str, ...]] = {}


def names(kind: type[Expression]) -> tuple[str, ...]:
    """Return the names of the fields that may hold expressions, for a class of nodes. Cached, because trees are walked often."""
    expression_fields = _NAMES.get(kind.__name__)
    if expression_fields is None:
        expression_fields = _NAMES[kind.__name__] = tuple(
            candidate.name for candidate in fields(kind) if candidate.name not in ("type", "location")
        )
    return expression_fields


def _expressions(value: object) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _expressions(item)


@dataclass(frozen=True, kw_only=True)
class ColumnRef(Expression):
    """A column of a table in scope. References are equal if they have the same key, however the query writes them.

    `key` is the key under which the scope's owner provides the column. The compiler looks the Spark Column up by it. `attnum` is the
    column's number in the relation (negative: a system column, 0: the whole row). `levels_up` counts enclosing queries. `qualifier` is the
    table's alias, printed if `qualified`. `relation` is the table of a whole row, 0 if it is not known.
    """

    name: str
    attnum: int = field(compare=False)
    key: str
    qualifier: str = field(default="", compare=False)
    qualified: bool = field(default=False, compare=False)
    levels_up: int = 0
    relation: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Const(Expression):
    """A constant. `value` is its text as PostgreSQL's output function prints it, or None for NULL."""

    value: str | None


@dataclass(frozen=True, kw_only=True)
class Param(Expression):
    """The parameter ``$number`` of an extended query."""

    number: int


@dataclass(frozen=True, kw_only=True)
class FuncExpr(Expression):
    """A call of a function, or a cast through one (`form`)."""

    function: int
    args: tuple[Expression, ...]
    form: Form = Form.CALL
    variadic: bool = False


@dataclass(frozen=True, kw_only=True)
class UserCall(Expression):
    """A call of a function that a user made. `schema` is empty if the search path finds the function.

    `args` has a value for each input. `passed` has the place in `args` and the name, or an empty text, of each argument that the call has:
    the others are defaults. `variadic`: the last input is the array of a variadic function.

    `body` is the function's expression over its arguments as parameters, if a call is no more than that. Otherwise `compute.of_row` takes
    the texts of the arguments of one row and returns the text of the value. Unless `compute.needs_session`, `compute` itself takes the
    arguments of many rows as Arrow arrays and returns the values; Spark's tasks receive it pickled.
    """

    function: int
    schema: str
    name: str
    args: tuple[Expression, ...]
    passed: tuple[tuple[int, str], ...] = ()
    variadic: bool = False
    volatility: str = "v"
    strict: bool = False
    body: Expression | None = field(default=None, compare=False)
    compute: Any = field(default=None, compare=False)

    def children(self) -> Iterator[Expression]:
        """Return the arguments; the body is not part of the tree."""
        yield from self.args


@dataclass(frozen=True, kw_only=True)
class OpExpr(Expression):
    """An operator with one (prefix) or two operands."""

    operator: int
    args: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class Distinct(Expression):
    """``args[0] IS DISTINCT FROM args[1]`` by the equality `operator`."""

    operator: int
    args: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class NullIf(Expression):
    """``NULLIF(args[0], args[1])`` by the equality `operator`."""

    operator: int
    args: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class ScalarArrayOp(Expression):
    """``args[0] operator ANY/ALL (args[1])``; `any` says which."""

    operator: int
    any: bool
    args: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class BoolExpr(Expression):
    """AND or OR of two or more operands, or NOT of one."""

    kind: BoolKind
    args: tuple[Expression, ...]


def conjuncts(expression: Expression) -> list[Expression]:
    """Return the operands of a top-level AND, or the expression itself."""
    if isinstance(expression, BoolExpr) and expression.kind is BoolKind.AND:
        return [part for arg in expression.args for part in conjuncts(arg)]
    return [expression]


def joined(kind: BoolKind, parts: Sequence[Expression]) -> Expression:
    """Combine expressions by AND or OR. Return a single one unchanged."""
    return parts[0] if len(parts) == 1 else BoolExpr(type=BOOLEAN, kind=kind, args=tuple(parts))


@dataclass(frozen=True, kw_only=True)
class Relabel(Expression):
    """A cast that does not change the value's representation."""

    arg: Expression
    form: Form


@dataclass(frozen=True, kw_only=True)
class DomainCoerce(Relabel):
    """A cast from the base type to a domain, which checks the domain's constraints (CoerceToDomain)."""


@dataclass(frozen=True, kw_only=True)
class DomainValue(Expression):
    """VALUE in a domain's CHECK (CoerceToDomainValue)."""


@dataclass(frozen=True, kw_only=True)
class CoerceViaIO(Expression):
    """A cast through the text form."""

    arg: Expression
    form: Form


@dataclass(frozen=True, kw_only=True)
class ArrayCoerce(Expression):
    """A cast of an array, element by element. `function` is the oid of the element's cast function (0: none, -1: through text)."""

    arg: Expression
    function: int
    form: Form


@dataclass(frozen=True, kw_only=True)
class RowCoerce(Expression):
    """A cast of a row to a composite type, or to record."""

    arg: Expression
    form: Form


def record_fields(expression: Expression) -> tuple[tuple[str, TypeRef], ...]:
    """Return the names and types of the columns of a record, or () if they are not known."""
    while isinstance(expression, RowCoerce | Relabel):
        expression = expression.arg
    return expression.type.fields


@dataclass(frozen=True, kw_only=True)
class Collate(Expression):
    """``arg COLLATE name``. The collation's oid is in `type`."""

    arg: Expression


@dataclass(frozen=True, kw_only=True)
class Case(Expression):
    """CASE. With `arg`, the conditions compare a `CaseTest` with the WHEN values."""

    arg: Expression | None
    conditions: tuple[Expression, ...]
    results: tuple[Expression, ...]
    default: Expression


@dataclass(frozen=True, kw_only=True)
class CaseTest(Expression):
    """The value of the enclosing Case's `arg`."""


@dataclass(frozen=True, kw_only=True)
class ArrayExpr(Expression):
    """``ARRAY[…]``. `nested` if the elements are arrays themselves."""

    elements: tuple[Expression, ...]
    nested: bool = False


@dataclass(frozen=True, kw_only=True)
class RowExpr(Expression):
    """``ROW(…)``, or a whole row of a table. Then `names` are its columns' names, and `present` is NULL if an outer join found no row."""

    args: tuple[Expression, ...]
    form: Form = Form.CALL
    names: tuple[str, ...] = ()
    present: Expression | None = None


@dataclass(frozen=True, kw_only=True)
class RowCompare(Expression):
    """``ROW(left) < ROW(right)`` and similar. `strategy` is the btree strategy (1 <, 2 <=, 4 >=, 5 >)."""

    strategy: int
    operators: tuple[int, ...]
    left: tuple[Expression, ...]
    right: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class Coalesce(Expression):
    """COALESCE."""

    args: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class MinMax(Expression):
    """GREATEST or LEAST."""

    greatest: bool
    args: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class NullTest(Expression):
    """``arg IS [NOT] NULL``. `row` if the argument is a row constructor."""

    arg: Expression
    is_null: bool
    row: bool = False


@dataclass(frozen=True, kw_only=True)
class BooleanTest(Expression):
    """``arg IS [NOT] TRUE / FALSE / UNKNOWN``."""

    arg: Expression
    kind: TestKind


@dataclass(frozen=True, kw_only=True)
class SqlValue(Expression):
    """CURRENT_DATE, CURRENT_TIMESTAMP(3), CURRENT_USER, … `name` is the keyword. The precision is in `type`."""

    name: str


@dataclass(frozen=True, kw_only=True)
class SetToDefault(Expression):
    """The keyword DEFAULT, in a context that allows it."""


@dataclass(frozen=True, kw_only=True)
class Subscript(Expression):
    """``arg[index]`` or ``arg[lower:upper]`` (omitted bounds are None)."""

    arg: Expression
    lower: tuple[Expression | None, ...]
    upper: tuple[Expression | None, ...]


@dataclass(frozen=True, kw_only=True)
class SubscriptStore(Expression):
    """The array `arg` with `value` assigned to an element (`lower` is empty) or to a slice, as in ``SET a[1] = 2``."""

    arg: Expression
    lower: tuple[Expression | None, ...]
    upper: tuple[Expression | None, ...]
    value: Expression


@dataclass(frozen=True, kw_only=True)
class FieldStore(Expression):
    """The composite value `arg` with `value` assigned to an attribute, as in ``SET c.a = 1``."""

    arg: Expression
    name: str
    value: Expression


@dataclass(frozen=True, kw_only=True)
class FieldSelect(Expression):
    """``(arg).name`` of a composite value."""

    arg: Expression
    name: str


@dataclass(frozen=True, kw_only=True)
class Aggregate(Expression):
    """A call of an aggregate. `star`: count(*). `order`: (expression, descending, nulls first) of an ORDER BY inside the call."""

    function: int
    args: tuple[Expression, ...]
    star: bool = False
    distinct: bool = False
    filter: Expression | None = None
    order: tuple[tuple[Expression, bool, bool], ...] = ()
    variadic: bool = False


@dataclass(frozen=True, kw_only=True)
class Grouping(Expression):
    """``GROUPING(a, b)``: a bit for each argument, set if the row's grouping set omits it."""

    args: tuple[Expression, ...]


@dataclass(frozen=True)
class Frame:
    """The frame of a window: ``ROWS`` or ``RANGE``, and its two ends.

    An end is 'unbounded preceding', 'preceding', 'current', 'following' or 'unbounded following'. The offsets are in the call.
    `written`: the query has a frame clause, `between`: one with BETWEEN.
    """

    mode: str = "RANGE"
    start: str = "unbounded preceding"
    end: str = "current"
    written: bool = field(default=False, compare=False)
    between: bool = field(default=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class WindowCall(Expression):
    """A window function, or an aggregate over a window. `order` as in `Aggregate`. `window`: the name of the window in ``OVER w``."""

    function: int
    args: tuple[Expression, ...]
    star: bool = False
    filter: Expression | None = None
    partition: tuple[Expression, ...] = ()
    order: tuple[tuple[Expression, bool, bool], ...] = ()
    frame: Frame = Frame()
    offsets: tuple[Expression | None, Expression | None] = (None, None)
    window: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class SubLink(Expression):
    """A subquery in an expression. `query` is the result of the caller's callback, and is not examined here.

    `source` is the subquery's text (`sql.parser.written`). It distinguishes subqueries, which their plans cannot do.
    `kind` is EXISTS, EXPR (scalar), ANY, ALL or ARRAY. For ANY and ALL, `test` compares the outer value with a `CaseTest`.
    `printed` is the query that the text of the expression shows, if it differs from `query`, which runs.
    """

    kind: str
    query: Any = field(compare=False)
    source: bytes
    test: Expression | None = None
    printed: Any = field(default=None, compare=False)


def operands(node: Expression) -> tuple[Expression, ...]:
    assert isinstance(node, (FuncExpr, OpExpr, Distinct, NullIf))
    return node.args


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the node and all nodes below it, parents first."""
    yield expression
    for child in expression.children():
        yield from walk(child)
