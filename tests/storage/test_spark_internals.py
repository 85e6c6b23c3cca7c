"""Each private class of Spark, PySpark and Py4J that a node uses behaves as its façade documents.

Run these tests first with a new version of Spark.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StructType, TimestampNTZType, TimestampType
from tests.conftest import until

from headgate.storage.spark.internals import (
    arrow_function,
    arrow_schema,
    gateway,
    java_error,
    java_memory,
    java_thread,
    plan_step,
    python_worker,
    query_plan,
    setting,
    task_status,
)

ROWS = 1000


def test_the_address_of_java_is_the_socket_that_answers_its_token(spark: SparkSession) -> None:
    from headgate.server import reinitialize

    address = gateway.address(spark.sparkContext)
    assert gateway.is_open()
    assert reinitialize.answers(address)
    assert address.auth_token not in repr(address)


def test_the_process_is_the_java_that_runs_the_session(spark: SparkSession) -> None:
    process = gateway.process(spark.sparkContext)
    assert process is not None
    assert process.poll() is None
    assert process.pid == spark._jvm.java.lang.ProcessHandle.current().pid()


def test_a_thread_has_one_connection_and_another_thread_has_another(spark: SparkSession) -> None:
    context = spark.sparkContext
    spark.range(1).count()
    connections = [gateway.connection(context), gateway.connection(context)]

    def count_in_thread() -> None:
        connections.append(gateway.connection(context))
        spark.range(1).count()
        connections.append(gateway.connection(context))

    thread = threading.Thread(target=count_in_thread)
    thread.start()
    thread.join()
    first, second, before_use, after_use = connections
    assert first is not None
    assert first is second
    assert before_use is None
    assert after_use not in (None, first)


def test_objects_of_java_are_counted_and_their_end_is_reported(spark: SparkSession) -> None:
    gc.collect()
    before = gateway.referenced_objects()
    frames = [spark.range(1) for _ in range(20)]
    assert gateway.referenced_objects() >= before + 20
    frames.clear()
    gc.collect()
    assert gateway.referenced_objects() < before + 20
    assert gateway.has_unreported(spark.sparkContext)
    until(lambda: not gateway.has_unreported(spark.sparkContext), "Java does not hear of the freed objects", 10)


def test_classes_that_were_looked_up_are_attributes_of_the_view(spark: SparkSession) -> None:
    gateway.cache_lookups(spark)
    assert spark._jvm.__dict__["PythonSQLUtils"] is spark._jvm.PythonSQLUtils
    assert "col" in spark._jvm.functions.__dict__


def test_a_plan_has_its_most_rows_and_an_estimate_of_their_bytes(spark: SparkSession) -> None:
    numbers = spark.range(ROWS)
    assert query_plan.most_rows(numbers.limit(7)) == 7
    assert query_plan.most_rows(numbers) == ROWS
    assert query_plan.most_rows(numbers.select(F.explode(F.sequence(F.lit(1), F.col("id"))))) is None
    assert query_plan.estimated_bytes(numbers) == ROWS * 8


def test_the_steps_of_a_plan_have_their_rows_once_it_has_run(spark: SparkSession) -> None:
    execution = plan_step.Execution(spark.range(ROWS).where("id < 10").groupBy("id").count())
    assert execution.steps().name == "HashAggregate"
    execution.run()
    assert execution.steps().rows == 10
    scan = execution.steps()
    while scan.inputs:
        [scan] = scan.inputs
    assert (scan.name, scan.rows) == ("Range", ROWS)
    assert "== Physical Plan ==" in execution.text(verbose=False)
    assert "== Optimized Logical Plan ==" in execution.text(verbose=True)


def test_a_plan_tells_whether_it_computes_in_python(spark: SparkSession) -> None:
    doubled = arrow_function.of_arrays(lambda array: pc.multiply(array, 2), LongType())
    numbers = spark.range(3)
    assert not query_plan.computes_in_python(numbers)
    assert query_plan.computes_in_python(numbers.select(doubled(F.col("id"))))
    correlated = spark.range(3).where(F.col("id") == F.col("outer_id").outer())
    assert not query_plan.computes_in_python(correlated)


def test_a_detached_frame_has_the_rows_and_the_plan_of_an_rdd(spark: SparkSession) -> None:
    doubled = arrow_function.of_arrays(lambda array: pc.multiply(array, 2), LongType())
    computed = spark.range(3).select(doubled(F.col("id")).alias("n"))
    detached = query_plan.detached(computed)
    assert detached.toArrow() == computed.toArrow()
    assert not query_plan.computes_in_python(detached)


def test_the_rows_of_a_checkpoint_are_unpersisted(spark: SparkSession) -> None:
    persisted = spark._jsparkSession.sparkContext().getPersistentRDDs
    before = persisted().size()
    checkpointed = spark.range(3).localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
    assert persisted().size() == before + 1
    query_plan.unpersist_checkpoint(checkpointed)
    assert persisted().size() == before


def test_stages_tasks_and_executors_of_a_job_are_counted_while_it_runs(spark: SparkSession) -> None:
    context, began = spark.sparkContext, time.time()
    assert not task_status.is_stopped(context)
    until(lambda: not sum(task_status.executor_tasks(context)), "tasks of another test run")
    slow = spark.range(0, 1, 1, 1).where(F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(60_000).cast("bigint")).isNull())
    ended: list[Exception] = []

    def run() -> None:
        try:
            context.setJobGroup("counted", "counted", interruptOnCancel=True)
            slow.count()
        except Exception as error:  # noqa: BLE001 - cancelled below
            ended.append(error)

    job = threading.Thread(target=run)
    job.start()
    until(lambda: sum(task_status.executor_tasks(context)) > 0, "no executor runs a task")
    until(lambda: any(stage.running for stage in task_status.active_stages(context)), "no stage runs")
    [stage] = task_status.active_stages(context)
    assert stage.completed == 0
    assert began - 1 <= stage.submitted <= time.time() + 1
    context.cancelJobGroup("counted")
    job.join()
    assert ended
    until(lambda: task_status.active_stages(context) == [], "the stage does not end")


def test_bytes_that_stages_wrote_for_a_shuffle_are_counted(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("shuffle", "shuffle", interruptOnCancel=True)
    assert spark.range(ROWS).repartition(2, "id").count() == ROWS
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("shuffle")]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    until(lambda: task_status.temporary_bytes(context, stages) > 0, "the shuffle is not counted")
    assert task_status.temporary_bytes(context, []) == 0


def test_the_old_generation_counts_its_collections_and_what_was_alive(spark: SparkSession) -> None:
    context = spark.sparkContext
    old, heap = java_memory.OldGeneration.of(context), java_memory.heap(context)
    assert old is not None
    before = old.collections()
    until(lambda: java_memory.collect(context) or old.collections() > before, "Java does not collect")
    assert 0 < old.usage_after_collection().used <= old.usage().most < heap.most
    assert 0 < heap.used <= heap.most
    assert 0 < old.usage().share < 1


def test_rows_in_memory_are_among_the_bytes_that_spark_accounts_for(spark: SparkSession) -> None:
    context = spark.sparkContext
    persisted = spark.range(100_000).select(F.rand()).persist(StorageLevel.MEMORY_ONLY)
    try:
        persisted.count()
        with_rows = java_memory.managed_bytes(context)
    finally:
        persisted.unpersist(blocking=True)
    # The bytes are not compared with those before, because jobs of earlier tests may release memory in between.
    assert with_rows > java_memory.managed_bytes(context) + 400_000


def test_a_thread_is_stopped_while_it_plans_and_its_interrupt_is_cleared(spark: SparkSession) -> None:
    context, threads, ended = spark.sparkContext, list[java_thread.JavaThread](), list[Exception]()
    assert not java_thread.is_planning(context, java_thread.current(context))

    def plan() -> None:
        threads.append(java_thread.current(context))
        condition = " OR ".join(f"(id = {n} AND id + {n} > {n})" for n in range(30_000))
        try:
            spark.range(1).where(F.expr(condition)).count()
        except Exception as error:  # noqa: BLE001 - stopped below
            ended.append(error)
            java_thread.clear_interrupt(context)

    planning = threading.Thread(target=plan)
    planning.start()
    until(lambda: bool(threads) and java_thread.is_planning(context, threads[0]), "it does not plan", 60)
    stopped = java_thread.stop(threads[0])
    planning.join(60)
    assert not planning.is_alive()
    assert (stopped, bool(ended)) in ((True, True), (False, False)), "from Java 20 on it cannot be stopped"


def test_an_exception_of_spark_has_the_stack_of_java(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as raised:
        spark.range(1).select("missing")
    assert "\tat org.apache.spark.sql" in (java_error.stack(raised.value) or "")
    assert java_error.stack(ValueError("no Java")) is None


def test_a_timestamp_is_an_instant_in_utc_as_in_the_batches_that_spark_sends(spark: SparkSession) -> None:
    row = StructType().add("at", TimestampType()).add("local", TimestampNTZType()).add("numbers", ArrayType(LongType()))
    assert arrow_schema.of_row(row).field("at").type == pa.timestamp("us", tz="UTC") == arrow_schema.of_type(TimestampType())
    assert arrow_schema.of_type(TimestampNTZType()) == pa.timestamp("us")
    sent = spark.createDataFrame([(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1), [1])], row).toArrow()  # noqa: DTZ001
    assert sent.schema.types == arrow_schema.of_row(row).types


def test_an_arrow_function_has_an_array_for_each_argument(spark: SparkSession) -> None:
    total = arrow_function.of_arrays(pc.add, "bigint")
    assert spark.range(3).select(total(F.col("id"), F.col("id")).alias("n")).toArrow()["n"].to_pylist() == [0, 2, 4]


def test_the_workers_daemon_is_the_nodes_own_and_runs_sparks(spark: SparkSession) -> None:
    import importlib

    assert spark.sparkContext.getConf().get(python_worker.DAEMON_SETTING) == "headgate.storage.spark.application.worker_daemon"
    assert callable(importlib.import_module("pyspark.daemon").manager)
    assert callable(importlib.import_module(python_worker.TASKS).main)


def test_a_worker_imports_nothing_from_an_archive(spark: SparkSession) -> None:
    def archives(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys
        from zipimport import zipimporter

        folders = [place for place, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]
        yield pa.RecordBatch.from_pydict({"place": pa.array(folders, pa.string())})

    assert spark.range(1).mapInArrow(archives, "place string").toArrow()["place"].to_pylist() == []


def test_the_classes_that_settings_name_exist_and_the_rule_is_excluded(spark: SparkSession) -> None:
    for name in (setting.CHECKPOINT_FILE_MANAGER, setting.REORDERING_RULE + "$"):
        assert spark._jvm.org.apache.spark.util.Utils.classForName(name, False, True).getName() == name
    optimized = spark.range(1).select((F.col("id") + 1 + F.lit(2)).alias("n"))._jdf.queryExecution().optimizedPlan().toString()
    assert "+ 3" not in optimized


@pytest.mark.slow
def test_java_is_launched_with_its_stderr_and_closed() -> None:
    """This runs in a separate process, because PySpark starts one Java in each process."""
    import subprocess
    import sys

    program = (
        "import os\nfrom headgate.storage.spark.internals import gateway\nfrom pyspark.sql import SparkSession\n"
        "assert not gateway.is_open()\nread_end, write_end = os.pipe()\n"
        "gateway.launch(write_end)\nos.close(write_end)\n"
        "session = SparkSession.builder.master('local[1]').getOrCreate()\ncontext = session.sparkContext\n"
        "process = gateway.process(context)\nsession.stop()\ngateway.close(context)\n"
        "assert process.poll() is not None\nassert b'WARN' in os.fdopen(read_end, 'rb').read()\n"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
