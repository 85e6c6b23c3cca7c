"""Comparison of a subscription's tables with the publisher's, at one position of the publisher's log, while both sides work.

    digest        the comparison of a table: the texts that are hashed, the queries of both sides, the difference of two digests (no I/O)
    publisher     the publisher at the position L of a slot that is created for this, and its changes after L
    changed       the rows that changed between L and the position up to which this node has applied, according to the stream
    stored        the node's tables as one transaction sees them: the same digests and rows, on Spark
    description   the columns, filters and key by which a published table is compared
    verification  the sequence of the steps
    difference    the same for a table that is reconciled: the necessary changes, as a changes frame

Called by `headgate.verify()` (`server.function.own_function`) and, through it, by ``headgate verify``. Traced: the slot is created at L
= 0/50 and its snapshot is opened. This node has applied up to 0/40. When its worker has passed 0/50, a transaction begins here: it sees
everything of the publisher up to M = 0/58 (the origin's progress, which is committed with the rows). The slot's stream lists the rows that
changed between L and M. All others are the same at L and at M, so the digests exclude the changed ones on both sides and must be equal. For
the changed ones the stream has their values at M, which are compared with the rows here.

The server creates a `difference` for the subscriber's table sync (`subscriber.synchronization.reconciliation`), which has its own slot and
snapshot.

Invariant: a comparison writes nothing on either side. The publisher drops the snapshot and the slot with the connection, however it
ends.
"""
