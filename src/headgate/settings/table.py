"""The definitions of all settings of a node.

Most are PostgreSQL 15's own (``postgresql.csv``, copied from pg_settings by ``tools/dump_settings.py``). They have PostgreSQL's
types, bounds, units and descriptions, because clients set and query them. `NODE_DEFAULTS` has the defaults that differ.
``headgate.csv`` has the settings that only a node has, one of PostgreSQL 18, and four that PostgreSQL hides from pg_settings. Settings
whose name has a dot are not here: ``spark.…`` is passed to Spark, and any other is a placeholder in which applications may store a value.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from importlib import resources

import headgate
from headgate.settings.definition import SettingContext, SettingDefinition, SettingKind

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


def _read(row: Mapping[str, str]) -> SettingDefinition:
    name, kind = row["name"], SettingKind(row["vartype"])
    default = NODE_DEFAULTS.get(name, row["boot_val"])
    number = {SettingKind.INTEGER: int, SettingKind.REAL: float}.get(kind)
    return SettingDefinition(
        name=name,
        kind=kind,
        default=number(default) if number else default == "on" if kind is SettingKind.BOOL else default,
        context=SettingContext(row["context"]),
        category=row["category"],
        description=row["short_desc"],
        extra=row["extra_desc"],
        unit=row["unit"],
        minimum=number(row["min_val"]) if number else None,
        maximum=number(row["max_val"]) if number else None,
        choices=tuple(row["enumvals"].split("|")) if kind is SettingKind.ENUM else (),
        flags=frozenset(row["flags"].split()),
        report=name in _REPORTED,
        is_list=name in _LISTS,
    )


@functools.cache
def definitions() -> Mapping[str, SettingDefinition]:
    """Return all settings by their name in lower case, in the order of `pg_settings` (by name, ignoring case)."""
    settings: list[SettingDefinition] = []
    for name in ("postgresql.csv", "headgate.csv"):
        with (resources.files("headgate.settings") / name).open(encoding="utf-8") as rows:
            settings += map(_read, csv.DictReader(rows))
    return {setting.name.lower(): setting for setting in sorted(settings, key=lambda setting: setting.name.lower())}


def find(name: str) -> SettingDefinition | None:
    """Return the setting of that name, ignoring case, or None if there is none."""
    return definitions().get(name.lower())
