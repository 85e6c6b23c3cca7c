"""Partitioned tables: bounds, ATTACH and DETACH, what goes down to partitions, which rows belong where (manual, 5.11).

Called by the statements on tables and by `dml`. The rows themselves are routed by `headgate.storage.routing`.
"""
