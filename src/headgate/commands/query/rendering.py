"""Render a planned query as the result that the server sends: rows in PostgreSQL's text form, in bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headgate.analysis.query import PlanColumn
from headgate.commands.query.plan import Plan, col
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.storage.row_store import RowStore
from headgate.storage.spark import failure, job_group, planning, result_spool
from headgate.storage.spark.temp_file_limit import Spill
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry
from headgate.types.resultset import ResultColumn, ResultSet
from headgate.types.text.text import write_text


def result_columns(columns: Sequence[PlanColumn]) -> tuple[ResultColumn, ...]:
    base = registry.known().base  # the protocol reports a domain's base type
    return tuple(
        ResultColumn(column.name, *base(column.type.oid, column.type.typmod), column.relation, column.attnum, column.attributes)
        for column in columns
    )


def result(plan: Plan, session: Session, transaction: Transaction) -> ResultSet:
    """Return the result of a plan. Its rows are computed when they are fetched."""
    return ResultSet(result_columns(plan.columns), rows(plan, session, transaction))


def rows(plan: Plan, session: Session, transaction: Transaction) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a result, each column in text form."""
    frame = plan.frame.select(*[col(column.key) for column in plan.columns])
    with running(session, transaction):
        for batch in result_spool.batches(frame, transaction.storage.exchange):
            session.check_cancel()
            yield text_batch(batch, plan.columns, session)


def kept(session: Session) -> RowStore:
    """Return an empty row store for a statement or a cursor, in the session's temporary files."""
    return RowStore(session.parts.data_dir / "pgsql_tmp", session.settings.integer("temp_file_limit"))


def text_batch(batch: pa.RecordBatch, columns: Sequence[PlanColumn], session: Session) -> pa.RecordBatch:
    """Convert a batch from stored form to text. DateStyle and IntervalStyle are applied when the text is sent to the client."""
    forms = session.context.forms.of_results
    arrays = [write_text(batch.column(place), column.type.oid, session=forms) for place, column in enumerate(columns)]
    if not arrays:
        return batch
    return pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(columns))])


@contextmanager
def running(session: Session, transaction: Transaction) -> Iterator[None]:
    """Attribute Spark's work in the block to the session.

    A cancel or exceeding `temp_file_limit` stops it. Spark's exceptions become PostgreSQL errors.
    """
    spark = transaction.storage.spark
    context = spark.sparkContext
    spill = Spill(spark, session.job_group, session.settings.integer("temp_file_limit"))

    def check() -> None:
        session.check_cancel()
        spill.check()

    thread = job_group.enter(context, session.job_group, "headgate session", check)
    stopped = threading.Event()

    def stop() -> None:
        context.cancelJobGroup(session.job_group)
        if planning.stop(context, thread):
            stopped.set()

    try:
        with spill, session.cancelling(stop, in_java=True), translated(check):
            yield
    finally:
        if stopped.is_set():
            planning.recover(context)


@contextmanager
def translated(check_cancel: Callable[[], None]) -> Iterator[None]:
    """Translate Spark's exceptions in the block to `PostgresError`."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        check_cancel()
        if "SCALAR_SUBQUERY_TOO_MANY_ROWS" in str(error):
            raise PostgresError("21000", "more than one row returned by a subquery used as an expression") from error
        if "usePythonUDFInJoinCondition" in str(error):
            raise not_supported("a subquery whose rows are compared with the outer row by a function in Python is not supported") from error
        raise failure.from_spark(error) from error
