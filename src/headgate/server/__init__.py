"""The server of a node: startup, authentication, simple and extended query, COPY, sessions."""
