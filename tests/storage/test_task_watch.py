"""The watch of Spark's tasks reports a stage that finds no slot for its tasks."""

from __future__ import annotations

import threading
import time

import pytest
from tests.conftest import until

from headgate.server import task_watch
from headgate.server.task_watch import TaskWatch
from headgate.storage.engine import Engine


@pytest.mark.slow
@pytest.mark.one_java
def test_stage_without_a_slot_for_its_tasks_is_reported_until_it_has_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_watch, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(task_watch, "LOOK_SECONDS", 0.1)
    context = engine.spark.sparkContext
    places = context.defaultParallelism

    def run(tasks: int, seconds: float) -> threading.Thread:
        job = threading.Thread(target=lambda: context.parallelize(range(tasks), tasks).foreach(lambda _: time.sleep(seconds)))
        job.start()
        return job

    watch = TaskWatch(engine)
    watch.start()
    long = run(places, 2.5)
    until(lambda: watch.tasks.running == places, "the tasks do not run")
    assert (watch.tasks.places, watch.tasks.waiting_seconds) == (places, 0.0)
    short = run(1, 0.0)
    until(lambda: watch.tasks.waiting_seconds > 0.5, "the waiting stage is not reported")
    for job in (long, short):
        job.join()
    until(lambda: (watch.tasks.running, watch.tasks.waiting_seconds) == (0, 0.0), "the stage is still reported after it has run")
    watch.stop()
