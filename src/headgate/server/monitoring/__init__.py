"""Monitoring of a node: log, pg_stat_… and system views, metrics, the status file (manual, chapter 28 and 20.8).

Sessions, workers and threads provide the data; clients, `headgate status` and Prometheus read it. It contains no row values or passwords.
"""
