"""Relations in the catalogs: pg_class with columns, defaults, indexes, constraints, partitions and views.

`relation` reads, the other modules write, inside the transaction of the calling command. Invariant: the caller has checked privileges
and dependent objects.
"""
