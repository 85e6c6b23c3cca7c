"""What a node tells of itself: log, pg_stat_… and system views, metrics, the status file (manual, chapter 28 and 20.8).

Filled by sessions, workers and threads, read by clients, `headgate status` and Prometheus. No row values and no passwords come here.
"""
