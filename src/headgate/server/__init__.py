"""The server of a node: start-up, authentication, simple and extended query, COPY, sessions."""
