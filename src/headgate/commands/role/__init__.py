"""Roles, what they own and may do, and the settings stored for them: CREATE ROLE, GRANT, policies (manual, chapter 22, 5.7 and 5.8).

Called by `execute`; `privilege` by every command before it changes something, `row_security` for the rows that a role sees and writes.
"""
