"""A sensor for Dagster that requests a run for each partition of time that a table of a node is complete for.

Users call it in their definitions. The package does not depend on Dagster: only this module imports it.
"""

from __future__ import annotations

from typing import Any

import psycopg
from dagster import RunRequest, SensorDefinition, SensorEvaluationContext, SensorResult, SkipReason, TimeWindowPartitionsDefinition

from pyspark_headgate.connection import MARGIN, complete_until


def complete_partitions_sensor(
    *, name: str, url: str, table: str, partitions: TimeWindowPartitionsDefinition, timeout: float = 10, **options: Any
) -> SensorDefinition:
    """Return a sensor that requests a run for each partition whose time has passed and whose changes the node has.

    `url`: a connection string of libpq to the node. `table`: schema.name. `timeout`: how many seconds an evaluation waits for a node that
    is behind. `options`: those of SensorDefinition, such as `job`. The first evaluation requests all partitions from their start on.
    """

    def evaluate(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        try:
            moment = complete_until(url, table, timeout)
        except (TimeoutError, psycopg.OperationalError) as error:
            return SkipReason(str(error))
        keys = partitions.get_partition_keys(current_time=moment - MARGIN)
        new = keys[keys.index(context.cursor) + 1 :] if context.cursor in keys else keys
        if not new:
            return SkipReason(f"{table} is complete until {moment.isoformat()}, which ends no new partition")
        return SensorResult([RunRequest(run_key=key, partition_key=key) for key in new], cursor=new[-1])

    return SensorDefinition(name=name, evaluation_fn=evaluate, **options)
