"""The class archive (AppCDS) with which the JVM of a node starts in about half the time.

It fits one Java, one set of jars and one pyspark. `storage.archive` makes it, `spark_session.start` uses it if it exists, and the JVM
ignores it if it does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pyspark

from headgate.errors import PostgresError
from headgate.storage.spark.application.jars import find_jars, own_folder


def path() -> Path:
    try:
        jars = [str(jar) for jar in find_jars()]
    except PostgresError:
        jars = []
    java = os.environ.get("JAVA_HOME") or os.path.realpath(shutil.which("java") or "")
    digest = hashlib.sha256("\n".join([pyspark.__version__, java, *jars]).encode()).hexdigest()[:12]
    return own_folder().parent / f"classes-{digest}.jsa"


def usable() -> bool:
    return path().is_file()
