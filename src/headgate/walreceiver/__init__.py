"""A connection to any publisher, PostgreSQL or a node: its commands, its stream, and the segments that the stream is cut into."""
