"""Relations in the catalogs: pg_class and all that hangs on it: columns, defaults, indexes, constraints, partitions, views.

`relation` reads, the others write, inside the transaction of whoever calls them (the commands). What must hold: who may do it and what
depends on it has been asked before.
"""
