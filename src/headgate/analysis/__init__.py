"""The analysis of a query: parse tree and catalog → a typed `Query` (PostgreSQL's parse analysis).

Called by `commands.query`. Nothing here reads rows or needs an engine: an engine runs the `Query` afterwards.
"""
