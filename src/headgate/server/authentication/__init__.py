"""Client authentication: pg_hba.conf, pg_ident.conf, passwords, the names in certificates (manual, chapter 21).

`authentication` runs the exchange during the startup of a connection. `access` holds the files as they were last read without an error.
"""
