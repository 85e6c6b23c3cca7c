"""The tables of a node in catalogs of other programs.

`register` keeps external tables in step for ``headgate register``, through an `external_catalog.ExternalCatalog`: `hive_metastore`,
`glue` or `unity`. `external_catalog.registered` chooses the names, also for the SQL of ``headgate tables --sql``.
"""
