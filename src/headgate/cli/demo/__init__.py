"""The demonstration: one table is replicated PostgreSQL → node A → node B → PostgreSQL, with a filter at each node.

`headgate demo` (and `make demo`) runs it. `servers` starts the servers, and `course` has the table, runs the
steps and the live workload, and shows the progress.
"""
