"""The apply worker: a stream's segments become changes of local tables, one commit with the origin's progress (worker.c).

`apply_worker` leads, `apply` makes the attempts, for table syncs too. `rows` writes the changes. Invariant: a transaction is applied once,
whatever stops it.
"""
