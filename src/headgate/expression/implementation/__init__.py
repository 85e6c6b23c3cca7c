"""The implementations of PostgreSQL's functions, operators and casts: a module for each type or chapter of the manual (chapter 9).

Each module has a table `IMPLEMENTATIONS`. `implementation` defines an entry, `implementations` merges the tables. Invariant: every
form of an entry returns PostgreSQL's value, and raises PostgreSQL's error. An Arrow form in the driver may leave a call to Spark instead.
"""
