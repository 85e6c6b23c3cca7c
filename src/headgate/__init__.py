"""headgate: PostgreSQL logical replication for the lakehouse.

A node speaks PostgreSQL's wire protocol, keeps its tables in Delta Lake and does its data work on Spark. The floors of
the package are listed in ``pyproject.toml``, top first (import-linter checks them), and described in ``docs/architecture.md``.
"""

__version__ = "0.1.0"
