"""The logical replication messages (manual, 55.9): one by one (`codec`) and in bulk (`decode`, `encode`).

Knows bytes and Arrow, and nothing of connections, tables or Spark. The walsender writes with it, the subscriber reads.
"""
