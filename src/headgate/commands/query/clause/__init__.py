"""The clauses of a query, a module for each: FROM, WITH, GROUP BY, ORDER BY, LIMIT, FOR UPDATE (manual, SELECT).

Called by `commands.query.query_planner`. Each module processes parts of a `Plan`, a Spark DataFrame with PostgreSQL's types.
"""
