"""The parts of the frontend/backend protocol 3.0: messages, connections, TLS, portals, rows on the wire (manual, chapter 55)."""
