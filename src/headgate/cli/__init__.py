"""The command line: ``headgate initdb | start | stop | restart | reload | status | run | demo``.

`main` has the commands' options; the work is done in `initdb`, `control` (what pg_ctl does), `run` (what the postmaster's main
does) and `demo`. Modules that are heavy to import (duckdb, pyspark) are imported where they are needed: ``headgate status``
must answer at once.
"""
