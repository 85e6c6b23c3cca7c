"""Functions, operators and casts as Spark Columns: a module for each type or chapter of the manual (chapter 9).

Each has BUILDERS, which `expression.spark.call` looks up by PostgreSQL's names. What must hold: a Column gives PostgreSQL's value and
raises PostgreSQL's error; what Spark has not runs in Python over Arrow, by the function of the same name in `expression.functions`.
"""
