"""Databases and schemas, and what concerns objects of every kind: comments, maintenance, dumps that come in (manual, chapter 23 and 5.9).

Called by `execute`. What must hold: nothing goes on which something else that stays depends (`commands.dependency`).
"""
