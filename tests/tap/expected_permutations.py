"""The permutations of PostgreSQL's isolation tests that have other results on a node, with their reasons.

`DIFFERENT` has regular expressions by spec. They are searched in the names of a permutation's steps and in what the node prints for it.
`NOT_RUN` has specs without a permutation that can run. `ADAPTED` has SQL that nodes do not support, and the SQL that is sent in its place;
a permutation with a step that is removed does not run.
"""

from __future__ import annotations

ADVISORY = "advisory lock functions are not called for the rows of a table"
ROW_LOCKS = "row locks lock the table"

ADAPTED: dict[str, dict[str, str]] = {
    "merge-join": {r"EXPLAIN \(.*?NOT MATCHED THEN INSERT[^;]*;": "SELECT 1;"},
}

DIFFERENT: dict[str, dict[str, str]] = {
    "async-notify": {r"bignotify": "pg_notify is not called for the rows of a table"},
    "detach-partition-concurrently-1": {
        r"s1exec2": "DETACH PARTITION CONCURRENTLY does not wait, and REPEATABLE READ then has no partition"
    },
    "drop-index-concurrently-1": {r"explaini": "EXPLAIN of EXECUTE is not supported"},
    "fk-snapshot": {r"s1brr s2brc s2ip2": "a foreign key under REPEATABLE READ accepts a newer parent"},
    "lock-committed-keyupdate": {r"pg_advisory": ADVISORY},
    "lock-committed-update": {r"pg_advisory": ADVISORY},
    "lock-update-delete": {r"pg_advisory": ADVISORY},
    "multiple-cic": {r"": "functions that need the session are not called in an index"},
    "nowait-2": {r"s2b s1b": ROW_LOCKS},
    "nowait-4": {r"": ADVISORY},
    "nowait-5": {r"": ADVISORY},
    "partition-drop-index-locking": {r"s3getlocks": "pg_locks has the locks of a node"},
    "skip-locked": {r"": ROW_LOCKS},
    "skip-locked-2": {r"": ROW_LOCKS},
    "skip-locked-3": {r"": ROW_LOCKS},
    "skip-locked-4": {r"": ADVISORY},
    "tuplelock-update": {r"": ADVISORY},
}

_HALF_WAY = "DETACH PARTITION CONCURRENTLY does not wait, so it cannot be cancelled half-way"
_NOT_EXAMINED = "not examined"

NOT_RUN: dict[str, str] = {
    "cluster-conflict": "CLUSTER",
    "cluster-conflict-partition": "CLUSTER",
    "deadlock-parallel": _NOT_EXAMINED,
    "detach-partition-concurrently-3": _HALF_WAY,
    "detach-partition-concurrently-4": _HALF_WAY,
    "eval-plan-qual": "ctid, and functions that need the session with columns of an outer query",
    "horizons": "it counts the buffers of a plan, and VACUUM",
    "inherit-temp": "temporary tables that inherit from permanent ones are not supported",
    "insert-conflict-specconflict": "functions that need the session are not called in an index",
    "intra-grant-inplace-db": "it needs a database of a fixed name",
    "plpgsql-toast": "it examines TOAST, with fields of type record",
    "predicate-gin": _NOT_EXAMINED,
    "predicate-gist": _NOT_EXAMINED,
    "predicate-hash": _NOT_EXAMINED,
    "prepared-transactions": _NOT_EXAMINED,
    "prepared-transactions-cic": _NOT_EXAMINED,
    "read-only-anomaly-2": "a node rejects the transaction at COMMIT, which the spec does not send",
    "read-only-anomaly-3": "a DEFERRABLE transaction does not wait",
    "reindex-concurrently-toast": _NOT_EXAMINED,
    "reindex-schema": "its steps need a schema that another permutation has left",
    "serializable-parallel": _NOT_EXAMINED,
    "serializable-parallel-2": _NOT_EXAMINED,
    "serializable-parallel-3": _NOT_EXAMINED,
    "stats": "pg_stat_force_next_flush",
    "temp-schema-cleanup": "objects in pg_temp that are not tables",
    "vacuum-no-cleanup-lock": "a node has no VACUUM",
}
