"""The clauses of a query, a module for each: FROM, WITH, GROUP BY, ORDER BY, LIMIT, FOR UPDATE, subqueries (manual, SELECT).

Called by `commands.query.planner`; each takes and gives parts of a `Plan`, a Spark DataFrame with PostgreSQL's types.
"""
