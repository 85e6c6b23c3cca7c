"""Expressions: bound to PostgreSQL's types, printed as pg_get_expr prints them, compiled to a Spark Column.

Used by row filters, WHERE, SET, CHECK, DEFAULT, generated columns, SELECT lists, ON, HAVING and ORDER BY. `binder` builds the
typed tree of `node` from a parse tree, `deparse` prints it, `serialization` stores it, `spark.compiler` compiles it.
"""
