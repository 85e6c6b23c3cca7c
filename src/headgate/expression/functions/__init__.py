"""PostgreSQL's functions on single values, in Python: what Spark has no exact expression for (manual, chapter 9).

Called through `expression.spark.vectorised` in Spark's workers, and when a call of constants is planned. Values come and go as the texts of
PostgreSQL's output functions; nothing here knows Spark.
"""
