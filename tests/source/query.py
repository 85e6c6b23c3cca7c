"""A program with plain PySpark and pyspark_headgate alone, as a user would write it: a query into a table, or a read; run by `test_source`.

    python query.py '{"mode": "stream", "options": {…}, "sink": "delta", "folder": "…", "jars": "…", "once": true}'

It prints one line of JSON: the rows that were read, or the number of micro-batches, or the error that ended the query.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def session(jars: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.driver.memory", "1g").config("spark.driver.host", "127.0.0.1")
    if jars:
        builder = builder.config("spark.driver.extraClassPath", jars).config("spark.databricks.delta.snapshotPartitions", "2")
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def stream(spark: SparkSession, wanted: dict[str, Any]) -> dict[str, Any]:
    folder, sink = wanted["folder"], wanted["sink"]
    frame = spark.readStream.format("headgate").options(**wanted["options"]).load()
    writer = frame.writeStream.format(sink).option("checkpointLocation", f"{folder}/checkpoint").option("path", f"{folder}/rows")
    if sink == "delta":
        writer = writer.option("mergeSchema", "true")
    writer = writer.trigger(availableNow=True) if wanted.get("once", True) else writer.trigger(processingTime="100 milliseconds")
    query = writer.start()
    query.awaitTermination()
    return {"batches": len(query.recentProgress), "rows": sum(each.numInputRows for each in query.recentProgress)}


def rows(frame: DataFrame) -> dict[str, Any]:
    return {"schema": frame.schema.simpleString(), "rows": [row.asDict(recursive=True) for row in frame.collect()]}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    spark = session(wanted.get("jars", ""))
    try:
        if wanted["mode"] == "stream":
            said = stream(spark, wanted)
        elif wanted["mode"] == "read":
            said = rows(spark.read.format("headgate").options(**wanted["options"]).load())
        elif wanted["mode"] == "at":
            import pyspark_headgate

            with pyspark_headgate.at(spark, wanted["url"]) as tables:
                said = {"lsn": tables.lsn, "counts": {name: frame.count() for name, frame in sorted(tables.items())}}
        else:
            said = rows(spark.read.format(wanted["sink"]).load(f"{wanted['folder']}/rows"))
    except Exception as error:  # noqa: BLE001 (the test judges it)
        said = {"error": str(error)}
    print("SAID " + json.dumps(said, default=str), flush=True)


if __name__ == "__main__":
    main()
