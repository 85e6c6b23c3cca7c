"""The system relations that queries can read: their names and columns, and for views PostgreSQL's definition or a Provider.

There are three kinds: catalogs (physical tables), views over catalogs (`View`: PostgreSQL's text of the definition, from pg_rewrite, which
is rewritten like a query), and dynamic relations, whose rows the caller's `Provider` supplies: pg_stat_activity, pg_settings, pg_locks, … A
dynamic relation without a Provider has no rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.catalog import physical
from headgate.initial_catalog.rows import rows, schemas
from headgate.types import registry

Provider = Callable[[], Iterable[Sequence[object]]]
"""Returns the rows of a dynamic relation, each a sequence of Python values in the order of `columns(name)`: int for integers, oids and
pg_lsn, str for text and types stored as text, bool, float, datetime (aware, or naive in UTC), timedelta, list for arrays."""

EXPANDED = frozenset(
    "pg_roles pg_shadow pg_user pg_group pg_tables pg_views pg_matviews pg_indexes pg_publication_tables pg_rules pg_policies"
    " pg_user_mappings pg_stat_user_tables pg_stat_sys_tables pg_available_extensions pg_available_extension_versions"
    " pg_sequences".split()
)
"""Views of pg_catalog that are evaluated by PostgreSQL's definition, as all views of information_schema are."""

FROM_CATALOG = {
    "pg_replication_slots": "SELECT s.slot_name, s.plugin, 'logical'::text AS slot_type, s.datoid, d.datname AS database, s.temporary,"
    " false AS active, NULL::int4 AS active_pid, NULL::xid AS xmin, NULL::xid AS catalog_xmin, s.restart_lsn, s.confirmed_flush_lsn,"
    " 'reserved'::text AS wal_status, NULL::int8 AS safe_wal_size, s.two_phase"
    " FROM hg.replication_slot s LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datoid",
    "pg_replication_origin_status": "SELECT p.roident AS local_id, o.roname AS external_id, p.remote_lsn, p.local_lsn"
    " FROM hg.origin_progress p JOIN pg_catalog.pg_replication_origin o ON o.roident = p.roident",
    "pg_stat_subscription_stats": "SELECT s.oid AS subid, s.subname, coalesce(t.apply_error_count, 0::int8) AS apply_error_count,"
    " coalesce(t.sync_error_count, 0::int8) AS sync_error_count, t.stats_reset"
    " FROM pg_catalog.pg_subscription s LEFT JOIN hg.subscription_stats t ON t.subid = s.oid",
}
"""Dynamic views whose rows are in the catalog file, used without a Provider. They may read the node's own tables as hg.x."""

NODE_SCHEMA = "hg"
NODE_TABLES: Mapping[str, tuple[tuple[str, int], ...]] = {
    "replication_slot": (
        ("slot_name", registry.NAME), ("plugin", registry.NAME), ("datoid", registry.OID), ("temporary", registry.BOOL),
        ("restart_lsn", registry.PG_LSN), ("confirmed_flush_lsn", registry.PG_LSN), ("two_phase", registry.BOOL),
    ),
    "origin_progress": (("roident", registry.OID), ("remote_lsn", registry.PG_LSN), ("local_lsn", registry.PG_LSN)),
    "subscription_stats": (
        ("subid", registry.OID), ("apply_error_count", registry.INT8), ("sync_error_count", registry.INT8),
        ("stats_reset", registry.TIMESTAMPTZ),
    ),
}  # fmt: skip


OWN_VIEWS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "pg_stat_subscription_rel": (
        ("subid", registry.OID), ("subname", registry.NAME), ("relid", registry.OID), ("schemaname", registry.NAME),
        ("relname", registry.NAME), ("srsubstate", registry.CHAR), ("srsublsn", registry.PG_LSN), ("rows_copied", registry.INT8),
        ("rows_applied", registry.INT8), ("rows_skipped", registry.INT8), ("changes_left_out", registry.INT8),
        ("resync", registry.TEXT),
    ),
    "pg_stat_statements": (
        ("userid", registry.OID), ("dbid", registry.OID), ("toplevel", registry.BOOL), ("queryid", registry.INT8), ("query", registry.TEXT),
        ("plans", registry.INT8), ("total_plan_time", registry.FLOAT8), ("min_plan_time", registry.FLOAT8),
        ("max_plan_time", registry.FLOAT8), ("mean_plan_time", registry.FLOAT8), ("stddev_plan_time", registry.FLOAT8),
        ("calls", registry.INT8), ("total_exec_time", registry.FLOAT8), ("min_exec_time", registry.FLOAT8),
        ("max_exec_time", registry.FLOAT8), ("mean_exec_time", registry.FLOAT8), ("stddev_exec_time", registry.FLOAT8),
        ("rows", registry.INT8),
        ("shared_blks_hit", registry.INT8), ("shared_blks_read", registry.INT8), ("shared_blks_dirtied", registry.INT8),
        ("shared_blks_written", registry.INT8), ("local_blks_hit", registry.INT8), ("local_blks_read", registry.INT8),
        ("local_blks_dirtied", registry.INT8), ("local_blks_written", registry.INT8), ("temp_blks_read", registry.INT8),
        ("temp_blks_written", registry.INT8), ("blk_read_time", registry.FLOAT8), ("blk_write_time", registry.FLOAT8),
        ("temp_blk_read_time", registry.FLOAT8), ("temp_blk_write_time", registry.FLOAT8),
        ("wal_records", registry.INT8), ("wal_fpi", registry.INT8), ("wal_bytes", registry.NUMERIC),
        ("jit_functions", registry.INT8), ("jit_generation_time", registry.FLOAT8), ("jit_inlining_count", registry.INT8),
        ("jit_inlining_time", registry.FLOAT8), ("jit_optimization_count", registry.INT8), ("jit_optimization_time", registry.FLOAT8),
        ("jit_emission_count", registry.INT8), ("jit_emission_time", registry.FLOAT8),
    ),
}  # fmt: skip
"""Dynamic relations that PostgreSQL does not have, or only in an extension. They have no rows in pg_class."""
_FIRST_OWN = 9900
"""The first of their oids, in the range that PostgreSQL reserves for development."""


_LATER: Mapping[str, tuple[tuple[int, str, int], ...]] = {
    "pg_replication_slots": (
        (18, "two_phase_at", registry.PG_LSN), (17, "inactive_since", registry.TIMESTAMPTZ), (16, "conflicting", registry.BOOL),
        (17, "invalidation_reason", registry.TEXT), (17, "failover", registry.BOOL), (17, "synced", registry.BOOL),
    ),
    "pg_publication": ((18, "pubgencols", registry.CHAR),),
}  # fmt: skip
"""Columns of later releases, after those of 15 in their order, with the first release that has them. Shown if the node announces it."""


@dataclass(frozen=True)
class SystemColumn:
    """A column of a system relation. A domain of information_schema is replaced by its base type."""

    name: str
    type_oid: int
    typmod: int
    attnum: int


@dataclass(frozen=True)
class SystemRelation:
    """A relation of pg_catalog or information_schema. `definition` is a view's query in PostgreSQL's SQL."""

    oid: int
    schema: str
    name: str
    kind: str
    columns: tuple[SystemColumn, ...]
    definition: str | None = None

    @property
    def physical(self) -> physical.PhysicalTable | None:
        return physical.tables().get(self.name) if self.schema == "pg_catalog" and self.kind == "r" else None

    @property
    def expanded(self) -> bool:
        """Whether a query on the relation is expanded to a query on its definition."""
        return self.schema == "information_schema" or self.name in EXPANDED


@functools.cache
def relations() -> Mapping[tuple[str, str], SystemRelation]:
    """Return all tables and views of pg_catalog and information_schema, by schema and name."""
    classes = rows("pg_class", "oid", "relname", "relnamespace", "relkind")
    columns: dict[int, list[SystemColumn]] = {}
    for row in rows("pg_attribute", "attrelid", "attname", "atttypid", "atttypmod", "attnum"):
        if row["attnum"] > 0:
            column = SystemColumn(row["attname"], *_base(row["atttypid"], row["atttypmod"]), row["attnum"])
            columns.setdefault(row["attrelid"], []).append(column)
    rewrite = rows("pg_rewrite", "ev_class", "ev_action", "rulename")
    definitions = {row["ev_class"]: row["ev_action"] for row in rewrite if row["rulename"] == "_RETURN"}
    by_name = {}
    for row in classes:
        if row["relkind"] in "rv":
            sorted_columns = tuple(sorted(columns.get(row["oid"], ()), key=lambda item: item.attnum))
            relation = SystemRelation(
                row["oid"], schemas()[row["relnamespace"]], row["relname"], row["relkind"], sorted_columns, definitions.get(row["oid"])
            )
            by_name[relation.schema, relation.name] = relation
    for oid, (name, listed_own) in enumerate(OWN_VIEWS.items(), _FIRST_OWN):
        own = tuple(SystemColumn(column, kind, -1, place) for place, (column, kind) in enumerate(listed_own, 1))
        by_name["pg_catalog", name] = SystemRelation(oid, "pg_catalog", name, "v", own)
    return by_name


def relation(schema: str, name: str, announced: int) -> SystemRelation | None:
    """Return the relation as in the release that the node announces, or None. `name` may be any text from a client."""
    base = relations().get((schema, name))
    later = [(column, kind) for since, column, kind in _LATER.get(name, ()) if since <= announced]
    if base is None or not later or schema != "pg_catalog":
        return base
    more = (SystemColumn(column, kind, -1, number) for number, (column, kind) in enumerate(later, len(base.columns) + 1))
    return replace(base, columns=(*base.columns, *more))


def columns(name: str) -> tuple[SystemColumn, ...]:
    """Return the columns of a relation of pg_catalog, which are those of a Provider's rows."""
    return relations()["pg_catalog", name].columns


def _base(type_oid: int, typmod: int) -> tuple[int, int]:
    built_in = registry.builtin().find(type_oid)
    if built_in is not None and built_in.kind == registry.TypeKind.DOMAIN:
        return built_in.base, built_in.base_typmod
    return type_oid, typmod
