"""Applying changes: a stream's segments become changes of local tables, one commit with the origin's progress (worker.c).

The apply worker and table syncs call it. `apply` makes the attempts, and `rows` writes the changes. Invariant: a transaction is applied
once, whatever stops it.
"""
