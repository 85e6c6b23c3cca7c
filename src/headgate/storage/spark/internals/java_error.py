"""Java's stack behind an exception of PySpark.

PySpark turns Java's exceptions of Spark into its own classes (`pyspark.errors.exceptions.captured`, since 3.4). Their public methods return
the condition and the message. The stack is in the private attribute `_stackTrace`.
"""

from __future__ import annotations

from pyspark.errors.exceptions.captured import CapturedException


def stack(error: BaseException) -> str | None:
    """Return Java's stack, as Java prints it, or None if the exception is not one that PySpark has turned into its own class."""
    return (error._stackTrace or "") if isinstance(error, CapturedException) else None
