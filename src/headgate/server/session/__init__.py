"""A session and the statements that concern it alone: blocks, settings, cursors, prepared statements, LISTEN (manual, part VI).

Made for each connection when it is authenticated. What must hold: commands never commit, the session does, by `transaction_block`.
"""
