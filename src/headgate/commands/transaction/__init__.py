"""What statements ask of the session's transaction: READ ONLY, LOCK TABLE, and statements tried in a subtransaction.

Called by `execute`, by the server inside of a block, and by what replication does by itself. A command never commits: the session does.
"""
