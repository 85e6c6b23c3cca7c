"""The pipeline of changes: filter, net, merge.

A stage takes changes frames: rows ``commit_lsn, seq, position, op, old, new`` of one table (`storage.feed`), from a received stream also
``unchanged`` (names of the columns whose TOAST value was not sent). Filter is functions on Spark's frames. Net and what
follows it are functions on Arrow tables, which the driver calls (`merge`) or the tasks of one Spark job (`tasks`).
"""
