"""MERGE: apply the first matching WHEN clause to each row of a source: UPDATE, DELETE, INSERT or nothing (manual, MERGE).

The source is outer-joined to the table's rows with their positions, and a column holds the number of each row's clause. The rows of each
kind are then written as UPDATE, DELETE and INSERT write theirs, all based on the table as it was before. Traced: ``MERGE INTO t USING s ON
t.id = s.id WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.a)``: rows of s with a row of t have
clause 0 and become `old`, `new`, `file`, `row`. The others have clause 1 and become new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.analysis import from_clause as analysis
from headgate.analysis.query import FromItem
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.commands import privilege, stored_expression
from headgate.commands.dml import assignment, column_reads, insert
from headgate.commands.dml.rows import changed_rows
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.publication import replica_identity
from headgate.commands.query import rendering, row_by_row, row_security
from headgate.commands.query.clause import from_clause, modifying_with
from headgate.commands.query.plan import LEAF, Source, col
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.query.row_security import Rows, Statement
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.trigger import own_change
from headgate.commands.trigger.statement import firing_triggers
from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.scope import Scope, hiding
from headgate.expression.node import (
    BOOLEAN,
    INTEGER,
    TEXT,
    BoolKind,
    Case,
    ColumnRef,
    Const,
    Expression,
    NullTest,
    SetToDefault,
    joined,
)
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.spark.persisted import persisted
from headgate.storage.write import columns as spark_columns
from headgate.types.storage import NO_COLUMN, own_name

_UPDATE, _DELETE, _INSERT = pb.CMD_UPDATE, pb.CMD_DELETE, pb.CMD_INSERT
_RIGHTS = {_UPDATE: "UPDATE", _DELETE: "DELETE", _INSERT: "INSERT"}
_EVENTS = {_INSERT: triggers.INSERT, _UPDATE: triggers.UPDATE, _DELETE: triggers.DELETE}
"""In the order in which BEFORE STATEMENT triggers fire."""
_CLAUSE = own_name("_clause")


def merge(node: pb.MergeStmt, session: Session) -> CommandResult:
    """Execute a MERGE. The tag counts the rows that were written."""
    transaction = session.begin_statement()
    clauses = [unwrap(clause) for clause in node.merge_when_clauses]
    kinds = {clause.command_type for clause in clauses}
    relation = _target(node, session)
    planner = QueryPlanner(session, transaction)
    events = [
        (event, {unwrap(target).name for clause in clauses if clause.command_type == kind for target in clause.target_list})
        for kind, event in _EVENTS.items() if kind in kinds
    ]  # fmt: skip
    with rendering.running(session, transaction), firing_triggers(planner, relation, *events):
        planner.with_queries(node)
        return _Merge(planner, relation, node, clauses).run()


def analyse(node: pb.MergeStmt, planner: QueryPlanner) -> None:
    """Analyse a MERGE that is only described. Raise the errors that PostgreSQL raises before it fires triggers."""
    relation = _target(node, planner.session)
    alias = node.relation.alias.aliasname
    table, star = from_clause.named_table(planner, relation, alias or relation.name, None if alias else relation.schema)
    _Bound(planner, relation, node, FromItem((table,), star), analysis.item(planner.analyser, node.source_relation, hiding(None, (table,))))


def permit(node: pb.MergeStmt, session: Session) -> None:
    """Raise 42501 without the rights on the columns that the clauses of a MERGE write."""
    clauses = [unwrap(clause) for clause in node.merge_when_clauses]
    _check_columns(QueryPlanner(session, session.begin_statement()), _target(node, session), clauses)


def _check_columns(planner: QueryPlanner, relation: Relation, clauses: Sequence[pb.MergeWhenClause]) -> None:
    """Raise 42501 unless the role may UPDATE and INSERT the columns that the clauses name, or SELECT one if all do nothing."""
    cursor, role = planner.transaction.cursor, planner.role
    if not any(clause.command_type in _RIGHTS for clause in clauses):
        privilege.readable(cursor, role, relation)
    for clause in clauses:
        if clause.command_type == _UPDATE:
            set_names = {unwrap(target).name for target in clause.target_list}
            chosen = [column.attnum for column in relation.columns if column.name in set_names]
            privilege.check_columns(cursor, role, relation, "UPDATE", chosen)
            planner.writes(relation, chosen)
        elif clause.command_type == _INSERT:
            columns = insert.target_columns(_as_insert(clause), relation) if clause.target_list or clause.values else []
            privilege.check_columns(cursor, role, relation, "INSERT", [column.attnum for column in columns])
            planner.writes(relation, [column.attnum for column in columns])


def _target(node: pb.MergeStmt, session: Session) -> Relation:
    clauses = [unwrap(clause) for clause in node.merge_when_clauses]
    kinds = dict.fromkeys(clause.command_type for clause in clauses)
    for matching in {clause.match_kind for clause in clauses}:
        of_kind = [clause for clause in clauses if clause.match_kind == matching]
        if not all(clause.HasField("condition") for clause in of_kind[:-1]):
            raise PostgresError("42601", "unreachable WHEN clause specified after unconditional WHEN clause")
    return insert.target(node.relation, session, "execute MERGE on", *[_RIGHTS[kind] for kind in kinds if kind in _RIGHTS])


class _Bound:
    """The bound expressions of a MERGE.

    join        the condition of ON
    clause      the number of the clause that applies to a row, NULL for none (or DO NOTHING)
    insertions  the values of each INSERT clause by column, by the number of the clause. A column with DEFAULT is omitted, so that it gets
                its default, and so is one whose value is ignored
    """

    def __init__(
        self, planner: QueryPlanner, relation: Relation, node: pb.MergeStmt, table: FromItem | Source, source: FromItem | Source
    ) -> None:
        """Bind the expressions in PostgreSQL's order."""
        self._planner, self._relation = planner, relation
        if any(source_table.name == table.tables[0].name for source_table in source.tables):
            name = table.tables[0].name
            detail = "The name is used both as MERGE target table and data source."
            raise PostgresError("42712", f'name "{name}" specified more than once', detail=detail)
        scopes = {True: Scope(table.tables + source.tables, None, source.merged), False: replace(source.scope(None), hidden=table.tables)}
        context = planner.context.within(construct="MERGE", aggregates=False)
        self.join = binder.bind_condition(node.join_condition, scopes[True], "MERGE", context=context)
        self.insertions: dict[int, dict[str, Expression]] = {}
        file, nothing = ColumnRef(type=TEXT, name=FILE, attnum=1, key=FILE), Const(type=INTEGER, value=None)
        conditions, numbers = [], []
        for index, clause in enumerate(map(unwrap, node.merge_when_clauses)):
            matched = clause.match_kind == pb.MERGE_WHEN_MATCHED
            applies: Expression = NullTest(type=BOOLEAN, arg=file, is_null=not matched)
            if clause.HasField("condition"):
                context = planner.context.within(construct="MERGE WHEN", aggregates=False)
                condition = binder.bind_condition(clause.condition, scopes[matched], "WHEN", context=context)
                applies = joined(BoolKind.AND, [applies, condition])
            conditions.append(applies)
            numbers.append(replace(nothing, value=str(index)) if clause.command_type in _RIGHTS else nothing)
            if clause.command_type == _INSERT:
                self.insertions[index] = self._values(clause, scopes[False])
            elif clause.command_type == _UPDATE and planner.describing:  # otherwise the rows of the clause bind it
                assignment.set_list(clause.target_list, planner, relation, scopes[True])
        self.clause = Case(type=INTEGER, arg=None, conditions=tuple(conditions), results=tuple(numbers), default=nothing)

    def _values(self, clause: ParseNode, scope: Scope) -> dict[str, Expression]:
        columns = insert.target_columns(_as_insert(clause), self._relation)
        insert.require_width(clause.values, clause.target_list, columns)
        context = self._planner.context.within(construct="VALUES", default=True)
        values = {}
        for item, column in zip(clause.values, columns, strict=False):
            bound = binder.bind_raw(item, scope, context)
            insert.refuse_generated(clause, column, isinstance(bound, SetToDefault))
            if isinstance(bound, SetToDefault):
                continue
            value = binder.assign(bound, stored_expression.type_of(column), column.name, context)
            if not insert.is_ignored(clause, column):
                values[column.name] = value
        return values


class _Merge:
    """One MERGE: the joined rows, and the execution of the clauses."""

    def __init__(self, planner: QueryPlanner, relation: Relation, node: pb.MergeStmt, clauses: list[pb.MergeWhenClause]) -> None:
        self.planner = planner
        self.relation = relation
        self.clauses = clauses
        alias = node.relation.alias.aliasname
        frame = planner.transaction.reader.positions(relation)
        if relation.has_leaves:
            frame = frame.withColumn(LEAF, planner.transaction.partitioned(relation).leaf_column())
        table = from_clause.table_source(
            planner, frame, relation, alias or relation.name, None if alias else relation.schema, keep=(FILE, ROW)
        )
        from_clause.restrict(planner, relation, table.star, alias or relation.name)
        self.security = row_security.of_statement(
            planner, relation, Statement.MERGE, lambda: column_reads.of_merge(planner, relation, node)
        )
        self.table = self.security.visible(table)
        _check_columns(planner, relation, clauses)
        self.source = from_clause.item(planner, node.source_relation, hiding(None, self.table.tables))
        self.bound = _Bound(planner, relation, node, self.table, self.source)
        self.both = Source(
            self.source.frame, self.table.tables + self.source.tables, self.table.star + self.source.star, self.source.merged
        )
        source, condition = row_by_row.settled_parts(planner.evaluation, self.source.frame, self.bound.join)
        target, condition = row_by_row.settled_parts(planner.evaluation, self.table.frame, condition)
        rows = source.join(target, planner.column(condition), "left")
        rows, [clause_number] = row_by_row.settled(planner.evaluation, rows, [self.bound.clause])
        self.rows = rows.withColumn(_CLAUSE, planner.column(clause_number))

    def _check_policies(self, matched_rows: DataFrame) -> None:
        for kind, rows in ((_UPDATE, Rows.MERGE_UPDATE), (_DELETE, Rows.MERGE_DELETE)):
            if clause_numbers := self._of(kind):
                self.security.refuse(rows, replace(self.table, frame=matched_rows.where(col(_CLAUSE).isin(clause_numbers))))

    def run(self) -> CommandResult:
        """Write the rows of all clauses."""
        kinds = {clause.command_type for clause in self.clauses}
        cursor = self.planner.transaction.cursor
        for kind, word in ((_UPDATE, "update"), (_DELETE, "delete")):
            if kind in kinds:
                for table in self.planner.transaction.reader.leaves(self.relation) if self.relation.with_children else [self.relation]:
                    replica_identity.check(cursor, table, word)
        with persisted(self.rows.where(col(_CLAUSE).isNotNull())) as matched_rows:
            self._refuse_twice(matched_rows)
            self._check_policies(matched_rows)
            try:
                count = self._changes(matched_rows, _UPDATE) + self._changes(matched_rows, _DELETE)
            except PostgresError as error:
                if error.sqlstate == "27000" and error.context is None:
                    raise own_change.changed("updated or deleted") from error
                raise
            count += self._insertions(matched_rows)
        return CommandResult(f"MERGE {count}")

    def _of(self, kind: int) -> list[int]:
        return [index for index, clause in enumerate(self.clauses) if clause.command_type == kind]

    def _refuse_twice(self, matched_rows: DataFrame) -> None:
        """Raise 21000 if two source rows change one row of the table, or if the WITH clause has written it."""
        clause_numbers = self._of(_UPDATE) + self._of(_DELETE)
        changing = matched_rows.where(col(_CLAUSE).isin(clause_numbers)) if clause_numbers else None
        written = F.col(FILE).isin(modifying_with.written_files(self.planner, self.relation))
        if changing is not None and not changing.groupBy(FILE, ROW).count().where((F.col("count") > 1) | written).isEmpty():
            raise PostgresError(
                "21000",
                "MERGE command cannot affect row a second time",
                hint="Ensure that not more than one source row matches any one target row.",
            )

    def _changes(self, matched_rows: DataFrame, kind: int) -> int:
        count = 0
        old = assignment.old_row(self.relation, self.table.star)
        where = (F.col(FILE).alias("file"), F.col(ROW).alias("row"))
        for clause_number in self._of(kind):
            rows = matched_rows.where(col(_CLAUSE) == clause_number)
            if kind == _DELETE:
                no_row = F.lit(None).cast(spark_columns(self.relation)).alias("new")
                count += changed_rows.remove(self.planner, self.relation, rows.select(old, no_row, *where))[0]
                continue
            targets = self.clauses[clause_number].target_list
            new = assignment.new_row(targets, self.planner, self.relation, self.table.star, self.both, rows)
            names_set = {unwrap(target).name for target in targets}
            with ExitStack() as persisted_frames:
                changed = assignment.numbered(
                    self.planner, self.relation, new.frame.select(old, new.row.alias("new"), *where), new, persisted_frames
                )
                count += changed_rows.rewrite(self.planner, self.relation, changed, names_set, self.security.violations(Rows.UPDATED))[0]
        return count

    def _insertions(self, matched_rows: DataFrame) -> int:
        count = 0
        for clause_number in self._of(_INSERT):
            values = self.bound.insertions[clause_number]
            frame = matched_rows.where(col(_CLAUSE) == clause_number)
            frame, settled = row_by_row.settled(self.planner.evaluation, frame, list(values.values()))
            selected = [self.planner.column(value).alias(name) for name, value in zip(values, settled, strict=True)]
            rows = frame.select(*(selected or [F.lit(True).alias(NO_COLUMN)]))
            violations = self.security.violations(Rows.INSERTED)
            with closing(NewRows(self.planner, self.relation.alone, violations=violations)) as writer:
                count += writer.insert(writer.completed(rows))
        return count


def _as_insert(clause: pb.MergeWhenClause) -> pb.InsertStmt:
    """Return the clause's column names in the form of an INSERT."""
    return pb.InsertStmt(cols=clause.target_list)
