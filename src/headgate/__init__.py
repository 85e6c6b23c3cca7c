"""headgate: PostgreSQL logical replication for the lakehouse.

A node speaks PostgreSQL's wire protocol, keeps its tables in Delta Lake and does its data work on Spark. The floors of
the package, top first, are listed in ``pyproject.toml`` (import-linter checks them) and told in ``docs/architecture.md``.
"""

__version__ = "0.1.0"
