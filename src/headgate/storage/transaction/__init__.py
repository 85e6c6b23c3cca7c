"""Transactions over several tables and the catalog: staged, prepared, committed as one entry of the node's log.

`transaction` is the entry, begun by `storage.engine`. What must hold: a commit is whole or not there at all, over a crash too.
"""
