"""The content of the catalog file when it is created and when it is opened.

`bootstrap` is called by initdb. `macros` are installed at each opening. `wal` repairs the log after a power failure. `format` has the
number of the layout, which `headgate upgrade` raises. Called by `catalog` and the command line.
"""
