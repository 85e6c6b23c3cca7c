"""A session and the statements that concern only it: transaction blocks, settings, cursors, prepared statements, LISTEN (manual, part VI).

A session is created for each connection after authentication. Invariant: commands never commit; the session does (`transaction_block`).
"""
