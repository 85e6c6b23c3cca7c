"""The binary forms of PostgreSQL's types on whole columns: receive and send functions, and COPY BINARY's framing.

`binary` is the entry, for COPY, pgoutput with ``binary = true`` and clients that ask for binary results.
"""
