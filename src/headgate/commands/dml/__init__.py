"""INSERT, UPDATE, DELETE and MERGE: rows on their way into a table and out of it, checked as PostgreSQL checks them (manual, chapter 6).

Called by `execute`, `new_rows` also by COPY FROM. What must hold: rows are staged in the session's transaction, and a statement that fails
has staged none.
"""
