"""The compiler to the catalogs' engine: typed tree → DuckDB's SQL, beside the one to Spark (the files are named alike).

Called by `commands.query.catalog`. What must hold: an expression means in DuckDB what it means in PostgreSQL, or is refused with 0A000.
"""
