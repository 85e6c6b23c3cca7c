"""Parse tree to typed expression: names, operators, functions and types resolved as PostgreSQL's parser does (manual, chapter 10).

`binder` is the entry, for row filters, queries and commands alike. Invariant: what is bound has one meaning, whoever evaluates it.
"""
