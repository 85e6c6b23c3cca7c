"""The one meaning of an expression: bound to PostgreSQL's types, printed as pg_get_expr prints it, compiled to a Spark Column.

Used by row filters, WHERE, SET, CHECK, DEFAULT, generated columns, SELECT lists, ON, HAVING and ORDER BY. `binder` makes the
typed tree of `node` from a parse tree, `deparse` prints it, `serialization` stores it, `spark.compiler` hands it to Spark.
"""
