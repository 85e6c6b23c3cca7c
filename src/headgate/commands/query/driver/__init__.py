"""Queries and lookups of few rows that the driver answers itself, without a Spark job.

`commands.query.engine` calls it before the planner, and UPDATE and DELETE call it too. If Arrow cannot give PostgreSQL's exact answer, the
statement must run on Spark.
"""
