"""INSERT, UPDATE, DELETE and MERGE: write and remove rows, with PostgreSQL's checks (manual, chapter 6).

Called by `execute`. COPY FROM also uses `new_rows`. Invariant: rows are staged in the session's transaction, and a failed statement
leaves no staged rows.
"""
