"""Evaluate the sensor of daily partitions twice, as Dagster's daemon does, and print the requested partitions.

`test_sensors` runs it: dagster_partitions.py START URL
"""

import sys

from dagster import DailyPartitionsDefinition, Definitions, build_sensor_context, job, op

from pyspark_headgate.dagster import complete_partitions_sensor

partitions = DailyPartitionsDefinition(sys.argv[1])


@op
def report() -> None:
    pass


@job(partitions_def=partitions)
def daily() -> None:
    report()


sensor = complete_partitions_sensor(name="complete", url=sys.argv[2], table="public.t", partitions=partitions, timeout=5, job=daily)
repository = Definitions(jobs=[daily], sensors=[sensor]).get_repository_def()
requested, cursor = [], None
for _ in range(2):
    result = sensor.evaluate_tick(build_sensor_context(cursor=cursor, sensor_name="complete", repository_def=repository))
    requested.append([request.partition_key for request in result.run_requests or ()])
    cursor = result.cursor or cursor
print("SAID", *requested, sep="\t", flush=True)
