"""Write rows into a table, few in the driver or many in Spark: check them, assign sequence numbers, route them to partitions, append them.

Called by the statements of `dml`, by COPY FROM and, for applied rows, by `commands.subscription`. Invariant: the memory that the
driver needs for a statement does not grow with its rows (`many_rows`), and the statement's error is that of its first row (`first_error`).
"""
