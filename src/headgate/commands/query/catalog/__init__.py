"""Queries on the system catalogs: SELECT on system relations becomes DuckDB SQL with PostgreSQL's types.

`query.answer` is the entry, called by the commands for queries that read system relations only. What must hold: a user reads no more than
PostgreSQL's views show, and what has no exact SQL is refused with 0A000.
"""
