"""Check of rows against the catalog's constraints: unique and foreign keys, NOT NULL, CHECK, generated columns, partition bounds.

Spark does all the work, on the tables as of the subject's LSN. It returns a count for each constraint, for a table in one query. A foreign
key may be violated on purpose: an apply worker does not check it, and neither does a session with session_replication_role = replica. So it
is a warning if a subscription writes to one of the two tables.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.known_types import KnownTypes
from headgate.catalog.physical import rows
from headgate.catalog.relation.relation import Column as TableColumn
from headgate.catalog.relation.relation import ForeignKey, Index, Relation
from headgate.check.finding import Finding, FindingSeverity, error, notice
from headgate.check.subject import Subject
from headgate.commands import stored_expression
from headgate.commands.constraint import index_key, reference_key
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.implementation.system import has_volatile
from headgate.expression.spark import compiler, domain
from headgate.sql.names import strings
from headgate.sql.parser import parse_expression, walk
from headgate.storage import row_set
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry

_MEND = "change or delete these rows"
_SESSION = "the expression needs a session"


@dataclass(frozen=True)
class Question:
    """A query for Spark: a frame with the columns `n` and `at`, one row for each of `what`, whose finding is yielded if `n` is not 0."""

    what: tuple[str, ...]
    counted: DataFrame
    severity: FindingSeverity = FindingSeverity.ERROR


def findings(subject: Subject) -> Iterator[Finding]:
    """Yield all constraints that rows of a table violate."""
    for database in filter(subject.wanted, subject.databases):
        relations = {relation.oid: relation for relation in subject.relations(database)}
        if not relations:
            continue
        KnownTypes(subject.engine.catalog, database).use(cursor=subject.cursor)
        inherited = _oids(subject, "SELECT oid FROM hg.pg_constraint WHERE dbid = ? AND conparentid <> 0", database)
        applied = _oids(subject, "SELECT srrelid FROM hg.pg_subscription_rel WHERE dbid = ?", database)
        for relation in relations.values():
            table = _Table(subject, relation)
            if not table.readable or table.empty:
                continue
            subject.progress(f"keys of {table.place}")
            foreign = [
                (key, target, FindingSeverity.WARNING if {relation.oid, target.oid} & applied else FindingSeverity.ERROR)
                for key in relation.foreign_keys
                if key.oid not in inherited and key.validated and (target := relations.get(key.target)) and _Table(subject, target).readable
            ]
            try:
                questions = [*table.questions(), *(question for arguments in foreign for question in table.orphans(*arguments))]
                yield from _answer(table.place, questions)
                yield from (notice(table.place, f"not checked whether {what}", _SESSION) for what in table.unknown)
            except (PostgresError, PySparkException, Py4JError) as failure:
                reason = failure.message if isinstance(failure, PostgresError) else type(failure).__name__
                yield error(table.place, f"its constraints could not be looked at: {reason}")


def _oids(subject: Subject, sql: str, database: int) -> set[int]:
    return {oid for (oid,) in rows(subject.cursor, sql, [database])}


def _answer(place: str, questions: list[Question]) -> Iterator[Finding]:
    union: DataFrame | None = None
    for number, question in enumerate(questions):
        numbered = question.counted.select(
            F.lit(number).alias("q"), F.col("at").cast("int").alias("at"), F.col("n").cast("bigint").alias("n")
        )
        union = numbered if union is None else union.unionAll(numbered)
    if union is None:
        return
    for number, at, count in sorted(union.where("n > 0").collect()):  # counts, at most one for each constraint
        yield Finding(questions[number].severity, place, f"{count} {questions[number].what[at]}", _MEND)


def _calls_users(*texts: str | None) -> bool:
    """Return whether expressions call a function that is not built in. It may need a session."""
    calls = (node for text in texts if text is not None for node in walk(parse_expression(text)) if node.DESCRIPTOR.name == "FuncCall")
    return any(strings(call.funcname)[-1] not in builtin.builtins().functions_named for call in calls)


def _outside(type_oid: int, held: Column) -> Column:
    """Return the condition that a value is outside of a domain."""
    return functools.reduce(Column.__or__, [broken for broken, _ in domain.violations(type_oid, compiler.plan)(held)])


def _differs(text: str, relation: Relation, columns: Mapping[str, Column], column: TableColumn | None = None) -> Column | None:
    """Return the condition that a generated column does not have its value or that a CHECK is violated. None for a volatile expression."""
    expression = stored_expression.stored(text, relation, column)
    if has_volatile(expression):
        return None
    value = compiler.compile(expression, columns)
    return ~F.coalesce(value, F.lit(True)) if column is None else ~value.eqNullSafe(columns[column.name])


def _without_session(condition: Callable[[], Column | None]) -> Column | None:
    """Return a condition, or None if it cannot be compiled without a session."""
    try:
        return condition()
    except PostgresError as error:
        if error.sqlstate != "0A000":
            raise
        return None


def _number(frame: DataFrame) -> DataFrame:
    return frame.agg(F.count(F.lit(1)).alias("n"), F.lit(0).alias("at"))


class _Table:
    """The rows of one table, with the questions about them."""

    def __init__(self, subject: Subject, relation: Relation) -> None:
        self.relation = relation
        self.place = subject.title((relation.database, relation.oid))
        self.transaction: Transaction = subject.transactions[relation.database]
        keys = [(relation.database, leaf.oid) for leaf in self._leaves()]
        self.readable = not subject.damaged.intersection(keys) and set(keys) <= set(subject.tables)
        self.unknown: list[str] = []
        """The rules that `questions` leaves out because they need a session."""
        self.empty = not any(subject.files(key) for key in keys if key in subject.tables)

    def _leaves(self) -> list[Relation]:
        return list(self.transaction.reader.leaves(self.relation))

    def questions(self) -> Iterator[Question]:
        """Yield questions for duplicate keys, for constraint violations, and for rows in the wrong partition."""
        if self.relation.is_partitioned:  # the keys of its leaves contain the partition key
            yield from self._find_misplaced()
            return
        for index in self.relation.unique_indexes:
            what = f'keys of unique index "{index.name}" are there more than once'
            if _calls_users(*index.expressions, index.predicate):
                self.unknown.append(what)
            else:
                yield Question((what,), self._twice(index))
        tests = self._tests()
        if tests:
            counts = [F.sum(F.when(test, 1).otherwise(0)) for test in tests.values()]
            counted = self.transaction.reader.frame(self.relation).agg(F.array(*counts).alias("counts"))
            yield Question(tuple(tests), counted.select(F.posexplode("counts").alias("at", "n")))

    def _twice(self, index: Index) -> DataFrame:
        keys = [f"k{position}" for position in range(len(index.attnums))]
        keyed = index_key.keyed(self.relation, index, self.transaction.reader.frame(self.relation))
        return _number(keyed.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1"))

    def _tests(self) -> dict[str, Column]:
        """Return the conditions of violations by what they are. Those that only a session can evaluate are in `unknown` afterwards."""
        tests = {}
        for what, texts, condition in self._violations():
            test = None if _calls_users(*texts) else _without_session(condition)
            if test is None:
                self.unknown.append(what)
            else:
                tests[what] = test
        return tests

    def _violations(self) -> Iterator[tuple[str, Sequence[str], Callable[[], Column | None]]]:
        """Yield what rows violate, the expressions of the constraint, and a function that returns the condition of a violation."""
        relation, columns = self.relation, {column.name: F.col(quoted(column.name)) for column in self.relation.columns}
        for column in relation.columns:
            held = columns[column.name]
            if column.not_null:
                yield f'rows have NULL in column "{column.name}", which is NOT NULL', (), held.isNull
            if domain.constrained(column.type_oid):
                texts = [text for _, text in registry.by_oid(column.type_oid).checks]
                yield f'rows are outside of the domain of column "{column.name}"', texts, partial(_outside, column.type_oid, held)
            if column.generated is not None:
                what = f'rows do not have the value of generated column "{column.name}"'
                yield what, [column.generated], partial(_differs, column.generated, relation, columns, column)
        for check in relation.checks:
            if check.validated:
                what = f'rows violate check constraint "{check.name}"'
                yield what, [check.expression], partial(_differs, check.expression, relation, columns)

    def _find_misplaced(self) -> Iterator[Question]:
        table = self.transaction.partitioned(self.relation)
        for leaf in table.leaves:
            rows = self.transaction.reader.frame(leaf).where(table.place_oid() != leaf.oid)
            yield Question((f'rows of partition "{leaf.schema}"."{leaf.name}" do not belong there',), _number(rows))

    def orphans(self, key: ForeignKey, target: Relation, severity: FindingSeverity) -> Iterator[Question]:
        """Yield the questions for rows whose foreign key has no matching row."""
        values = reference_key.of_rows(self.transaction.reader.frame(self.relation), self.relation, key.columns)
        complete = row_set.without_null(values, reference_key.value_names(key.columns))
        assert isinstance(values, DataFrame)
        assert isinstance(complete, DataFrame)
        if key.match == "f" and len(key.columns) > 1:
            nulls = sum((F.col(f"v{index}").isNull().cast("int") for index in range(len(key.columns))), F.lit(0))
            mixed = _number(values.where((nulls > 0) & (nulls < len(key.columns))))
            yield Question((f'rows mix NULL and other values in MATCH FULL foreign key "{key.name}"',), mixed, severity)
        missing = reference_key.unmatched(self.transaction, self.relation, key.columns, target, key.target_columns, complete)
        what = f'rows name no row of table "{target.schema}"."{target.name}" by foreign key "{key.name}"'
        yield Question((what,), _number(missing), severity)
