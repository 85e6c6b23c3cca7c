"""COPY between a table or query and the client: its options, and the conversion between rows and the client's bytes (manual, COPY)."""
