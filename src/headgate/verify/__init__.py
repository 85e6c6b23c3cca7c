"""Whether the tables of a subscription are what the publisher has: compared at one position of the publisher's log, while both sides work.

    digest        how a table is compared: the texts that are hashed, the queries of both sides, what two digests differ in (no I/O)
    publisher     the publisher at the position L of a slot that is made for it, and what it changes behind L
    changed       what a stream says of the rows that have changed between L and the position to which this node has applied
    stored        the node's tables as one transaction sees them: the same digests and rows, on Spark
    description   how a published table is compared
    verification  the order of it all
    difference    the same for a table that is made equal: what must be changed, as a changes frame

Called by `headgate.verify()` (`server.function.verify_function`) and, through it, by ``headgate verify``. Traced: the slot is made at L =
0/50, its snapshot opened. This node has applied up to 0/40; when its worker has passed 0/50, a transaction begins here: it sees everything
of the publisher up to M = 0/58 (the origin's progress, which is committed with the rows). The slot's stream tells which rows were changed
between L and M. All others are the same at L and at M, so the digests leave out the changed ones on both sides and must be equal; of the
changed ones the stream has told what they are at M, which is compared with what is here.

`difference` is made by the server for the subscriber's table sync (`subscriber.synchronization.reconciliation`), which has a slot and a
snapshot of its own.

What must hold: nothing is written on either side by a comparison; the publisher's snapshot and slot go with the connection, however it
ends.
"""
