"""Table synchronization: the first copy of a table, or its reconciliation, and the hand-over to the apply worker (tablesync.c).

A thread for each table, started by the apply worker through the registry. Invariant: rows are copied as of the slot's snapshot, and no
change behind it is lost.
"""
