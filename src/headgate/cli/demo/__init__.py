"""The demonstration: one filtered table on its way PostgreSQL → node A → node B → PostgreSQL.

`headgate demo` (and `make demo`) runs it. The package holds the servers it starts (`servers`), the table and the live
workload (`orders`), what a person sees (`display`) and the course of events (`course`).
"""
