"""The compiler to Spark: a typed expression becomes a Column with exactly PostgreSQL's meaning, or is refused with 0A000.

`compiler` is the entry point. The functions of each type are in `expression.implementation`. Called by the query planner, row filters and
constraints.
"""
