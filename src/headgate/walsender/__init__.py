"""The walsender of a node: replication commands and the stream of one slot (manual, 55.4 and 55.5)."""
