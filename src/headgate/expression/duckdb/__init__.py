"""The compiler from typed trees to DuckDB's SQL, for the catalogs. Its modules have the same names as those of the Spark compiler.

Called by `commands.query.catalog`. Invariant: an expression has PostgreSQL's meaning in DuckDB, or is refused with 0A000.
"""
