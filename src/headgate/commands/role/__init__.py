"""Roles, what they own and are granted, and the settings stored for them: CREATE ROLE, GRANT, ALTER ROLE … SET (manual, chapter 22).

Called by `execute`. Whether a role may do something is asked of `commands.privilege`, by every command before it changes something.
"""
