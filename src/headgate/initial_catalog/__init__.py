"""PostgreSQL 15's system catalogs as initdb leaves them: a new catalog's contents; the built-in types, operators and functions.

`rows` reads them. They stand in ``data``, a Parquet file for each catalog that has rows, which tools/dump_catalog.py writes from a
real server.
"""
