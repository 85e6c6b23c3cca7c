"""Databases and schemas, and what all objects in them have in common: comments, dependencies, maintenance, dumps that come in.

Called by `execute`; `dependency` by every DROP. What must hold: nothing goes on which something else that stays depends.
"""
