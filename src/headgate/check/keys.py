"""Rows beside what the catalog says of them: unique keys, foreign keys, NOT NULL, CHECK, and the partition in which a row lies.

All of it is Spark's work on the tables as of the subject's LSN; what comes back is a count for each constraint, of a table's in one query.
A foreign key may be broken on purpose: who applies changes does not look at it, nor does a session whose session_replication_role is
replica. So it is a warning where a subscription writes one of the two tables.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.physical import rows
from headgate.catalog.relation.relation import ForeignKey, Index, Relation
from headgate.catalog.user_type import KnownTypes
from headgate.check.finding import Finding, FindingSeverity, error
from headgate.check.subject import Subject
from headgate.commands import stored_expression
from headgate.commands.constraint import reference_key, uniqueness
from headgate.errors import PostgresError
from headgate.expression.spark import compiler, domain
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.transaction import Transaction

_MEND = "change or delete these rows"


@dataclass(frozen=True)
class Question:
    """What Spark answers by a frame with the columns `n` and `at`: for each of `what` a row, its finding where `n` is not 0."""

    what: tuple[str, ...]
    counted: DataFrame
    severity: FindingSeverity = FindingSeverity.ERROR


def findings(subject: Subject) -> Iterator[Finding]:
    """All constraints that rows of a table break."""
    for database in filter(subject.wanted, subject.databases):
        relations = {each.oid: each for each in subject.relations(database)}
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
                questions = [*table.questions(), *(one for each in foreign for one in table.orphans(*each))]
                yield from _answered(table.place, questions)
            except (PostgresError, PySparkException, Py4JError) as failure:
                said = failure.message if isinstance(failure, PostgresError) else type(failure).__name__
                yield error(table.place, f"its constraints could not be looked at: {said}")


def _oids(subject: Subject, sql: str, database: int) -> set[int]:
    return {oid for (oid,) in rows(subject.cursor, sql, [database])}


def _answered(place: str, questions: list[Question]) -> Iterator[Finding]:
    whole: DataFrame | None = None
    for number, question in enumerate(questions):
        one = question.counted.select(F.lit(number).alias("q"), F.col("at").cast("int").alias("at"), F.col("n").cast("bigint").alias("n"))
        whole = one if whole is None else whole.unionAll(one)
    if whole is None:
        return
    for number, at, count in sorted(whole.where("n > 0").collect()):  # counts, one for each constraint at the most
        yield Finding(questions[number].severity, place, f"{count} {questions[number].what[at]}", _MEND)


def _number(frame: DataFrame) -> DataFrame:
    return frame.agg(F.count(F.lit(1)).alias("n"), F.lit(0).alias("at"))


class _Table:
    """The rows of one table."""

    def __init__(self, subject: Subject, relation: Relation) -> None:
        self.relation = relation
        self.place = subject.title((relation.database, relation.oid))
        self.transaction: Transaction = subject.transactions[relation.database]
        keys = [(relation.database, each.oid) for each in self._leaves()]
        self.readable = not subject.damaged.intersection(keys) and set(keys) <= set(subject.tables)
        self.empty = not any(subject.files(key) for key in keys if key in subject.tables)

    def _leaves(self) -> list[Relation]:
        return list(self.transaction.partitioned(self.relation).leaves) if self.relation.is_partitioned else [self.relation]

    def questions(self) -> Iterator[Question]:
        """Keys that are there twice, rows without what they must have, rows in the wrong partition."""
        if self.relation.is_partitioned:  # the keys of its leaves contain the partition key
            yield from self._misplaced()
            return
        for index in self.relation.unique_indexes:
            yield Question((f'keys of unique index "{index.name}" are there more than once',), self._twice(index))
        tests = self._violations()
        if tests:
            counts = [F.sum(F.when(test, 1).otherwise(0)) for test in tests.values()]
            counted = self.transaction.frame(self.relation).agg(F.array(*counts).alias("counts"))
            yield Question(tuple(tests), counted.select(F.posexplode("counts").alias("at", "n")))

    def _twice(self, index: Index) -> DataFrame:
        keys = [f"k{place}" for place in range(len(index.attnums))]
        keyed = uniqueness.keyed(self.relation, index, self.transaction.frame(self.relation))
        return _number(keyed.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1"))

    def _violations(self) -> Mapping[str, Column]:
        places = {column.name: F.col(quoted(column.name)) for column in self.relation.columns}
        tests = {
            f'rows have NULL in column "{column.name}", which is NOT NULL': places[column.name].isNull()
            for column in self.relation.columns
            if column.not_null
        }
        for column in self.relation.columns:
            if domain.constrained(column.type_oid):
                broken = [condition for condition, _ in domain.violations(column.type_oid, compiler.plan)(places[column.name])]
                tests[f'rows are outside of the domain of column "{column.name}"'] = functools.reduce(Column.__or__, broken)
        for check in self.relation.checks:
            if check.validated:
                met = compiler.compile(stored_expression.stored(check.expression, self.relation), places)
                tests[f'rows violate check constraint "{check.name}"'] = ~F.coalesce(met, F.lit(True))
        return tests

    def _misplaced(self) -> Iterator[Question]:
        table = self.transaction.partitioned(self.relation)
        for leaf in table.leaves:
            rows = self.transaction.frame(leaf).where(table.place_oid() != leaf.oid)
            yield Question((f'rows of partition "{leaf.schema}"."{leaf.name}" do not belong there',), _number(rows))

    def orphans(self, key: ForeignKey, target: Relation, severity: FindingSeverity) -> Iterator[Question]:
        """Rows whose foreign key names no row."""
        values = reference_key.of_rows(self.transaction.frame(self.relation), self.relation, key.columns)
        complete = reference_key.complete(values, len(key.columns))
        assert isinstance(values, DataFrame)
        assert isinstance(complete, DataFrame)
        if key.match == "f" and len(key.columns) > 1:
            nulls = sum((F.col(f"v{place}").isNull().cast("int") for place in range(len(key.columns))), F.lit(0))
            mixed = _number(values.where((nulls > 0) & (nulls < len(key.columns))))
            yield Question((f'rows mix NULL and other values in MATCH FULL foreign key "{key.name}"',), mixed, severity)
        missing = reference_key.unmatched(self.transaction, self.relation, key.columns, target, key.target_columns, complete)
        what = f'rows name no row of table "{target.schema}"."{target.name}" by foreign key "{key.name}"'
        yield Question((what,), _number(missing), severity)
