"""The text forms of PostgreSQL's types on whole columns: input functions, type modifiers, output functions.

`text` is the entry point, for COPY, INSERT, pgoutput and all results; each type family has a module. `types.datetime` has those of times.
"""
