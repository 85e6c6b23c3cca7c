"""The format number of a data directory. This module has no imports, so that the command line can read it quickly."""

FORMAT = 4
"""In hg.counter of the catalog and in HG_VERSION, which said 1 while hg.counter said 1 or 2. A node refuses another one.

Who raises it adds a step to `upgrade`, and a directory that the version before has made to tests/catalog/formats.
"""
