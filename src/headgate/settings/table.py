"""The definitions of all settings of a node.

Most are PostgreSQL 15's own (``postgresql.csv``, copied from pg_settings by ``tools/dump_settings.py``). They have PostgreSQL's
types, bounds, units and descriptions, because clients set and query them. `NODE_DEFAULTS` has the defaults that differ,
`_OWN` the settings that only a node has. Settings whose name has a dot are not here: ``spark.…`` is passed to Spark, and any
other is a placeholder in which applications may store a value.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from importlib import resources

import headgate
from headgate.settings.definition import SettingContext, SettingDefinition, SettingKind, Value

OWN_CATEGORY = "headgate"
VERSION = "15.18"
VERSION_NUMBER = 150018
IN_FILE = frozenset({"server_version"})
"""INTERNAL settings that headgate.conf may set, for the next start: the release that a node reports to PostgreSQL's subscribers."""

# Where a node's default is not PostgreSQL's (docs/compatibility.md gives the reasons).
NODE_DEFAULTS: Mapping[str, str] = {
    "client_connection_check_interval": "500",
    "client_encoding": "UTF8",
    "data_checksums": "off",
    "default_text_search_config": "pg_catalog.english",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "log_timezone": "UTC",
    "max_logical_replication_workers": "64",
    "max_prepared_transactions": "64",
    "max_replication_slots": "64",
    "max_stack_depth": "2048",
    "max_wal_senders": "64",
    "max_worker_processes": "72",
    "server_encoding": "UTF8",
    "server_version": f"{VERSION} (headgate {headgate.__version__})",
    "server_version_num": str(VERSION_NUMBER),
    "TimeZone": "UTC",
    "timezone_abbreviations": "Default",
    "unix_socket_directories": "",
    "wal_level": "logical",
}

# Reported to clients by ParameterStatus when they change (manual, 55.2.7).
_REPORTED = frozenset(
    {
        "application_name",
        "client_encoding",
        "DateStyle",
        "default_transaction_read_only",
        "in_hot_standby",
        "integer_datetimes",
        "IntervalStyle",
        "is_superuser",
        "server_encoding",
        "server_version",
        "session_authorization",
        "standard_conforming_strings",
        "TimeZone",
    }
)
# SET x TO a, b gives one list.
_LISTS = frozenset(
    {
        "DateStyle",
        "listen_addresses",
        "metrics_listen_addresses",
        "local_preload_libraries",
        "search_path",
        "session_preload_libraries",
        "shared_preload_libraries",
        "synchronous_standby_names",
        "temp_tablespaces",
        "unix_socket_directories",
    }
)


def _own(name: str, kind: SettingKind, default: Value, context: SettingContext, description: str, **more: object) -> SettingDefinition:
    return SettingDefinition(name, kind, default, context, OWN_CATEGORY, description, **more)  # type: ignore[arg-type]


_OWN = (
    # PostgreSQL has the next four but hides them from pg_settings.
    SettingDefinition(
        "default_with_oids",
        SettingKind.BOOL,
        False,
        SettingContext.USER,
        "Version and Platform Compatibility / Previous PostgreSQL Versions",
        "WITH OIDS is no longer supported; this can only be false.",
        flags=frozenset({"NO_SHOW_ALL", "NOT_IN_SAMPLE"}),
    ),
    SettingDefinition(
        "is_superuser",
        SettingKind.BOOL,
        False,
        SettingContext.INTERNAL,
        "Reporting and Logging / What to Log",
        "Shows whether the current user is a superuser.",
        flags=frozenset({"NO_SHOW_ALL"}),
        report=True,
    ),
    SettingDefinition(
        "session_authorization",
        SettingKind.STRING,
        "",
        SettingContext.USER,
        "Ungrouped",
        "Sets the session user name.",
        flags=frozenset({"NO_SHOW_ALL"}),
        report=True,
    ),
    SettingDefinition(
        "role",
        SettingKind.STRING,
        "none",
        SettingContext.USER,
        "Ungrouped",
        "Sets the current role.",
        flags=frozenset({"NO_SHOW_ALL", "NO_RESET_ALL"}),
    ),
    _own(
        "spark_master",
        SettingKind.STRING,
        "local[*]",
        SettingContext.POSTMASTER,
        "Sets the Spark cluster that runs the node's Spark jobs.",
        extra='Any master URL of Spark; "local[*]" runs Spark inside the node.',
    ),
    _own(
        "spark_driver_memory",
        SettingKind.INTEGER,
        1024,
        SettingContext.POSTMASTER,
        "Sets the heap of the node's Java virtual machine.",
        unit="MB",
        minimum=512,
        maximum=1048576,
    ),
    _own(
        "spark_driver_jit",
        SettingKind.ENUM,
        "c1",
        SettingContext.POSTMASTER,
        "Sets which compilers the node's Java virtual machine uses.",
        extra='"c1" compiles each method once, soon. "tiered" compiles frequent ones again with C2, which takes time and memory.',
        choices=("c1", "tiered"),
    ),
    _own(
        "driver_query_memory",
        SettingKind.INTEGER,
        65536,
        SettingContext.SUPERUSER,
        "Sets the amount of column data that the node reads without Spark to answer a query of one table.",
        extra="Spark answers a query that reads more. With 0, the node answers only look-ups by key and queries of small tables.",
        unit="kB",
        minimum=0,
        maximum=2097151,
    ),
    _own(
        "warm_up",
        SettingKind.BOOL,
        True,
        SettingContext.POSTMASTER,
        "Prepares for the first statements in the background after the node has started.",
        extra="The first statements are faster, but each start costs some seconds of CPU time.",
    ),
    _own(
        "statement_statistics",
        SettingKind.INTEGER,
        5000,
        SettingContext.POSTMASTER,
        "Sets the maximum number of statements tracked by pg_stat_statements.",
        extra="Corresponds to pg_stat_statements.max of PostgreSQL's extension. 0 disables it.",
        minimum=0,
        maximum=1_000_000,
    ),
    _own(
        "column_mapping",
        SettingKind.BOOL,
        True,
        SettingContext.POSTMASTER,
        "Allows tables to use Delta's column mapping.",
        extra="Not all readers of Delta Lake support it. If it is off, dropping, renaming or changing the type of a column is rejected.",
    ),
    _own(
        "deletion_vectors",
        SettingKind.BOOL,
        True,
        SettingContext.POSTMASTER,
        "Allows new tables to use Delta's deletion vectors.",
        extra="Not all readers of Delta Lake support them. If it is off, UPDATE and DELETE rewrite the files of changed rows.",
    ),
    _own(
        "array_storage",
        SettingKind.ENUM,
        "text",
        SettingContext.POSTMASTER,
        "Sets whether new array columns are stored as PostgreSQL's text or as Delta arrays.",
        extra="Delta arrays have one dimension and a lower bound of 1. Such a column rejects other arrays.",
        choices=("text", "array"),
    ),
    _own(
        "data_location",
        SettingKind.STRING,
        "",
        SettingContext.POSTMASTER,
        "Sets the directory or object-store prefix that contains the tables.",
        extra="Empty means base/ in the data directory. Each node needs its own location, such as s3a://bucket/prefix.",
    ),
    _own(
        "data_location_endpoint",
        SettingKind.STRING,
        "",
        SettingContext.POSTMASTER,
        "Sets the address of the object store that data_location names.",
        extra="Empty means the provider's default.",
    ),
    _own(
        "data_location_region",
        SettingKind.STRING,
        "",
        SettingContext.POSTMASTER,
        "Sets the region of the object store that data_location names.",
    ),
    _own(
        "data_location_credentials",
        SettingKind.STRING,
        "",
        SettingContext.POSTMASTER,
        "Sets the source of the credentials for the object store.",
        extra="env:NAME[,NAME...] names environment variables that hold them, file:/path a file. Empty means the usual chain.",
    ),
    _own(
        "data_location_cache_size",
        SettingKind.INTEGER,
        1024,
        SettingContext.POSTMASTER,
        "Sets the maximum disk space for cached files of an object store.",
        unit="MB",
        minimum=16,
        maximum=2147483647,
    ),
    _own(
        "ignore_lost_commits",
        SettingKind.BOOL,
        False,
        SettingContext.POSTMASTER,
        "Starts a node whose catalog is older than its tables.",
        extra="Commits after that catalog are lost. Use it for one start, if no newer catalog exists.",
    ),
    _own(
        "max_statement_size",
        SettingKind.INTEGER,
        65536,
        SettingContext.SUPERUSER,
        "Sets the maximum length of an SQL statement.",
        extra="A longer statement is rejected before it is read. Parameters and COPY data do not count.",
        unit="kB",
        minimum=64,
        maximum=131072,
    ),
    _own(
        "apply_batch_rows",
        SettingKind.INTEGER,
        1_000_000,
        SettingContext.SIGHUP,
        "Sets the maximum number of changes in one batch of an apply worker.",
        extra="A transaction is never split. A larger transaction is one batch.",
        minimum=1,
        maximum=2147483647,
    ),
    _own(
        "apply_batch_size",
        SettingKind.INTEGER,
        262144,
        SettingContext.SIGHUP,
        "Sets the maximum size of the received messages in one batch of an apply worker.",
        unit="kB",
        minimum=64,
        maximum=2147483647,
    ),
    _own(
        "apply_batch_delay",
        SettingKind.INTEGER,
        0,
        SettingContext.SIGHUP,
        "Sets how long an apply worker collects transactions before it writes them.",
        extra="0 writes what has arrived as soon as the batch before is done.",
        unit="ms",
        minimum=0,
        maximum=3600000,
    ),
    _own(
        "small_batch_rows",
        SettingKind.INTEGER,
        75_000,
        SettingContext.SIGHUP,
        "Sets the maximum number of changes in a batch that is applied without a Spark job.",
        extra="0 gives all batches to Spark: it looks up and writes the rows, and evaluates every row filter.",
        minimum=0,
        maximum=2147483647,
    ),
    _own(
        "history_retention",
        SettingKind.INTEGER,
        0,
        SettingContext.SIGHUP,
        "Sets how long the histories of subscribed tables keep changes.",
        extra="A history file is removed when all its changes are older. 0 keeps all changes.",
        unit="s",
        minimum=0,
        maximum=2147483647,
    ),
    _own(
        "segment_disk_limit",
        SettingKind.INTEGER,
        4096,
        SettingContext.SIGHUP,
        "Sets the maximum disk space of each subscription for changes that are received but not yet applied.",
        extra="At the limit the receiver waits, and the publisher retains its log. -1 means no limit.",
        unit="MB",
        minimum=-1,
        maximum=2147483647,
    ),
    _own(
        "verify_snapshot_timeout",
        SettingKind.INTEGER,
        3_600_000,
        SettingContext.USER,
        "Sets the maximum time that headgate.verify() holds a snapshot at the publisher.",
        extra="The remaining tables use another snapshot. A table that takes longer is skipped. 0 means no limit.",
        unit="ms",
        minimum=0,
        maximum=2147483647,
    ),
    _own(
        "file_retention",
        SettingKind.INTEGER,
        604800,
        SettingContext.SIGHUP,
        "Sets how long obsolete files are retained for readers outside the node.",
        extra="0 removes them at the next checkpoint.",
        unit="s",
        minimum=0,
        maximum=2147483647,
    ),
    # of 18
    _own(
        "idle_replication_slot_timeout",
        SettingKind.INTEGER,
        0,
        SettingContext.SIGHUP,
        "Sets the duration a replication slot can remain idle before it is invalidated.",
        unit="s",
        minimum=0,
        maximum=2147483647,
    ),
    _own(
        "metrics_listen_addresses",
        SettingKind.STRING,
        "localhost",
        SettingContext.POSTMASTER,
        "Sets the host name or IP address(es) on which metrics are served.",
        extra="Connections are not authenticated. Has no effect if metrics_port is 0.",
    ),
    _own(
        "metrics_port",
        SettingKind.INTEGER,
        0,
        SettingContext.POSTMASTER,
        "Sets the TCP port on which metrics are served over HTTP.",
        extra="0 serves none.",
        minimum=0,
        maximum=65535,
    ),
    _own(
        "metrics_tables",
        SettingKind.INTEGER,
        1000,
        SettingContext.SIGHUP,
        "Sets the maximum number of subscribed tables with their own metrics.",
        extra="The totals of a subscription always include all tables.",
        minimum=0,
        maximum=1000000,
    ),
    _own(
        "copy_workers_per_table",
        SettingKind.INTEGER,
        2,
        SettingContext.SIGHUP,
        "Sets how many connections read one table during its initial copy.",
        minimum=1,
        maximum=64,
    ),
)


def _read(row: Mapping[str, str]) -> SettingDefinition:
    name, kind = row["name"], SettingKind(row["vartype"])
    bare = SettingDefinition(
        name=name,
        kind=kind,
        default="",
        context=SettingContext(row["context"]),
        category=row["category"],
        description=row["short_desc"],
        extra=row["extra_desc"],
        unit=row["unit"],
        choices=tuple(row["enumvals"].split("|")) if kind is SettingKind.ENUM else (),
        flags=frozenset(row["flags"].split()),
        report=name in _REPORTED,
        is_list=name in _LISTS,
    )
    fields = {key: getattr(bare, key) for key in bare.__dataclass_fields__}
    if kind in {SettingKind.INTEGER, SettingKind.REAL}:
        number = int if kind is SettingKind.INTEGER else float
        fields |= {"minimum": number(row["min_val"]), "maximum": number(row["max_val"])}
    default = NODE_DEFAULTS.get(name, row["boot_val"])
    if kind is SettingKind.BOOL:
        fields["default"] = default == "on"
    elif kind in {SettingKind.INTEGER, SettingKind.REAL}:
        fields["default"] = number(default)
    else:
        fields["default"] = default
    return SettingDefinition(**fields)


@functools.cache
def definitions() -> Mapping[str, SettingDefinition]:
    """Return all settings by their name in lower case, in the order of `pg_settings` (by name, ignoring case)."""
    with (resources.files("headgate.settings") / "postgresql.csv").open(encoding="utf-8") as rows:
        settings = [_read(row) for row in csv.DictReader(rows)]
    settings += _OWN
    return {setting.name.lower(): setting for setting in sorted(settings, key=lambda setting: setting.name.lower())}


def find(name: str) -> SettingDefinition | None:
    """Return the setting of that name, ignoring case, or None if there is none."""
    return definitions().get(name.lower())
