"""The class archive (AppCDS) with which the JVM of a node starts in about half the time.

``python -m headgate.storage.spark.archive`` (part of ``make setup``) starts a session, has it do what a node does first, and lets the
JVM write down the classes that it loaded. The archive fits one Java, one set of jars and one pyspark; `spark_session.start` uses it when
it is there, and the JVM goes on without it when it does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyspark

from headgate.errors import PostgresError
from headgate.storage.spark.jars import find_jars, own_folder


def path() -> Path:
    """Where the archive of this installation is."""
    try:
        jars = [str(jar) for jar in find_jars()]
    except PostgresError:
        jars = []
    java = os.environ.get("JAVA_HOME") or os.path.realpath(shutil.which("java") or "")
    fits = hashlib.sha256("\n".join([pyspark.__version__, java, *jars]).encode()).hexdigest()[:12]
    return own_folder().parent / f"classes-{fits}.jsa"


def usable() -> bool:
    """Whether there is an archive."""
    return path().is_file()


def make() -> None:
    """Makes the archive, in about half a minute; does nothing where there is one."""
    from headgate.storage import warmup
    from headgate.storage.spark import spark_session

    target = path()
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
