"""The frontend/backend protocol 3.0: messages, start-up, simple and extended query, portals, COPY (manual, chapter 55).

A connection's thread works here between the socket and the session. What must hold: no message of a client ends anything but its session.
"""
