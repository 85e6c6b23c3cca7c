"""Spark jobs: their groups, cancellation and errors, persisted rows, and the exchange of rows between the driver and the tasks.

Used by code that runs a job. The session that runs the jobs, with its jars and workers, is in `application`.
"""
