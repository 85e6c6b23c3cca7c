"""One table whose rows the driver holds: expressions over them, bound as everywhere, evaluated column by column.

Used by `single_table` (SELECT) and `commands.dml.driver_change` (UPDATE, DELETE). Whatever is not so simple raises `NotColumnwise`: the
caller then takes its usual way by Spark, which has the same answer, or says what is wrong. So nothing here tells a user anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import privilege
from headgate.commands.query import rendering
from headgate.commands.query.clause import from_clause
from headgate.commands.query.clause.select_list import SelectItem
from headgate.commands.query.plan import PlanColumn, Source, reference
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression import columnwise
from headgate.expression.binding import binder
from headgate.expression.binding.scope import ScopeTable
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Expression
from headgate.expression.node import walk as expressions
from headgate.sql.parser import has_condition
from headgate.types import buffers
from headgate.types.resultset import ResultSet

CANCELLED = ("57014", "57P01")


class HeldTable:
    """See the module. The role has a right on the table; the columns that it may not read are refused here."""

    def __init__(
        self, planner: Planner, relation: Relation, alias: str, schema: str | None, aliases: Sequence[str] = (), *, also: str | None = None
    ) -> None:
        """`also`: the name by which the rows have the table's columns a second time, behind the first."""
        if relation.kind != RelationKind.TABLE or not relation.columns or relation.oid in planner.frozen:
            raise NotColumnwise(relation.kind)
        if privilege.has_row_security(planner.transaction.cursor, relation):
            raise NotColumnwise(relation.kind)
        self.planner = planner
        self.relation = relation
        table, self.star = from_clause.named_table(planner, relation, alias, schema, aliases)
        tables: tuple[ScopeTable, ...] = (table,)
        self._columns = self.star
        if also is not None:
            other, columns = from_clause.named_table(planner, relation, also, None)
            tables, self._columns = (table, other), self.star + columns
        from_clause.restrict(planner, relation, self._columns)
        self.source = Source(None, tables, self.star)  # type: ignore[arg-type]  # its frame is not asked for
        self.scope = self.source.scope(None)

    @property
    def references(self) -> list[ColumnRef]:
        """The table's columns as expressions."""
        return [reference(each) for each in self.star]

    def where(self, node: pb.DeleteStmt | pb.OnConflictClause | pb.SelectStmt | pb.UpdateStmt) -> Expression | None:
        """The condition of a statement's WHERE."""
        bound = self.bound_where(node)
        return None if bound is None else self.prepared(bound)

    def bound_where(self, node: pb.DeleteStmt | pb.OnConflictClause | pb.SelectStmt | pb.UpdateStmt) -> Expression | None:
        """The same without parameters in place."""
        if not has_condition(node):
            return None
        return binder.bind_condition(node.where_clause, self.scope, "WHERE", context=self.planner.context.within(construct="WHERE"))

    def prepared(self, expression: Expression) -> Expression:
        """An expression over columns that the role may read, with parameters in place."""
        found = self.planner.prepare(expression)
        restricted = self.planner.evaluation.restricted
        if any(isinstance(each, ColumnRef) and (each.attnum <= 0 or each.key in restricted) for each in expressions(found)):
            raise NotColumnwise("a column that is none, or is not to be read")
        return found

    def passing(self, rows: pa.Table, condition: Expression | None) -> pa.Table:
        """The rows that meet a condition."""
        if condition is None or not rows.num_rows:
            return rows
        return rows.filter(columnwise.condition(condition, self.by_key(rows), rows.num_rows))

    def values(self, rows: pa.Table, wanted: Sequence[Expression]) -> list[pa.Array]:
        """The values of expressions, each in the stored form of its type."""
        by_key = self.by_key(rows)
        return [columnwise.value(each, by_key, rows.num_rows) for each in wanted]

    def by_key(self, rows: pa.Table) -> dict[str, pa.Array]:
        """The columns of rows, by the keys that expressions name them by."""
        return {each.key: buffers.whole(rows.column(place)) for place, each in enumerate(self._columns)}


def plan_columns(targets: Sequence[SelectItem]) -> tuple[PlanColumn, ...]:
    """The columns of what a SELECT list or RETURNING says."""
    return tuple(PlanColumn(each.name, each.expression.type, str(at), each.relation, each.attnum) for at, each in enumerate(targets))


def result(columns: Sequence[PlanColumn], values: Sequence[pa.Array], session: Session, tag: str | None = None) -> ResultSet:
    """An answer: the values of its columns, in the stored form of their types."""
    batch = pa.RecordBatch.from_arrays(values, names=[each.key for each in columns])
    return ResultSet(rendering.result_columns(columns), [rendering.text_batch(batch, columns, session)], tag)


def streamed(columns: tuple[PlanColumn, ...], batches: Iterator[pa.RecordBatch], session: Session) -> ResultSet:
    """An answer whose rows are read while they are sent."""
    return ResultSet(rendering.result_columns(columns), (rendering.text_batch(batch, columns, session) for batch in batches))


@contextlib.contextmanager
def usual_way_says() -> Iterator[None]:
    """Inside, an error of PostgreSQL's is for the usual way to find, and to tell."""
    try:
        yield
    except PostgresError as error:
        if error.sqlstate in CANCELLED:
            raise
        raise NotColumnwise(error.sqlstate) from error
