"""PostgreSQL's types: their OIDs, modifiers, text and binary forms, and their stored forms in Arrow, Spark and Delta.

The lowest layer that interprets values. `registry` names the types, `typmod` their modifiers, `base` describes them, and `storage` defines
their Arrow and Spark types. `text` and `binary` are PostgreSQL's input and output functions on whole columns, `copy_text` the framing of
COPY, `resultset` the result of a query for the server. docs/types.md explains the stored form of each type.
"""
