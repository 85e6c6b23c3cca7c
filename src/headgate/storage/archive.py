"""Make the class archive (`storage.spark.application.class_archive`): ``python -m headgate.storage.archive``, part of ``make setup``.

It starts a session, runs the first work of a node in it, and lets the JVM write an archive of the classes that it loaded.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from headgate.storage import warmup
from headgate.storage.spark.application import class_archive, spark_session
from headgate.storage.spark.internals import gateway


def make() -> None:
    """Make the archive, in about half a minute, unless it exists."""
    target = class_archive.path()
    if target.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".tmp")
    with tempfile.TemporaryDirectory(prefix="headgate-archive-") as scratch:
        session = spark_session.start({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={unfinished}"}, scratch=Path(scratch))
        warmup.warm_up(session, Path(scratch))
        context = session.sparkContext
        session.stop()
        gateway.close(context)
    if unfinished.is_file():
        unfinished.rename(target)


if __name__ == "__main__":
    make()
