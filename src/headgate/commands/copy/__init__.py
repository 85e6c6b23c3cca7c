"""COPY between a table or query and the client: its options, and rows out of and into the client's bytes (manual, COPY).

Called by `execute`; the server moves the bytes.
"""
