"""The functions of pg_proc from the view of a call: their arguments, results, and the roles that may call them.

Called by the binder and by queries on the catalogs. The rows were dumped from a real server by tools/dump_catalog.py, and are read once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.initial_catalog.rows import rows
from headgate.types import registry as t


@dataclass(frozen=True)
class Procedure:
    """The properties of a function in pg_proc."""

    name: str
    arguments: tuple[int, ...]
    argument_names: tuple[str, ...]
    required: int
    variadic: int
    result: int
    is_set: bool
    outputs: tuple[tuple[str, int], ...]
    granted: frozenset[str] | None = None
    """The roles that may call it. None: PUBLIC."""


OWN_SCHEMA = "headgate"
"""The schema of functions that exist only in headgate. They are not in pg_namespace and pg_proc."""
_SNAPSHOT = (("schema", t.NAME), ("name", t.NAME), ("oid", t.OID), ("path", t.TEXT), ("version", t.INT8), ("lsn", t.PG_LSN))
_VERIFIED = (
    ("schema", t.NAME), ("name", t.NAME), ("result", t.TEXT), ("key", t.TEXT), ("columns", t.TEXT), ("rows", t.INT8), ("seconds", t.FLOAT8),
    ("ranges", t.INT8), ("theirs", t.TEXT), ("ours", t.TEXT),
)  # fmt: skip
_EXPLAINED = (
    ("what", t.TEXT), ("publication", t.NAME), ("present", t.BOOL), ("passes", t.BOOL), ("filter", t.TEXT), ("columns", t.TEXT),
    ("publish", t.TEXT), ("lsn", t.PG_LSN), ("time", t.TIMESTAMPTZ), ("origin", t.TEXT),
)  # fmt: skip
_PUBLICATIONS = (("name", t.NAME), ("reconcile", t.BOOL))
_RANGES = (("from_lsn", t.PG_LSN), ("to_lsn", t.PG_LSN), ("changes", t.INT8), ("altered", t.BOOL))
_TABLE = ((t.TEXT, t.TEXT), ("subscription", "relation"), 2, 0, t.VOID, False, ())
OWN = {
    "headgate.explain_row": Procedure(
        "headgate.explain_row", (t.TEXT, t.TEXT, t.TEXT), ("name", "relation", "key"), 3, 0, t.RECORD, is_set=True, outputs=_EXPLAINED
    ),
    "headgate.publications": Procedure("headgate.publications", (), (), 0, 0, t.RECORD, is_set=True, outputs=_PUBLICATIONS),
    "headgate.reconcile": Procedure("headgate.reconcile", *_TABLE),
    "headgate.resync": Procedure("headgate.resync", *_TABLE),
    "headgate.snapshot": Procedure("headgate.snapshot", (t.PG_LSN,), ("lsn",), 0, 0, t.RECORD, is_set=True, outputs=_SNAPSHOT),
    "headgate.verify": Procedure(
        "headgate.verify",
        (t.TEXT, t.TEXT, t.BOOL),
        ("subscription", "relation", "with_values"),
        1,
        0,
        t.RECORD,
        is_set=True,
        outputs=_VERIFIED,
    ),
    "pg_stat_statements_reset": Procedure(
        "pg_stat_statements_reset", (t.OID, t.OID, t.INT8), ("userid", "dbid", "queryid"), 0, 0, t.VOID, is_set=False, outputs=(),
        granted=frozenset(),
    ),
    "headgate.change_ranges": Procedure(
        "headgate.change_ranges", (t.TEXT, t.TEXT, t.PG_LSN, t.PG_LSN, t.INT8, t.INT8),
        ("publication", "relation", "from_lsn", "to_lsn", "max_rows", "max_ranges"), 5, 0, t.RECORD, is_set=True, outputs=_RANGES,
    ),
    "headgate.wait_for_lsn": Procedure(
        "headgate.wait_for_lsn", (t.TEXT, t.PG_LSN, t.FLOAT8), ("subscription", "lsn", "timeout"), 3, 0, t.BOOL, is_set=False, outputs=(),
    ),
    "headgate.complete_until": Procedure(
        "headgate.complete_until", (t.TEXT, t.FLOAT8), ("relation", "timeout"), 2, 0, t.TIMESTAMPTZ, is_set=False, outputs=(),
    ),
}  # fmt: skip
"""Functions of schema headgate, and functions of PostgreSQL extensions, which are in pg_catalog here. Their oids follow this order."""


PUBLICATION_TABLES = 9790
"""The oid of pg_get_publication_tables(VARIADIC text[]) of PostgreSQL 16 and later. pg_proc has only that of 15."""
_CREATE_SLOT, _SYNC_SLOTS = 9791, 9792
LATER = {
    PUBLICATION_TABLES: Procedure(
        "pg_get_publication_tables", (t.TEXT_ARRAY,), ("pubname",), 0, t.TEXT, t.RECORD, is_set=True,
        outputs=(("pubid", t.OID), ("relid", t.OID), ("attrs", t.INT2VECTOR), ("qual", t.PG_NODE_TREE)),
    ),
    _CREATE_SLOT: Procedure(
        "pg_create_logical_replication_slot", (t.NAME, t.NAME, t.BOOL, t.BOOL, t.BOOL),
        ("slot_name", "plugin", "temporary", "twophase", "failover"), 5, 0, t.RECORD, is_set=False,
        outputs=(("slot_name", t.NAME), ("lsn", t.PG_LSN)),
    ),
    _SYNC_SLOTS: Procedure("pg_sync_replication_slots", (), (), 0, 0, t.VOID, is_set=False, outputs=()),
}  # fmt: skip
"""Functions of later releases: those with the argument `failover`, and those of 17 for standbys."""
FIRST_OWN_OID = 9800
"""The first oid of headgate's own functions, in the range that PostgreSQL reserves for development."""


def called(parts: Sequence[str]) -> str:
    """Return the name of a function in these tables. Functions of schema headgate are qualified."""
    return ".".join(parts[-2:]) if list(parts[:-1]) == [OWN_SCHEMA] else parts[-1]


_COLUMNS = ["oid", "proname", "proargtypes", "proallargtypes", "proargmodes", "proargnames", "pronargdefaults", "prorettype", "proretset",
            "provariadic", "proacl"]  # fmt: skip


@functools.cache
def procedures() -> dict[int, Procedure]:
    """Return pg_proc by oid, with headgate's own functions. Read once."""
    by_oid = {**LATER, **dict(enumerate(OWN.values(), FIRST_OWN_OID))}
    for row in rows("pg_proc", *_COLUMNS):
        modes = row["proargmodes"] or ["i"] * len(row["proargtypes"])
        all_types = row["proallargtypes"] or row["proargtypes"]
        argument_names = row["proargnames"] or [""] * len(all_types)
        outputs = tuple((n, k) for n, k, m in zip(argument_names, all_types, modes, strict=False) if m in "obt")
        inputs = tuple(n for n, m in zip(argument_names, modes, strict=False) if m in "iv")
        required = len(row["proargtypes"]) - row["pronargdefaults"] - (1 if row["provariadic"] else 0)
        by_oid[row["oid"]] = Procedure(
            row["proname"], tuple(row["proargtypes"]), inputs, required, row["provariadic"], row["prorettype"], row["proretset"],
            outputs if row["prorettype"] == t.RECORD else (), _grantees(row["proacl"]),
        )  # fmt: skip
    return by_oid


def outputs(oid: int) -> tuple[tuple[str, int], ...]:
    """Return the names and types of the columns that a function returns by OUT parameters."""
    return procedures()[oid].outputs


@functools.cache
def parameter_names(name: str) -> tuple[str, ...]:
    """Return the parameter names of a function if only one function has this name, otherwise an empty tuple."""
    candidates = [procedure for procedure in procedures().values() if procedure.name in (name, f"{OWN_SCHEMA}.{name}")]
    return candidates[0].argument_names if len(candidates) == 1 and all(candidates[0].argument_names) else ()


def _grantees(items: list[str] | None) -> frozenset[str] | None:
    """Return the roles to which the ACL of a function grants EXECUTE, without its owner. None: PUBLIC."""
    if items is None:
        return None
    names = [item.split("=")[0] for item in items]
    return None if "" in names else frozenset(name for name in names if name.startswith("pg_"))
