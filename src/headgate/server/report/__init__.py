"""The state of the node as its clients read it: pg_stat_… and system views, metrics, the status file (manual, chapter 28).

Sessions and `Node` call it. It contains no row values or passwords.
"""
