"""Transactions over several tables and the catalog: staged, prepared, committed as one entry of the node's log.

`transaction` is the entry point, begun by `storage.engine`. Invariant: a commit is complete or absent, even after a crash.
"""
