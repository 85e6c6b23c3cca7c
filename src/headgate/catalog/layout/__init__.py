"""What is in the catalog's file when it is made and when it is opened.

`bootstrap` is initdb's part, `macros` are written anew at each opening, `wal` looks after a power failure; `format` has the number of the
layout, which `headgate upgrade` raises. Called by `catalog` and the command line.
"""
