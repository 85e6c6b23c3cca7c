"""From a typed expression to a Spark Column within a query: parameters, the session's values and subqueries are put in first.

Called by the planner and by INSERT, UPDATE and DELETE. What must hold: an expression that reaches the compiler has only
columns whose keys are names in the frame it is used on (`levels_up` > 0: of the enclosing query's frame).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.commands import lookup
from headgate.commands.query import instant
from headgate.commands.query.clause import pushdown, session_function, sublink
from headgate.commands.query.clause.where_clause import is_membership
from headgate.commands.query.plan import PlanColumn, col, reference
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin, rewriting
from headgate.expression.binding import literal
from headgate.expression.binding.context import BindContext
from headgate.expression.node import (
    ArrayExpr,
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
from headgate.sql.parser import parse, unwrap
from headgate.storage.spark import scalar_subquery
from headgate.types import registry
from headgate.types.storage import spark_type

_MOMENTS = frozenset({"now", "transaction_timestamp", "statement_timestamp", "clock_timestamp"})


def _has_subquery(expression: Expression) -> bool:
    return any(isinstance(each, SubLink) for each in walk(expression))


class Evaluation:
    """The values that expressions of one statement share."""

    def __init__(self, session: Session, *, describing: bool = False) -> None:
        """`describing`: the statement does not run, so parameters have no values."""
        self.session = session
        self._describing = describing
        self.context = BindContext(forms=session.context.forms)
        since_1970 = session.context.moment("now") - datetime(1970, 1, 1, tzinfo=UTC)
        self.time = SessionTime(self.context.forms, since_1970 // timedelta(microseconds=1))
        self.rows: dict[str, tuple[PlanColumn, ...]] = {}
        """The columns of the tables in FROM, by the key of their whole rows."""
        self._subqueries: dict[str, Column] = {}
        self.restricted: dict[str, PostgresError] = {}
        """Columns (by key) that the role may not read, with what to say."""
        self.named: set[str] = set()
        """The keys of the columns that the compiled expressions name."""
        self.outer_references = 0
        """How often a column of a query around the one that was planned has been named."""

    def column(self, expression: Expression) -> Column:
        """The Column of an expression over a frame whose columns are named by keys."""
        prepared = self.prepare(expression)
        return compiler.compile(prepared, self.places(prepared), self.time)

    def filter(self, expression: Expression) -> Column:
        """Return the Column for `DataFrame.where`, in which NULL keeps no row. Spark pushes those terms that `pushdown` allows."""
        parts = conjuncts(expression)
        exact = [is_membership(each) or pushdown.is_exact(each) for each in parts]
        if all(exact):
            return self._qual(parts)
        silent = list(itertools.takewhile(lambda each: not may_raise(each) and not _has_subquery(each), parts))
        early = [part for part, pushed in zip(silent, exact, strict=False) if pushed]
        # behind a term that raises the others count in turn, so all of them stand there once more
        late = parts if len(silent) < len(parts) else [part for part, pushed in zip(parts, exact, strict=True) if not pushed]
        rest = self.condition(joined(BoolKind.AND, late))
        return self._qual(early) & rest if early else rest

    def _qual(self, parts: Sequence[Expression]) -> Column:
        prepared = self.prepare(joined(BoolKind.AND, parts))
        return compiler.qual(prepared, self.places(prepared), self.time)

    def condition(self, expression: Expression) -> Column:
        """The Column of a condition, in which NULL counts as false."""
        prepared = self.prepare(expression)
        return compiler.condition(prepared, self.places(prepared), self.time)

    def equality(self, term: OpExpr) -> Column:
        """The Column of ``a = b`` by which rows of two frames find each other: Spark computes each side for the rows that have it.

        In a condition, where the second side's error counts where the first is NULL, both would stand in one expression.
        """
        left, right = term.args
        if left.type.oid == right.type.oid and may_raise(left) and may_raise(right):
            one, other = self.join_keys(left, right)
            return one == other
        return self.column(term)

    def join_keys(self, left: Expression, right: Expression) -> tuple[Column, Column]:
        """The Columns by which values of one type find each other, each over its own frame."""
        if left.type.oid == registry.RECORD:
            return self.sort_key(left), self.sort_key(right)
        one, other = self.prepare(left), self.prepare(right)
        return compiler.join_keys(one, self.places(one), other, self.places(other), self.time)

    def scalar(self, frame: DataFrame) -> Column:
        """The only value of a subquery's rows; a statement that is described alone begins nothing that it would compute."""
        return frame.scalar() if self._describing else scalar_subquery.scalar(frame)

    def sort_key(self, expression: Expression) -> Column:
        """A Column that orders and compares as PostgreSQL does with the expression's values."""
        prepared = self.prepare(expression)
        if isinstance(prepared, ColumnRef) and prepared.type.oid == registry.RECORD:
            return self._place(prepared)  # the key itself, which the planner put there
        return compiler.sort_key(prepared, self.places(prepared), self.time)

    def set_of(self, expression: FuncExpr) -> set_returning.Set:
        """The rows of a set-returning call over a frame."""
        prepared = self.prepare(expression)
        assert isinstance(prepared, FuncExpr)
        planned, places = compiler.set_of(prepared, self.time), self.places(prepared)
        return set_returning.Set(planned.columns, lambda _: planned.rows(Env(places)))

    def sets_together(self, planned: Sequence[set_returning.Set]) -> Column:
        """The rows of several sets side by side."""
        return set_returning.zipped(planned)(Env({}))

    def places(self, prepared: Expression) -> dict[str, Column]:
        """The Columns of the references in a prepared expression."""
        places: dict[str, Column] = {}
        for each in walk(prepared):
            if isinstance(each, ColumnRef) and each.key not in places:
                if each.key in self.restricted:
                    raise self.restricted[each.key]
                found = self._subqueries.get(each.key)
                places[each.key] = self._place(each) if found is None else found
                self.named.add(each.key)
        return places

    def _place(self, reference: ColumnRef) -> Column:
        if reference.attnum < 0:
            raise not_supported(f'system column "{reference.name}" is not supported')
        found = col(reference.key)
        if not reference.levels_up:
            return found
        self.outer_references += 1
        return found.outer()

    def prepare(self, expression: Expression) -> Expression:
        """The expression with parameters, the session's values and subqueries in place."""
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
                self._subqueries[key] = sublink.column(self, node)
                return ColumnRef(type=node.type, name=key, attnum=1, key=key)
            case ColumnRef() if node.attnum == 0:
                return self._row(node)
            case Relabel(type=TypeRef(oid=registry.REGCLASS), arg=ColumnRef(name="tableoid", attnum=-6) as table):
                return replace(table, type=node.type, name="regclass", attnum=1, key=table_oid_keys(table.key)[1])
            case Relabel(type=TypeRef(oid=registry.OID), arg=Const(type=TypeRef(oid=registry.REGCLASS), value=str(name))):
                return Const(type=node.type, value=str(self._relation(name)))
            case ColumnRef(name="tableoid", attnum=-6):
                return replace(node, attnum=1, key=table_oid_keys(node.key)[0])
            case _:
                return None

    def _constant(self, text: str | None, target: TypeRef) -> Const:
        value = None if text is None else literal.read(text, target.oid, target.typmod, self.context)
        return Const(type=target, value=value)

    def _parameter(self, node: Param) -> Expression:
        if self._describing:
            return Const(type=node.type, value=None)
        given = self.session.parameters
        if not 1 <= node.number <= len(given):
            raise PostgresError("42P02", f"there is no parameter ${node.number}")
        return self._constant(given[node.number - 1].text, node.type)

    def _relation(self, name: str) -> int:
        """The oid of the relation that a text means as regclass."""
        if name.isdigit():
            return int(name)
        cursor, context = self.session.begin_statement().cursor, self.session.context
        return lookup.source(cursor, context, unwrap(parse(f"TABLE {name}")[0].node.from_clause[0])).oid

    def _session_value(self, node: SqlValue) -> Expression:
        if node.type.oid in (registry.TIMESTAMPTZ, registry.DATE, registry.TIMESTAMP, registry.TIME, registry.TIMETZ):
            return instant.constant(self.session.context, node.type, self.context)
        context = self.session.context
        words = {"CURRENT_ROLE": context.user, "CURRENT_USER": context.user, "USER": context.user, "SESSION_USER": context.session_user,
                 "CURRENT_CATALOG": context.database_name}  # fmt: skip
        if node.name == "CURRENT_SCHEMA":
            return session_function.value("current_schema()", node.type, self.session)
        return Const(type=node.type, value=words.get(node.name))

    def _function(self, node: FuncExpr) -> Expression | None:
        called = builtin.function(node.function)
        if called.name in _MOMENTS:
            return instant.constant(self.session.context, node.type, self.context, called.name)
        if implementation(called.oid) is not None or called.retset:
            return None
        arguments = tuple(self.prepare(each) for each in node.args)
        if called.name == "pg_blocking_pids":
            return session_function.blocking_pids(replace(node, args=arguments), self.session, self.context)
        if not all(isinstance(each, (Const, ArrayExpr)) for each in arguments):
            return None
        if self._describing:
            return Const(type=node.type, value=None)
        return session_function.call(replace(node, args=arguments), self.session)

    def _row(self, node: ColumnRef) -> Expression:
        """A reference to a whole row as the row of its columns."""
        columns = self.rows.get(node.key)
        if columns is None:
            raise not_supported(f'a reference to the whole row "{node.name}" is not supported here')
        fields = tuple(replace(reference(each), levels_up=node.levels_up) for each in columns)
        present = ColumnRef(type=TypeRef(registry.BOOL), name=node.name, attnum=1, key=node.key, levels_up=node.levels_up)
        return RowExpr(type=node.type, args=fields, names=tuple(each.name for each in columns), present=present, location=node.location)


def table_oid_keys(key: str) -> tuple[str, str]:
    """The keys of the columns that hold tableoid and its name, of the key that the scope gives to tableoid."""
    return key, f"{key}::regclass"


def lit_null(target: TypeRef) -> Column:
    """NULL of a type."""
    return F.lit(None).cast(spark_type(target.oid, target.typmod))
