"""Partitioned tables: bounds, ATTACH and DETACH, partition constraints (manual, 5.11).

Called by the statements on tables and by `dml`. `headgate.storage.routing` routes the rows.
"""
