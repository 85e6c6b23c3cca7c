"""The options of CREATE and ALTER SUBSCRIPTION (PostgreSQL 15's parse_subscription_options).

In addition, there are origin, run_as_owner, password_required and failover of PostgreSQL 16 and 17, and headgate's own create_tables,
schema_evolution, history and copy_data = reconcile (docs/compatibility.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.catalog.replication import subscription_history
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.sql.options import Option, conflicting, options

CREATABLE = {
    "connect",
    "enabled",
    "create_slot",
    "slot_name",
    "copy_data",
    "synchronous_commit",
    "binary",
    "streaming",
    "two_phase",
    "disable_on_error",
    "origin",
    "run_as_owner",
    "password_required",
    "failover",
    "create_tables",
    "schema_evolution",
    "history",
}
LATER = ("origin", "run_as_owner", "password_required", "failover", "create_tables", "schema_evolution", "history")
"""Options that PostgreSQL 15 does not have."""
ALTERABLE = {"slot_name", "synchronous_commit", "binary", "streaming", "disable_on_error", *LATER}
_COMMITS = {"local", "remote_write", "remote_apply", "on", "off", "true", "false", "yes", "no", "1", "0"}
_NAME_BYTES = 63


@dataclass
class SubscriptionOptions:
    """The values of the options, specified or default. `given` has the names of the specified ones."""

    connect: bool = True
    enabled: bool = True
    create_slot: bool = True
    slot_name: str | None = None
    copy_data: bool = True
    copies_difference: bool = False
    """copy_data = reconcile: tables that are added already have rows, of which only those that differ are copied."""
    refresh: bool = True
    reconcile: bool = False
    synchronous_commit: str = "off"
    binary: bool = False
    streaming: bool = False
    two_phase: bool = False
    disable_on_error: bool = False
    origin: str = "any"
    run_as_owner: bool = True
    password_required: bool = True
    failover: bool = False
    create_tables: bool = False
    schema_evolution: str = "none"
    history: str = subscription_history.NONE
    lsn: Lsn | None = None
    given: set[str] = field(default_factory=set)


def read(nodes: Iterable[pb.Node], supported: set[str]) -> SubscriptionOptions:
    """Read the options of a command that supports `supported`. Raise 42601 for other options and for duplicates."""
    subscription_options = SubscriptionOptions()
    for option in options(nodes):
        if option.name not in supported:
            raise PostgresError("42601", f'unrecognized subscription parameter: "{option.name}"')
        if option.name in subscription_options.given:
            raise conflicting(option)
        subscription_options.given.add(option.name)
        if option.name == "copy_data" and (option.value or "").lower() == "reconcile":
            subscription_options.copies_difference = True
            continue
        setattr(subscription_options, option.name, _value(option))
    return subscription_options


def _value(option: Option) -> str | bool | Lsn | None:
    if option.name == "slot_name":
        name = option.text()
        if name == "none":
            return None
        check_slot_name(name)
        return name
    if option.name == "synchronous_commit":
        text = option.text()
        if text.lower() not in _COMMITS:
            raise PostgresError(
                "22023",
                f'invalid value for parameter "synchronous_commit": "{text}"',
                hint="Available values: local, remote_write, remote_apply, on, off.",
            )
        return text
    if option.name == "origin":
        text = option.text()
        if text.lower() not in ("none", "any"):
            raise PostgresError("22023", f'unrecognized origin value: "{text}"')
        return text.lower()
    if option.name == "schema_evolution":
        text = option.text()
        if text.lower() not in ("none", "add_columns", "follow"):
            raise PostgresError(
                "22023", f'invalid value for parameter "schema_evolution": "{text}"', hint="Available values: none, add_columns, follow."
            )
        return text.lower()
    if option.name == "history":
        return _history(option)
    if option.name == "lsn":
        text = option.text()
        if text == "none":
            return None
        lsn = Lsn.parse(text)
        if not lsn:
            raise PostgresError("22023", f"invalid WAL location (LSN): {lsn}")
        return lsn
    if option.name == "streaming":
        return _streaming(option)
    return option.boolean()


def _history(option: Option) -> str:
    """Return the tables whose changes are recorded: all, none, or a list of names. Raise 22023 for an invalid value."""
    try:
        return subscription_history.ALL if option.boolean() else subscription_history.NONE
    except PostgresError:
        text = option.text()
    if subscription_history.named(text) is None:
        hint = "Give true, false, or the names of tables, separated by commas."
        raise PostgresError("22023", f'invalid value for parameter "history": "{text}"', hint=hint)
    return text


def _streaming(option: Option) -> bool:
    """Return whether large transactions are streamed. `parallel` (PostgreSQL 16; the default in 18) counts as on."""
    if option.value is not None and option.value.lower() == "parallel":
        return True
    try:
        return option.boolean()
    except PostgresError as error:
        raise PostgresError("42601", f'{option.name} requires a Boolean value or "parallel"') from error


def check_slot_name(name: str) -> None:
    """Raise 42602 or 42622 for an invalid slot name."""
    if not name:
        raise PostgresError("42602", f'replication slot name "{name}" is too short')
    if len(name.encode()) > _NAME_BYTES:
        raise PostgresError("42622", f'replication slot name "{name}" is too long')
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise PostgresError(
            "42602",
            f'replication slot name "{name}" contains invalid character',
            hint="Replication slot names may only contain lower case letters, numbers, and the underscore character.",
        )


def check_exclusive(options: SubscriptionOptions) -> None:
    """Raise 42601 for options of CREATE SUBSCRIPTION that exclude each other. With connect = false, three defaults become false."""

    def exclusive(first: str, second: str) -> PostgresError:
        return PostgresError("42601", f"{first} and {second} are mutually exclusive options")

    if not options.connect:
        for name in ("enabled", "create_slot", "copy_data"):
            if name in options.given and getattr(options, name):
                raise exclusive("connect = false", f"{name} = true")
        options.enabled = options.create_slot = options.copy_data = False
    if "slot_name" in options.given and options.slot_name is None:
        for name in ("enabled", "create_slot"):
            if getattr(options, name):
                if name in options.given:
                    raise exclusive("slot_name = NONE", f"{name} = true")
                raise PostgresError("42601", f"subscription with slot_name = NONE must also set {name} = false")
