"""Who may connect: pg_hba.conf, pg_ident.conf, passwords, certificates, TLS (manual, chapter 21).

`authentication` runs the exchange, called at a connection's start-up; `access` holds the files as they were last read without an error.
"""
