"""Enforce keys, checks and references when rows are written, at once or at the end of the transaction (manual, 5.4).

Called by `dml`, by ALTER TABLE for existing rows, and by SET CONSTRAINTS. `table` declares constraints. A row that violates a constraint
must never be committed, whichever statement or worker writes it.
"""
