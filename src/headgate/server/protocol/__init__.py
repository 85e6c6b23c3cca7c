"""The parts of the frontend/backend protocol 3.0: messages, connections, portals, rows on the wire (manual, chapter 55)."""
