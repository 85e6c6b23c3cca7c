"""One Delta table: its log, files, deletion vectors, statistics, and the versions that other writers commit.

Called by the transactions of `storage.transaction` and by readers of the change feed. Invariant: a version is written once, marked as
the node's, and durable before the transaction log names it.
"""
