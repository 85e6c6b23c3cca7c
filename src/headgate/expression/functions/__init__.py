"""PostgreSQL's functions on single values, in Python, for functions without an exact Spark expression (manual, chapter 9).

Called through `expression.spark.vectorised` in Spark's workers, and for constants when a call is planned. Arguments and results are the
texts of PostgreSQL's output functions. This package does not depend on Spark.
"""
