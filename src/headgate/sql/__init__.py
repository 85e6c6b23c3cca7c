"""sql: PostgreSQL's parse tree (postgast, the grammar of PostgreSQL itself), names, type names and option lists.

Stands on `types` only; used by catalog, expression, rowfilter, commands and the server.
"""
