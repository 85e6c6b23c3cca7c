"""Rows beside what the catalog says of them: unique keys, foreign keys, NOT NULL, CHECK, and the partition in which a row lies.

All of it is Spark's work on the tables as of the subject's LSN; what comes back is counts. A foreign key may be broken on purpose: who
applies changes does not look at them, nor does a session whose session_replication_role is replica. So it is a warning where a
subscription writes one of the two tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.physical import rows
from headgate.catalog.relation import ForeignKey, Index, Relation
from headgate.catalog.usertype import KnownTypes
from headgate.check.finding import Finding, error, notice, warning
from headgate.check.subject import Subject
from headgate.commands import binding, reference_key, uniqueness
from headgate.commands.query.plan import quoted
from headgate.errors import PostgresError
from headgate.expression import compile as compiler
from headgate.storage.transaction import Transaction

_MEND = "change or delete these rows"


def findings(subject: Subject) -> Iterator[Finding]:
    """All constraints that rows of a table break."""
    for database in subject.databases:
        KnownTypes(subject.engine.catalog, database).use(cursor=subject.cursor)
        relations = {each.oid: each for each in subject.relations(database)}
        applied = {oid for (oid,) in rows(subject.cursor, "SELECT srrelid FROM hg.pg_subscription_rel WHERE dbid = ?", [database])}
        inherited = {
            oid for (oid,) in rows(subject.cursor, "SELECT oid FROM hg.pg_constraint WHERE dbid = ? AND conparentid <> 0", [database])
        }
        for relation in relations.values():
            table = _Rows(subject, relation)
            if not table.readable or table.empty:
                continue
            subject.progress(f"keys of {table.place}")
            yield from table.judged(table.broken())
            for key in relation.foreign_keys:
                target = relations.get(key.target)
                if key.oid not in inherited and key.validated and target is not None and _Rows(subject, target).readable:
                    yield from table.judged(table.orphans(key, target, applied=bool({relation.oid, target.oid} & applied)))


class _Rows:
    """The rows of one table."""

    def __init__(self, subject: Subject, relation: Relation) -> None:
        self.relation = relation
        self.place = subject.title((relation.database, relation.oid))
        self.transaction: Transaction = subject.transactions[relation.database]
        self._keys = [(relation.database, each.oid) for each in self._tables()]
        self.readable = not subject.damaged.intersection(self._keys) and all(key in subject.visible for key in self._keys)

    def _tables(self) -> list[Relation]:
        return list(self.transaction.partitioned(self.relation).leaves) if self.relation.kind == "p" else [self.relation]

    @property
    def empty(self) -> bool:
        """Whether there are no files."""
        return not any(state.files for state in self.transaction.states(self.relation))

    def frame(self) -> DataFrame:
        """All of them."""
        return self.transaction.frame(self.relation)

    def judged(self, found: Iterator[Finding]) -> Iterator[Finding]:
        """The findings; where Spark cannot compute a part, that is one."""
        try:
            yield from found
        except (PostgresError, PySparkException) as failure:
            said = failure.message if isinstance(failure, PostgresError) else type(failure).__name__
            yield error(self.place, f"its constraints could not be looked at: {said}")

    def broken(self) -> Iterator[Finding]:
        """Keys that are there twice, rows without what they must have, rows in the wrong partition."""
        if self.relation.kind == "p":  # the keys of its leaves contain the partition key
            yield from self._misplaced()
            return
        for index in uniqueness.keys_of(self.relation):
            count = self._twice(index)
            if count:
                yield error(self.place, f'{count} keys of unique index "{index.name}" are there more than once', _MEND)
        yield from self._violations()

    def _twice(self, index: Index) -> int:
        keys = [f"k{place}" for place in range(len(index.attnums))]
        return _count(uniqueness.keyed(self.relation, index, self.frame()).groupBy(*keys).agg(F.count(F.lit(1)).alias("n")).where("n > 1"))

    def _violations(self) -> Iterator[Finding]:
        places = {column.name: F.col(quoted(column.name)) for column in self.relation.columns}
        tests: dict[str, Column] = {
            f'have NULL in column "{column.name}", which is NOT NULL': places[column.name].isNull()
            for column in self.relation.columns
            if column.not_null
        }
        for check in self.relation.checks:
            if not check.validated:
                continue
            try:
                met = compiler.compile(binding.stored(check.expression, self.relation), places)
            except PostgresError:
                yield notice(self.place, f'check constraint "{check.name}" was not looked at: it depends on who asks')
                continue
            tests[f'violate check constraint "{check.name}"'] = ~F.coalesce(met, F.lit(True))
        if not tests:
            return
        counts = self.frame().agg(*[F.sum(F.when(test, 1).otherwise(0)).alias(f"t{n}") for n, test in enumerate(tests.values())]).first()
        assert counts is not None
        for what, count in zip(tests, counts, strict=True):
            if count:
                yield error(self.place, f"{count} rows {what}", _MEND)

    def _misplaced(self) -> Iterator[Finding]:
        table = self.transaction.partitioned(self.relation)
        for leaf in table.leaves:
            if self.transaction.state(leaf).files:
                count = _count(self.transaction.frame(leaf).where(table.place_oid() != leaf.oid))
                if count:
                    yield error(self.place, f'{count} rows of partition "{leaf.schema}"."{leaf.name}" do not belong there', _MEND)

    def orphans(self, key: ForeignKey, target: Relation, *, applied: bool) -> Iterator[Finding]:
        """Rows whose foreign key names no row."""
        values = reference_key.of_rows(self.frame(), self.relation, key.columns)
        assert isinstance(values, DataFrame)
        found = warning if applied else error
        places = [F.col(f"v{place}") for place in range(len(key.columns))]
        if key.match == "f" and len(places) > 1:
            nulls = sum((place.isNull().cast("int") for place in places), F.lit(0))
            if mixed := _count(values.where((nulls > 0) & (nulls < len(places)))):
                yield found(self.place, f'{mixed} rows mix NULL and other values in MATCH FULL foreign key "{key.name}"', _MEND)
        complete = reference_key.complete(values, len(places))
        missing = reference_key.missing_rows(self.transaction, self.relation, key.columns, target, key.target_columns, complete)
        count = 0 if missing is None else _count(missing) if isinstance(missing, DataFrame) else missing.num_rows
        if count:
            yield found(self.place, f'{count} rows name none of table "{target.schema}"."{target.name}" by foreign key "{key.name}"', _MEND)


def _count(frame: DataFrame) -> int:
    return int(frame.count())
