"""Transaction support for statements: READ ONLY, LOCK TABLE, and statements that run in a subtransaction.

Called by `execute`, by the server inside a block, and by replication for its own statements. A command never commits: the session does.
"""
