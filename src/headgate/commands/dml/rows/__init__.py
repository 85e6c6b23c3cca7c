"""Rows on their way into a table: few in the driver or many in Spark, checked, numbered, spread over partitions, written.

Called by the statements of `dml`, by COPY FROM and, for the rows that are applied, by `commands.subscription`. What must hold: what the
driver holds of a statement does not grow with its rows (`many_rows`), and its error is that of its first row (`first_error`).
"""
