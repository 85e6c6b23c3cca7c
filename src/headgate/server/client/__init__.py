"""The conversation with one client: startup, the message loop, simple and extended query, results, the log of statements (manual, 55.2).

A connection's thread runs `startup.serve`. Invariant: a client's message can end only its own session.
"""
