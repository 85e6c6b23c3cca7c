"""The state of subscriptions at one moment, as data: `report` fills it, and `headgate status`, JSON and metrics render it.

Times are seconds since 1970, LSNs are text. The module imports nothing else, because the command line loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something that keeps a node from doing what it should; `kind` is one of `server.monitoring.problem.KINDS`."""

    kind: str
    subject: str
    message: str
    to_do: str | None


@dataclass(frozen=True)
class LeftOut:
    """A published table that is not in the subscription, and how many of its changes were left out."""

    table: str
    changes: int


@dataclass(frozen=True)
class OtherType:
    """A column whose type on the publisher (`there`) differs from its type on this node (`here`)."""

    column: str
    there: str
    here: str | None


@dataclass(frozen=True)
class Unfilled:
    """A column in which `rows` rows lack the value that the publisher has."""

    column: str
    rows: int


@dataclass(frozen=True)
class FailureReport:
    """The last error of a subscription, and what to do about it."""

    time: float
    table: str | None
    sqlstate: str
    advice: str
    message: str
    detail: str | None
    hint: str | None
    context: str | None


@dataclass(frozen=True)
class CopyReport:
    """A copy in progress; `estimated_rows` is the publisher's estimate, None if it has none."""

    table: str
    rows: int
    bytes: int
    estimated_rows: int | None
    rows_per_second: float
    seconds_left: float | None
    still_seconds: float


@dataclass(frozen=True)
class SubscriptionReport:
    """A subscription. `types` and `unfilled` are the columns that are not as the publisher has them."""

    name: str
    database: str
    publications: tuple[str, ...]
    state: str
    starved_of: str | None
    problems: tuple[Problem, ...]
    missing_publications: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    types: tuple[OtherType, ...]
    unfilled: tuple[Unfilled, ...]
    tables: int
    tables_synced: int
    tables_waiting: tuple[str, ...]
    tables_resync: Mapping[str, str]
    table_states: Mapping[str, int]
    copies: tuple[CopyReport, ...]
    copied_rows: int
    copied_bytes: int
    applied_transactions: int
    applied_rows: int
    applied_bytes: int
    batches: int
    seconds: Mapping[str, float]
    skipped_rows: int
    conflicts: Mapping[str, int]
    received_lsn: str | None
    applied_lsn: str | None
    applied_at: float | None
    connected: bool
    lag_bytes: int | None
    lag_seconds: float | None
    failing: bool
    last_error: FailureReport | None
    apply_errors: int
    sync_errors: int
