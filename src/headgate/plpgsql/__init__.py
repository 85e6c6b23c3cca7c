"""PL/pgSQL: the body of a function as a tree, and its interpreter.

`compiler` makes the tree of a body, with libpg_query's grammar; `interpreter` runs it. What a statement or an expression of SQL gives the
interpreter asks of a `Host`, which `commands.function` makes of a session. Nothing here knows sessions, tables or Spark.
"""
