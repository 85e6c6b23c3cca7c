"""The pipeline of changes on Spark: filter, project, net, merge.

A stage is a function from changes frame to changes frame: rows ``commit_lsn, seq, position, op, old, new`` of one table
(`storage.feed`), from a received stream also ``unchanged`` (names of the columns whose TOAST value was not sent).
"""
