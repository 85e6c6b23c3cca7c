"""Connections to publishers (PostgreSQL or a node): commands, the stream, and the segments into which the stream is divided."""
