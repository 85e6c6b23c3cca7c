"""A column's name as Spark's SQL and `F.col` read it. Called wherever a column of a table is named: users choose these names."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name in backticks, which Spark takes for nothing else.

    >>> quoted("a.b`")
    '`a.b```'
    """
    return "`" + name.replace("`", "``") + "`"
