"""Views: CREATE, ALTER and DROP VIEW, their queries and how these are printed (manual, CREATE VIEW).

Called by `execute`; a view is read where a query names it (`query.clause.from_clause`).
"""
