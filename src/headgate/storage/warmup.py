"""Warm-up: run the work of a node's first statements once in the background, so that they do not pay for class loading and compilation.

The node starts it in a thread when it is ready (setting `warm_up`). `archive` uses it to load the classes for the class archive.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate.storage.delta import delta_log
from headgate.storage.delta.delta_table import FILE, RESIDENT_ROWS, ROW, DeltaTable
from headgate.storage.delta.internals.log_cache import Delta
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark.application import heap
from headgate.storage.spark.failure import used_up
from headgate.storage.spark.local_relation import in_one_piece

_log = logging.getLogger("headgate.storage")


def warm_up(session: SparkSession, scratch: DataPath) -> None:
    """Create a table that is read by Spark, write, read and rewrite it, read a small one, and remove it.

    `scratch`: a folder that tasks can access (`Engine.exchange`).
    """
    path = scratch / f"warmup-{uuid.uuid4()}"
    try:
        delta_log.create(path, StructType([StructField("a", LongType()), StructField("b", StringType())]))
        table = DeltaTable(Delta(session), path)
        state = table.state()
        rows = session.range(RESIDENT_ROWS + 1).select(F.col("id").alias("a"), F.lit("x").alias("b"))
        state = table.commit_version(state, table.write(state, rows), "warm-up")
        frame = table.frame(state, positions=True)
        persisted_rows = frame.where("a % 7 = 3").persist()
        few = persisted_rows.toArrow()
        deleted = table.deletions(state, persisted_rows.select(FILE, ROW), few[FILE].unique().to_pylist())
        persisted_rows.unpersist()
        state = table.commit_version(state, deleted, "warm-up")
        for rows in (table.frame(state), in_one_piece(session, few, persisted_rows.schema)):
            rows.groupBy("b").agg(F.count("*"), F.max("a")).orderBy("b").limit(10).toArrow()
        tasks = max(session.sparkContext.defaultParallelism, 2)
        session.range(0, tasks, 1, tasks).mapInArrow(_same, "id bigint").toArrow()  # starts the daemons that fork the workers
    finally:
        data_location.remove_tree(path)


def _same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches


def start(session: SparkSession, scratch: DataPath, modules: Sequence[str], is_stopping: Callable[[], bool]) -> threading.Thread:
    """Run `warm_up` in a daemon thread. An error is logged and is not a failure of the node; one is expected if the node is stopping.

    `modules` are imported first: those of statements take a quarter of a second.
    """

    def run() -> None:
        begun = time.monotonic()
        try:
            for module in modules:
                importlib.import_module(module)
            heap.settle()
            warm_up(session, scratch)
            _log.debug("the warm-up took %.1f s", time.monotonic() - begun)
        except Exception as error:  # noqa: BLE001 (Spark fails in many ways if it is stopped meanwhile)
            if is_stopping():
                return
            exhausted = used_up(error)
            if exhausted is not None:
                _log.warning("the warm-up failed; the first statements will take longer: %s", exhausted.message)
            else:
                _log.warning("the warm-up failed; the first statements will take longer", exc_info=True)

    thread = threading.Thread(target=run, name="spark warm-up", daemon=True)
    thread.start()
    return thread
