"""Makes the class archive (`storage.spark.application.class_archive`): ``python -m headgate.storage.archive``, part of ``make setup``.

It starts a session, has it do what a node does first, and lets the JVM write down the classes that it loaded.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from headgate.storage import warmup
from headgate.storage.spark.application import class_archive, spark_session


def make() -> None:
    """Makes the archive, in about half a minute; does nothing where there is one."""
    target = class_archive.path()
    if target.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".tmp")
    with tempfile.TemporaryDirectory(prefix="headgate-archive-") as scratch:
        session = spark_session.start({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={unfinished}"}, scratch=Path(scratch))
        warmup.warm_up(session, Path(scratch))
        gateway: Any = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(120)
    if unfinished.is_file():
        unfinished.rename(target)


if __name__ == "__main__":
    make()
