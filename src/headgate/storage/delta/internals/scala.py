"""Scala's options and sequences, and singletons (`object`), which Py4J does not know: it has Java's interfaces only."""

from __future__ import annotations

from collections.abc import Iterable

from py4j.java_gateway import JavaObject, JavaPackage
from pyspark.sql import SparkSession

from headgate.storage.spark.internals import gateway


class Scala:
    """The constructors of Scala's values, looked up once for a session. Relies on `scala.jdk.javaapi`, since Scala 2.13 (Spark 4)."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = gateway.jvm(spark.sparkContext)
        self._converters = self._jvm.scala.jdk.javaapi.CollectionConverters
        self.none = singleton(self._jvm.scala, "None$")
        self.some = self._jvm.scala.Some

    def seq(self, items: Iterable[JavaObject]) -> JavaObject:
        values = self._jvm.java.util.ArrayList()
        for item in items:
            values.add(item)
        return self._converters.asScala(values).toSeq()

    def list(self, seq: JavaObject) -> list[JavaObject]:
        """Convert a Scala Seq to a list by index: a Java iterator ends with an exception, which costs PySpark a dozen calls."""
        items = self._jvm.java.util.ArrayList(self._converters.asJava(seq))
        return [items.get(index) for index in range(items.size())]


def singleton(package: JavaPackage, name: str) -> JavaObject:
    """Return the instance of a Scala `object` in a package. Its name ends with ``$``."""
    return getattr(getattr(package, name), "MODULE$")
