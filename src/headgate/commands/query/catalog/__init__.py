"""Queries on the system catalogs: SELECT on system relations becomes DuckDB SQL with PostgreSQL's types.

The commands call `query.answer` for queries that read system relations only. A user must not read more than PostgreSQL's views show. A
query without an exact SQL equivalent must raise 0A000.
"""
