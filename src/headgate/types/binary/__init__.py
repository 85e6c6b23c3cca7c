"""The binary forms of PostgreSQL's types on whole columns: receive and send functions, and the framing of COPY BINARY.

`binary` is the entry point, for COPY, pgoutput with ``binary = true`` and clients that request binary results.
"""
