"""PL/pgSQL: the body of a function as a tree, and its interpreter.

`compiler` creates the tree of a body, with libpg_query's grammar. `interpreter` runs it. The interpreter calls a `Host` to evaluate SQL
expressions and statements. `commands.function` implements it for a session. This package does not use sessions, tables or Spark itself.
"""
