"""Queries and look-ups of few rows that the driver answers by itself, without a Spark job.

Called by `commands.query.select` before the planner, and by UPDATE and DELETE. What must hold: where Arrow has not PostgreSQL's exact
answer the statement goes its usual way, over Spark.
"""
