"""Translate typed expressions of a query to Spark Columns, after substituting parameters, session values and subqueries.

The planner and INSERT, UPDATE and DELETE call it. In an expression that reaches the compiler, every column key must be a column name of the
frame it is used on. If `levels_up` > 0, that is the frame of the enclosing query.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.analysis.query import PlanColumn, reference
from headgate.catalog.relation.relation import Relation
from headgate.commands.query import instant, pushdown
from headgate.commands.query.catalog import session_function
from headgate.commands.query.plan import col
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin, rewriting
from headgate.expression.binding import literal
from headgate.expression.binding.context import BindContext
from headgate.expression.duckdb.value import REGISTERED, element_of
from headgate.expression.node import (
    ArrayCoerce,
    ArrayExpr,
    BoolExpr,
    BoolKind,
    ColumnRef,
    Const,
    Expression,
    FuncExpr,
    OpExpr,
    Param,
    Relabel,
    RowExpr,
    SqlValue,
    SubLink,
    TypeRef,
    UserCall,
    conjuncts,
    joined,
    walk,
)
from headgate.expression.spark import compiler, set_returning
from headgate.expression.spark.call import implementation, may_raise
from headgate.expression.spark.session_time import SessionTime
from headgate.expression.spark.value import Env
from headgate.sql.names import quote_ident
from headgate.storage.spark import scalar_subquery
from headgate.types import registry
from headgate.types.storage import spark_type


def _has_subquery(expression: Expression) -> bool:
    return any(isinstance(node, SubLink) for node in walk(expression))


def _tests(condition: Expression) -> Iterator[SubLink]:
    """Yield the subqueries of a condition for which NULL and false are the same: terms, also below AND, OR and a NOT of the subquery."""
    if isinstance(condition, SubLink):
        yield condition
    elif isinstance(condition, BoolExpr) and (condition.kind is not BoolKind.NOT or isinstance(condition.args[0], SubLink)):
        for term in condition.args:
            yield from _tests(term)


@dataclass
class Counts:
    """Counters of what has been compiled, by which the planner decides whether a query needs a barrier."""

    conditions_in_python: int = 0
    outer_references: int = 0


Subquery = Callable[["Evaluation", SubLink], Column]


class Evaluation:
    """Expression evaluation for one statement, with the values that its expressions share."""

    def __init__(self, session: Session, subquery: Subquery | None = None, *, describing: bool = False) -> None:
        """Create the evaluation. `subquery`: returns the value of a subquery, and is None if expressions have none.

        With `describing`, the statement does not run, so its parameters have no values.
        """
        self.session = session
        self._subquery = subquery
        self._describing = describing
        self.runs = not describing
        """Whether the statement runs: it is neither described nor explained."""
        self.changed: Relation | None = None
        """The table that the statement changes. It writes its rows only after it has evaluated its expressions for many of them."""
        self.numbers = itertools.count(1)
        """The numbers of the columns that `row_by_row` adds to frames."""
        self.context = BindContext(forms=session.context.forms)
        since_1970 = session.context.moment("now") - datetime(1970, 1, 1, tzinfo=UTC)
        self.time = SessionTime(replace(self.context.forms, instant=None), since_1970 // timedelta(microseconds=1))
        self.rows: dict[str, tuple[PlanColumn, ...]] = {}
        """The columns of the tables in FROM, by the key of their whole rows."""
        self._subqueries: dict[str, Column] = {}
        self._tests: dict[int, SubLink] = {}
        self.row_keys: set[str] = set()
        """The keys of columns that have the sort keys of rows."""
        self.restricted: dict[str, PostgresError] = {}
        """Columns (by key) that the role may not read, with the error to raise."""
        self.with_oids: set[str] = set()
        """The keys of columns of reg… types whose oids are in the frame too, under `oid_key`."""
        self.named: set[str] = set()
        """The keys of the columns that the compiled expressions reference."""
        self.counts = Counts()

    @contextlib.contextmanager
    def after_unwritten_rows(self) -> Iterator[None]:
        """Within the context, raise 0A000 if a function reads the changed table: the statement should have written other rows before."""
        if self.changed is None:
            yield
            return
        name = quote_ident(self.changed.name)

        def refuse() -> None:
            raise not_supported(
                f"reading the table {name} in a VOLATILE function that is called for several rows of its change is not supported",
                detail="The function would have to see the rows that the same statement has written before.",
                hint="Declare the function STABLE if it is to read the table as of the beginning of the statement.",
            )

        with self.session.begin_statement().reader.unwritten(self.changed, refuse, only_reads=True):
            yield

    def within(self, subquery: Subquery) -> Evaluation:
        """Return the same evaluation for a view, whose subqueries are planned with other rights."""
        evaluation = copy.copy(self)
        evaluation._subquery = subquery
        return evaluation

    def column(self, expression: Expression) -> Column:
        """Return the Column of an expression over a frame whose column names are keys."""
        prepared = self.prepare(expression)
        return compiler.compile(prepared, self.places(prepared), self.time)

    def filter(self, expression: Expression) -> Column:
        """Return the Column for `DataFrame.where`, which drops rows whose condition is NULL.

        Spark pushes the terms that `pushdown` allows.
        """
        self.note_tests(expression)
        parts = conjuncts(expression)
        exact = [is_membership(term) or pushdown.is_exact(term) for term in parts]
        if all(exact):
            return self._qual(parts)
        silent = list(itertools.takewhile(lambda term: not may_raise(term) and not _has_subquery(term), parts))
        early = [part for part, pushed in zip(silent, exact, strict=False) if pushed]
        # The terms after one that may raise are evaluated in order, so all terms are repeated there.
        late = parts if len(silent) < len(parts) else [part for part, pushed in zip(parts, exact, strict=True) if not pushed]
        rest = self.condition(joined(BoolKind.AND, late))
        return self._qual(early) & rest if early else rest

    def _qual(self, parts: Sequence[Expression]) -> Column:
        prepared = self.prepare(joined(BoolKind.AND, parts))
        return compiler.qual(prepared, self.places(prepared), self.time)

    def condition(self, expression: Expression) -> Column:
        self.note_tests(expression)
        prepared = self.prepare(expression)
        return compiler.condition(prepared, self.places(prepared), self.time)

    def note_tests(self, condition: Expression) -> None:
        """Note that NULL counts as false for the terms of a condition (`is_test`)."""
        self._tests.update((id(node), node) for node in _tests(condition))

    def is_test(self, node: SubLink) -> bool:
        """Return whether NULL counts as false for the value of a subquery."""
        return id(node) in self._tests

    def equality(self, term: OpExpr) -> Column:
        """Return the Column of the equi-join condition ``a = b``. Spark computes each side on the frame that has its columns.

        In an ordinary condition both sides would be one expression, because an error of the second side counts even if the first is NULL.
        """
        left, right = term.args
        if left.type.oid == right.type.oid and may_raise(left) and may_raise(right):
            left_key, right_key = self.join_keys(left, right)
            return left_key == right_key
        return self.column(term)

    def join_keys(self, left: Expression, right: Expression) -> tuple[Column, Column]:
        """Return the join keys of two expressions of one type, each over its own frame."""
        if left.type.oid == registry.RECORD:
            return self.sort_key(left), self.sort_key(right)
        prepared_left, prepared_right = self.prepare(left), self.prepare(right)
        return compiler.join_keys(prepared_left, self.places(prepared_left), prepared_right, self.places(prepared_right), self.time)

    def scalar(self, frame: DataFrame) -> Column:
        """Return the scalar value of a subquery. If the statement is only described, no execution is started."""
        return frame.scalar() if self._describing else scalar_subquery.scalar(frame)

    def sort_key(self, expression: Expression) -> Column:
        """Return a Column whose order and equality are those of the expression's values in PostgreSQL."""
        prepared = self.prepare(expression)
        if isinstance(prepared, ColumnRef) and prepared.key in self.row_keys:
            return self._place(prepared)
        return compiler.sort_key(prepared, self.places(prepared), self.time)

    def set_of(self, expression: FuncExpr) -> set_returning.Set:
        """Return the rows of a set-returning call over a frame."""
        prepared = self.prepare(expression)
        assert isinstance(prepared, FuncExpr)
        planned, places = compiler.set_of(prepared, self.time), self.places(prepared)
        return set_returning.Set(planned.columns, lambda _: planned.rows(Env(places)))

    def sets_together(self, planned: Sequence[set_returning.Set]) -> Column:
        """Return a Column with the rows of several sets side by side."""
        return set_returning.zipped(planned)(Env({}))

    def places(self, prepared: Expression) -> dict[str, Column]:
        """Return the Columns of the references in a prepared expression. Raise the stored error if one is restricted."""
        places: dict[str, Column] = {}
        for node in walk(prepared):
            if isinstance(node, ColumnRef) and node.key not in places:
                if node.key in self.restricted:
                    raise self.restricted[node.key]
                subquery = self._subqueries.get(node.key)
                places[node.key] = self._place(node) if subquery is None else subquery
                self.named.add(node.key)
        return places

    def _place(self, reference: ColumnRef) -> Column:
        if reference.attnum < 0:
            raise not_supported(f'system column "{reference.name}" is not supported')
        column = col(reference.key)
        if not reference.levels_up:
            return column
        self.counts.outer_references += 1
        return column.outer()

    def prepare(self, expression: Expression) -> Expression:
        """Return the expression with parameters, session values and subqueries substituted."""
        return rewriting.rewrite(expression, self._substitute)

    def _substitute(self, node: Expression) -> Expression | None:
        match node:
            case Param():
                return self._parameter(node)
            case SqlValue():
                return self._session_value(node)
            case FuncExpr():
                return self._function(node)
            case UserCall() if node.body is not None:
                return self.prepare(rewriting.inlined(node))
            case SubLink():
                key = f"subquery_{id(node)}"
                assert self._subquery is not None
                self._subqueries[key] = self._subquery(self, node)
                return ColumnRef(type=node.type, name=key, attnum=1, key=key)
            case ColumnRef() if node.attnum == 0:
                return self._row(node)
            case Relabel() | ArrayCoerce() | Const():
                return self._named_object(node)
            case ColumnRef(name="tableoid", attnum=-6):
                return replace(node, attnum=1, key=table_oid_keys(node.key)[0])
            case _:
                return None

    def _named_object(self, node: Relabel | ArrayCoerce | Const) -> Expression | None:
        """Return what replaces a literal of a reg… type, or a cast to or from one."""
        match node:
            case Relabel(type=TypeRef(oid=registry.REGCLASS), arg=ColumnRef(name="tableoid", attnum=-6) as table):
                return replace(table, type=node.type, name="regclass", attnum=1, key=table_oid_keys(table.key)[1])
            case Relabel(type=TypeRef(oid=registry.OID), arg=Const(type=TypeRef(oid=oid), value=str()) as name) if oid in REGISTERED:
                return self._of_catalogs(name, node)
            case Relabel(type=TypeRef(oid=registry.OID), arg=ColumnRef(type=TypeRef(oid=oid)) as shown) if oid in REGISTERED:
                if shown.key not in self.with_oids:
                    raise not_supported(f"the oid of a {REGISTERED[oid]} from a subquery is not supported in a query on tables")
                return replace(shown, type=node.type, key=oid_key(shown.key))
            case ArrayCoerce(arg=Const(type=TypeRef(oid=oid), value=str()) as names) if element_of(oid) in REGISTERED:
                return self._of_catalogs(names, node)
            case ArrayCoerce(arg=ArrayExpr(type=TypeRef(oid=oid)) as names) if element_of(oid) in REGISTERED and not names.nested:
                oids = [Relabel(type=TypeRef(registry.OID), arg=element, form=node.form) for element in names.elements]
                return self.prepare(replace(names, type=node.type, elements=tuple(oids)))
            case Relabel(type=TypeRef(oid=registry.OID), arg=Relabel(arg=Expression(type=TypeRef(oid=registry.OID)) as oid_of_name)):
                return self.prepare(oid_of_name)
            case Const(type=TypeRef(oid=oid), value=str()) if oid in REGISTERED:
                return self._of_catalogs(node, node)
            case Relabel(type=TypeRef(oid=registry.OID), arg=Relabel(arg=Const() as number)) if number.type.oid not in REGISTERED:
                return replace(number, type=node.type)
            case Relabel(type=TypeRef(oid=oid), arg=(Const() as number) | Relabel(arg=Const() as number)) if (
                oid in REGISTERED and number.type.oid not in REGISTERED
            ):
                constant = replace(number, type=node.type)
                return constant if number.value is None else self._of_catalogs(constant, constant)
            case Relabel(type=TypeRef(oid=oid), arg=Expression(type=TypeRef(oid=source))) if oid in REGISTERED and source not in REGISTERED:
                raise not_supported(f"an oid as {REGISTERED[oid]} is not supported in a query on tables")
            case _:
                return None

    def _constant(self, text: str | None, target: TypeRef) -> Const:
        value = None if text is None else literal.read(text, target.oid, target.typmod, self.context)
        return Const(type=target, value=value)

    def _parameter(self, node: Param) -> Expression:
        if self._describing:
            return Const(type=node.type, value=None)
        parameters = self.session.parameters
        if not 1 <= node.number <= len(parameters):
            raise PostgresError("42P02", f"there is no parameter ${node.number}")
        return self._constant(parameters[node.number - 1].text, node.type)

    def _of_catalogs(self, name: Const, shown: Expression) -> Const:
        """Return a reg… literal as the catalogs print `shown`, which is the literal or a cast of it."""
        try:
            known = session_function.value(shown, self.session)
        except PostgresError as error:
            raise replace(error, location=name.location) from error
        return replace(known, value=str(known.value))

    def _session_value(self, node: SqlValue) -> Expression:
        if node.type.oid in (registry.TIMESTAMPTZ, registry.DATE, registry.TIMESTAMP, registry.TIME, registry.TIMETZ):
            return instant.constant(self.session.context, node.type, self.context)
        context = self.session.context
        words = {"CURRENT_ROLE": context.user, "CURRENT_USER": context.user, "USER": context.user, "SESSION_USER": context.session_user,
                 "CURRENT_CATALOG": context.database_name}  # fmt: skip
        if node.name == "CURRENT_SCHEMA":
            return session_function.value(node, self.session)
        return Const(type=node.type, value=words.get(node.name))

    def _function(self, node: FuncExpr) -> Expression | None:
        called = builtin.function(node.function)
        if called.name in instant.FUNCTIONS:
            return instant.constant(self.session.context, node.type, self.context, called.name)
        if implementation(called.oid) is not None or called.retset:
            return None
        arguments = tuple(self.prepare(argument) for argument in node.args)
        if called.name == "pg_blocking_pids":
            return session_function.blocking_pids(replace(node, args=arguments), self.session, self.context)
        if not all(isinstance(argument, (Const, ArrayExpr)) for argument in arguments):
            return None
        if self._describing:
            return Const(type=node.type, value=None)
        return session_function.call(replace(node, args=arguments), self.session)

    def _row(self, node: ColumnRef) -> Expression:
        """Expand a reference to a whole row to a row expression of its columns."""
        columns = self.rows.get(node.key)
        if columns is None:
            raise not_supported(f'a reference to the whole row "{node.name}" is not supported here')
        fields = tuple(replace(reference(column), levels_up=node.levels_up) for column in columns)
        present = ColumnRef(type=TypeRef(registry.BOOL), name=node.name, attnum=1, key=node.key, levels_up=node.levels_up)
        return RowExpr(type=node.type, args=fields, names=tuple(column.name for column in columns), present=present, location=node.location)


def table_oid_keys(key: str) -> tuple[str, str]:
    """Return the keys of the columns that hold tableoid and tableoid::regclass, given the key of tableoid in the scope."""
    return key, f"{key}::regclass"


def oid_key(key: str) -> str:
    """Return the key of the column that holds the oids of a column of a reg… type, given the key of that column."""
    return f"{key}::oid"


def is_membership(term: Expression) -> bool:
    """Return whether a term tests for a row of a subquery. As a term of an AND, Spark joins it by keys; elsewhere, in a nested loop."""
    if isinstance(term, BoolExpr) and term.kind is BoolKind.NOT:
        return is_membership(term.args[0])
    return isinstance(term, SubLink) and term.kind in ("ANY", "EXISTS")


def lit_null(target: TypeRef) -> Column:
    return F.lit(None).cast(spark_type(target.oid, target.typmod))
