"""Sequences that belong to columns: starting them again.

Called by TRUNCATE … RESTART IDENTITY, as a statement (commands) and as a message of a publisher (subscriber).
"""

from __future__ import annotations

from headgate.catalog.physical import Cursor, run


def restart_owned(cursor: Cursor, database: int, relation: int) -> None:
    """The next value of each sequence that a column of the table owns is its start value; if the transaction commits."""
    run(
        cursor,
        "UPDATE hg.sequence_state SET is_called = false, last_value = s.seqstart FROM hg.pg_sequence s"
        " WHERE s.dbid = sequence_state.dbid AND s.seqrelid = sequence_state.seqrelid AND sequence_state.dbid = ?"
        " AND sequence_state.seqrelid IN (SELECT d.objid FROM hg.pg_depend d WHERE d.dbid = ? AND d.classid = 1259 AND d.refclassid = 1259"
        " AND d.refobjid = ? AND d.deptype IN ('a', 'i'))",
        [database, database, relation],
    )
