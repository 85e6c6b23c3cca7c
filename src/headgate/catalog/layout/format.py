"""The format number of a data directory. This module has no imports, so that the command line can read it quickly."""

FORMAT = 5
"""The number in hg.counter of the catalog and in HG_VERSION (HG_VERSION was 1 while hg.counter was 1 or 2).

A node refuses a directory with another number. Raising it requires a new step in `upgrade`, and a directory in tests/catalog/formats
that was made by the previous version.
"""
