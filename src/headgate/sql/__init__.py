"""sql: PostgreSQL's parse tree (postgast, PostgreSQL's own grammar), names, type names and option lists.

It depends only on `types`. Used by catalog, expression, rowfilter, commands and the server.
"""
