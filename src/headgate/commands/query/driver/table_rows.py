"""Evaluate expressions column by column over the rows of one table that the driver holds.

Used by `answer` (SELECT) and `commands.dml.driver_change` (UPDATE, DELETE). Unsupported statements raise `NotColumnwise`. The caller
then runs the statement on Spark, which gives the same answer or raises the error. So no error of this module reaches the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.analysis.query import FromItem, PlanColumn, SelectItem, reference
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import privilege
from headgate.commands.query import rendering
from headgate.commands.query.clause import from_clause
from headgate.commands.query.driver import computation
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Expression
from headgate.expression.node import walk as expressions
from headgate.expression.spark.session_time import SessionTime
from headgate.types import buffers
from headgate.types.resultset import ResultSet

_Answered = Callable[[Expression], Expression]


class HeldTable:
    """One table of a statement, on which the role has a right. A column that the role may not read raises NotColumnwise."""

    def __init__(
        self, planner: Planner, relation: Relation, source: FromItem, also: Sequence[PlanColumn] = (), answered: _Answered | None = None
    ) -> None:
        """Create the table. `also`: its columns under a second name, which the rows have after the first ones.

        `answered`: returns an expression with the values of its subqueries, or raises NotColumnwise. None if there are none.
        """
        if relation.kind != RelationKind.TABLE or not relation.columns or relation.rows_key in planner.frozen:
            raise NotColumnwise(relation.kind)
        if relation.with_children:
            raise NotColumnwise("several tables")
        if privilege.has_row_security(planner.transaction.cursor, relation):
            raise NotColumnwise(relation.kind)
        self.planner = planner
        self.relation = relation
        self._answered = answered
        self.source, self.star = source, source.star
        self._columns = (*source.star, *also)
        from_clause.restrict(planner, relation, self._columns)
        self.scope = source.scope(None)

    @classmethod
    def named(
        cls, planner: Planner, relation: Relation, alias: str, schema: str | None, *, also: str | None = None,
        answered: _Answered | None = None,
    ) -> HeldTable:  # fmt: skip
        """Return the table of a statement that is not a query. `also`: a second name for it. `answered`: see `__init__`."""
        table, star = from_clause.named_table(planner, relation, alias, schema)
        if also is None:
            return cls(planner, relation, FromItem((table,), star), answered=answered)
        second_table, columns = from_clause.named_table(planner, relation, also, None)
        return cls(planner, relation, FromItem((table, second_table), star), columns)

    @property
    def time(self) -> SessionTime:
        """The session's values of time and TimeZone."""
        return self.planner.evaluation.time

    @property
    def references(self) -> list[ColumnRef]:
        return [reference(column) for column in self.star]

    def where(self, node: pb.DeleteStmt | pb.OnConflictClause | pb.UpdateStmt) -> Expression | None:
        """Return the WHERE condition of a statement with substituted parameters, or None."""
        bound = self.planner.analyser.where(node, self.scope)
        return None if bound is None else self.computed(bound)

    def computed(self, expression: Expression) -> Expression:
        """Return an expression like `prepared`. If it is not known here, raise NotColumnwise before a function in it is called."""
        if self._answered is not None:
            expression = self._answered(expression)
        if not computation.is_known(expression):
            raise NotColumnwise("a function")
        return self.prepared(expression)

    def prepared(self, expression: Expression) -> Expression:
        """Return the expression with parameters and other constant parts as constants.

        Raise NotColumnwise if it names a column that the role may not read.
        """
        substituted = computation.folded(self.planner.prepare(expression), self.time)
        restricted = self.planner.evaluation.restricted
        if any(isinstance(node, ColumnRef) and (node.attnum <= 0 or node.key in restricted) for node in expressions(substituted)):
            raise NotColumnwise("a column that is none, or is not to be read")
        return substituted

    def passing(self, rows: pa.Table, condition: Expression | None) -> pa.Table:
        if condition is None or not rows.num_rows:
            return rows
        return rows.filter(computation.condition(condition, self.by_key(rows), rows.num_rows, self.time))

    def values(self, rows: pa.Table, expressions: Sequence[Expression]) -> list[pa.Array]:
        """Return the values of expressions, each in the stored form of its type."""
        by_key = self.by_key(rows)
        return [computation.value(expression, by_key, rows.num_rows, self.time) for expression in expressions]

    def by_key(self, rows: pa.Table) -> dict[str, pa.Array]:
        """Return the columns of the rows by their keys in expressions."""
        return {column.key: buffers.whole(rows.column(place)) for place, column in enumerate(self._columns)}


def plan_columns(targets: Sequence[SelectItem]) -> tuple[PlanColumn, ...]:
    """Return the columns of a SELECT list or RETURNING clause."""
    return tuple(
        PlanColumn(target.name, target.expression.type, str(place), target.relation, target.attnum) for place, target in enumerate(targets)
    )


def result(columns: Sequence[PlanColumn], values: Sequence[pa.Array], session: Session, tag: str | None = None) -> ResultSet:
    """Return a result from the values of its columns, in the stored form of their types."""
    batch = pa.RecordBatch.from_arrays(values, names=[column.key for column in columns])
    return ResultSet(rendering.result_columns(columns), [rendering.text_batch(batch, columns, session)], tag)


def streamed(columns: tuple[PlanColumn, ...], batches: Iterator[pa.RecordBatch], session: Session) -> ResultSet:
    """Return a result whose rows are read while they are sent."""
    return ResultSet(rendering.result_columns(columns), (rendering.text_batch(batch, columns, session) for batch in batches))
