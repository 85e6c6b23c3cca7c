"""The text forms of PostgreSQL's types on whole columns: input functions, type modifiers, output functions.

`text` is the entry, for COPY, INSERT, pgoutput and every result; a module for each family of types. Times are `types.datetime`'s.
"""
