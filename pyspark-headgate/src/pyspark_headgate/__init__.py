"""Published changes of tables of a headgate node as a data source of Spark: ``format("headgate")``.

Spark imports packages whose name begins with ``pyspark_`` and takes their `DefaultSource`, so nothing has to be registered.
"""

from pyspark_headgate.connection import complete_until, drop_slot, wait
from pyspark_headgate.snapshot import at
from pyspark_headgate.source import HeadgateSource

DefaultSource = HeadgateSource

__all__ = ["DefaultSource", "HeadgateSource", "at", "complete_until", "drop_slot", "wait"]
