"""Quoting of column names for Spark's SQL and `F.col`. Used for all columns of tables, because users choose these names."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return the name in backticks, which Spark reads as an identifier.

    >>> quoted("a.b`")
    '`a.b```'
    """
    return "`" + name.replace("`", "``") + "`"
