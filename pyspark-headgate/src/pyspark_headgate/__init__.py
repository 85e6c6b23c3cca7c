"""Published changes of tables of a headgate node as a data source of Spark: ``format("headgate")``.

Spark imports packages whose name begins with ``pyspark_`` and takes their `DefaultSource`, so nothing has to be registered. The parts that
need Spark are imported when they are first used, so that the sensors (`airflow`, `dagster`) work where Spark is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_headgate.connection import complete_until, drop_slot, wait

if TYPE_CHECKING:
    from pyspark_headgate.snapshot import at
    from pyspark_headgate.source import HeadgateSource
    from pyspark_headgate.source import HeadgateSource as DefaultSource

__all__ = ["DefaultSource", "HeadgateSource", "at", "complete_until", "drop_slot", "wait"]


def __getattr__(name: str) -> object:
    if name == "at":
        from pyspark_headgate.snapshot import at

        return at
    if name in ("DefaultSource", "HeadgateSource"):
        from pyspark_headgate.source import HeadgateSource

        return HeadgateSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
