"""Java gets its environment variables without a setenv in this process, which could crash another thread that calls getenv."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

from headgate.storage.spark.application import spark_session


def test_variables_of_java_are_seen_by_python_and_by_its_children_alone() -> None:
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    script = "import os; print(os.environ['PYSPARK_PYTHON'], os.environ['HEADGATE_VARIABLE'])"
    before = dict(os.environ)

    with spark_session._environment({"HEADGATE_VARIABLE": "value", "PYSPARK_PYTHON": "python of tasks"}):
        child = subprocess.run([sys.executable, "-c", script], env=dict(os.environ), capture_output=True, text=True, check=True)
        seen_by_c = getenv(b"HEADGATE_VARIABLE")

    assert child.stdout == "python of tasks value\n"
    assert seen_by_c is None
    assert dict(os.environ) == before
