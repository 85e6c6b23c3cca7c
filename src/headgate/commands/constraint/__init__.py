"""Keys, checks and references of rows: looked at as rows are written, at once or at the end of the transaction (manual, 5.4).

Called by `dml`, by ALTER TABLE for the rows that are there, and by SET CONSTRAINTS; constraints are declared in `table`. What must hold: a
row that violates a constraint is in no commit, whichever statement or worker wrote it.
"""
