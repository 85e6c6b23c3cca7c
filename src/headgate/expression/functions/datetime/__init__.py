"""Functions of dates, times and intervals on single values (manual, 9.8 and 9.9; timestamp.c, date.c, formatting.c).

Called through `expression.spark.vectorised` by the modules of `expression.implementation`.
"""
