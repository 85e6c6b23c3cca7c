"""The command line: the program ``headgate`` and its commands, such as ``headgate start``.

`main` defines the commands and their options. Each command's work is in a module of its name, except that `control` has the commands of
pg_ctl. Modules that are slow to import (duckdb, pyspark) are imported inside functions, so that ``headgate status`` answers at once.
"""
