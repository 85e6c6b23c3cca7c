"""Delta tables, the node's transaction log, snapshots by LSN.

`engine.Engine` is the entry point: it holds the Spark session, the log and the lock of each table, and begins transactions.
Used by `changes`, `publisher`, `subscriber`, `commands` and `server`.
"""
