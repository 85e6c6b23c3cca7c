"""CREATE, ALTER and DROP TABLE, and CREATE INDEX: columns, keys, parameters, and the rows that an alteration rewrites.

Called by `execute`. `constraint` checks constraints, `partition` handles partitions. Invariant: the catalog and the storage are
changed in one transaction, the session's.
"""
