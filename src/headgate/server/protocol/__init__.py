"""The frontend/backend protocol 3.0: messages, startup, simple and extended query, portals, COPY (manual, chapter 55).

A connection's thread runs this code between the socket and the session. Invariant: a client's message can end only its own session.
"""
