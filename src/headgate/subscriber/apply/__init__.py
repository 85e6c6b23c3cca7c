"""The apply worker: a stream's segments become changes of local tables, one commit with the origin's progress (worker.c).

`apply_worker` leads, `apply` does the work, for table syncs too. Invariant: a transaction is applied once, whatever stops it.
"""
