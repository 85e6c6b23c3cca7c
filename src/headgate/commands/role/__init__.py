"""Roles, their objects and privileges, and the settings stored for them: CREATE ROLE, GRANT, ALTER ROLE … SET (manual, chapter 22).

Called by `execute`. `commands.privilege` checks what a role may do, before a command changes anything.
"""
