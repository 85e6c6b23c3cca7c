"""The system catalogs of a node: PostgreSQL 15's relations in an embedded DuckDB file, and the queries on them.

`catalog` opens the file. `layout` defines its content. `relation`, `publication`, `subscription`, `slot`, `origin`, `role`, `database`,
`namespace` and `history` provide typed access over a DuckDB cursor. `query` evaluates SQL on system relations.
"""
