"""A DAG with the sensor, as a user would write it. `test_sensors` copies it into a folder of DAGs and runs it."""

import os

from airflow.sdk import DAG

from pyspark_headgate.airflow import CompleteUntilSensor

with DAG("report", schedule=None) as dag:
    CompleteUntilSensor(
        task_id="complete", connection_id="node", table="public.t", until=os.environ["UNTIL"], poke_interval=0.5, timeout=60
    )

if __name__ == "__main__":
    run = dag.test()
    [task] = run.get_task_instances()
    print("SAID", run.state, task.xcom_pull(task_ids="complete"), sep="\t", flush=True)
