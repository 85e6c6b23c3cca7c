"""Databases and schemas, and commands for objects of every kind: comments, maintenance, restoring dumps (manual, chapter 23 and 5.9).

Called by `execute`. Invariant: no object is dropped while a remaining object depends on it (`commands.dependency`).
"""
