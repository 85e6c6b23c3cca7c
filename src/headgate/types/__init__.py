"""PostgreSQL's types: their oids, modifiers, text and binary forms, and how each is stored in Arrow, Spark and Delta.

The lowest floor that knows what a value is. `registry` names the types, `typmod` their modifiers, `base` describes them, `storage` gives
their Arrow and Spark types; `text` and `binary` are PostgreSQL's input and output functions on whole columns, `copy_text` the framing of
COPY, `resultset` what a query hands to the server. docs/types.md says how each type is stored and why.
"""
