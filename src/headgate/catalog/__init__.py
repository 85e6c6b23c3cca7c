"""The system catalogs of a node: PostgreSQL 15's relations in an embedded DuckDB file, and the queries on them.

`catalog` opens the file, `layout` is what is in it; `relation`, `publication`, `subscription`, `slot`, `origin`, `role`, `database`,
`namespace` and `history` are typed access over a DuckDB cursor; `query` answers SQL on system relations.
"""
