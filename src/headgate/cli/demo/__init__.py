"""The demonstration: one table is replicated PostgreSQL → node A → node B → PostgreSQL, with a filter at each node.

`headgate demo` (and `make demo`) runs it. `servers` starts the servers, `orders` has the table and the live workload, and
`course` runs the steps and shows the progress.
"""
