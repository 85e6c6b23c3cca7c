"""PostgreSQL's functions, operators and casts, as a node has them: a module for each type or chapter of the manual (chapter 9).

Each has `IMPLEMENTATIONS`; `implementation` says what an entry is, `implementations` is all of them. What must hold: every form of an
entry gives PostgreSQL's value, and raises PostgreSQL's error or, in the driver's Arrow, leaves it to Spark.
"""
