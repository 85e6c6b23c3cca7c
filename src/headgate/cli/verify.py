"""``headgate verify``: compares the tables of subscriptions with their publishers, by `headgate.verify()` of the running node.

Called by `main`. Prints a line for each table, with its rows, ranges and seconds. Prints one more for each row that differs: its key, the
columns, with --values the values of both sides. The last line has the number of compared tables. Exit code 1 if rows differ (with --repair:
still differ), otherwise 2 if a table was not compared, otherwise 0.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg
import typer
from psycopg.rows import TupleRow, dict_row

from headgate.cli import session
from headgate.cli.message import count, out, show_progress
from headgate.errors import PostgresError
from headgate.sql.names import qualified
from headgate.walreceiver.connection import literal

HERE = "(SELECT oid FROM pg_database WHERE datname = current_database())"
NAMES = f"SELECT subname FROM pg_subscription WHERE subenabled AND subdbid = {HERE} ORDER BY 1"
PAUSE = 0.5
"""The seconds between two checks of tables that are being repaired."""
ATTEMPTS = 3
"""The average number of failures per table's worker after which waiting for them ends."""
_NAMED = "quote_ident(schemaname) || '.' || quote_ident(relname)"
_COPIED = "(resync IS NOT NULL OR srsubstate <> 'r')"
"""Of pg_stat_subscription_rel: a table's name, and whether it is being copied or reconciled."""
Opened = psycopg.Connection[TupleRow]


@dataclass(frozen=True)
class ComparedRow:
    """A row of `headgate.verify()` in its JSON form: a table, or with `key` a row of it that differs."""

    subscription: str
    schema: str
    name: str
    result: str
    key: str | None
    columns: str | None
    rows: int | None
    seconds: float | None
    ranges: int | None
    theirs: str | None
    ours: str | None


def verify(
    data_dir: Path,
    username: str | None,
    database: str,
    subscription: str | None,
    table: str | None,
    *,
    as_json: bool,
    repair: bool = False,
    with_values: bool = False,
    wait: bool = True,
) -> None:
    """Print the differences of one subscription, or of all enabled ones. Raise Exit(1) if there are any, Exit(2) if a table was skipped.

    `wait`: wait first until no table is being copied or reconciled. `with_values`: print the values of both sides. `repair`: reconcile the
    tables that differ (`headgate.reconcile()`), wait for that, and compare them again.
    """
    tell = (lambda _: None) if as_json else out
    results: list[ComparedRow] = []
    with session.opened(data_dir, username, database) as opened:
        names = [subscription] if subscription is not None else [name for (name,) in opened.execute(NAMES.encode()).fetchall()]
        for subscription_name in names:
            if wait:
                _wait_for_copies(opened, subscription_name, table, tell)
            rows = _compare(opened, subscription_name, table, tell, with_values=with_values)
            differing = [qualified(row.schema, row.name) for row in rows if row.key is None and row.result == "different"]
            if repair and differing:
                _repair(opened, subscription_name, differing, tell)
                rows = [row for row in rows if qualified(row.schema, row.name) not in differing]
                rows += [row for name in differing for row in _compare(opened, subscription_name, name, tell, with_values=with_values)]
            results += rows
    if as_json:
        out(json.dumps([asdict(row) for row in results], indent=2))
    else:
        out(_summary([row for row in results if row.key is None]))
    if any(row.result not in ("equal", "skipped") for row in results):
        raise typer.Exit(1)
    if any(row.result == "skipped" for row in results):
        raise typer.Exit(2)


def _compare(opened: Opened, subscription: str, table: str | None, tell: Callable[[str], None], *, with_values: bool) -> list[ComparedRow]:
    results = []
    of = "NULL" if table is None else literal(table)
    with opened.cursor(row_factory=dict_row) as cursor:
        session.show_progress_of(opened, "comparing ")
        cursor.execute(f"SELECT * FROM headgate.verify({literal(subscription)}, {of}, {with_values})".encode())
        show_progress("")
        for row in cursor:
            results.append(ComparedRow(subscription=subscription, **row))
            tell(_line(results[-1]))
    return results


def _wait_for_copies(opened: Opened, subscription: str, table: str | None, tell: Callable[[str], None]) -> None:
    """Wait until no table of an enabled subscription is being copied or reconciled, or until their workers keep failing."""
    only = "" if table is None else f" AND {_NAMED} = {literal(table)}"
    left = (
        f"SELECT {_NAMED} FROM pg_stat_subscription_rel r JOIN pg_subscription s USING (subname)"
        f" WHERE subname = {literal(subscription)} AND subdbid = {HERE} AND subenabled AND {_COPIED}{only} ORDER BY 1"
    )
    failed = f"SELECT sync_error_count FROM pg_stat_subscription_stats WHERE subname = {literal(subscription)}"
    [(before,)] = opened.execute(failed.encode()).fetchall() or [(0,)]
    waiting: list[str] = []
    while now := [name for (name,) in opened.execute(left.encode()).fetchall()]:
        if now != waiting:
            waiting = now
            many = "1 table that is" if len(now) == 1 else f"{len(now)} tables that are"
            named = ", ".join([*now[:3], *(["…"] if len(now) > 3 else [])])
            tell(f"{subscription}: waiting for {many} being copied or reconciled ({named})")
        [(errors,)] = opened.execute(failed.encode()).fetchall() or [(0,)]
        if int(errors) >= int(before) + ATTEMPTS * len(now):
            return
        time.sleep(PAUSE)


def _repair(opened: Opened, subscription: str, tables: Sequence[str], tell: Callable[[str], None]) -> None:
    """Repair tables, and wait until they are equal and stream again. Raise 55000 if their workers fail repeatedly."""
    failed = f"SELECT sync_error_count FROM pg_stat_subscription_stats WHERE subname = {literal(subscription)}"
    [(before,)] = opened.execute(failed.encode()).fetchall()
    for table in tables:
        tell(f"{subscription}  {table}: is made equal")
        opened.execute(f"SELECT headgate.reconcile({literal(subscription)}, {literal(table)})".encode())
    listed = ", ".join(literal(table) for table in tables)
    left = f"SELECT relname FROM pg_stat_subscription_rel WHERE subname = {literal(subscription)} AND {_NAMED} IN ({listed}) AND {_COPIED}"
    while opened.execute(left.encode()).fetchall():
        [(errors,)] = opened.execute(failed.encode()).fetchall()
        if int(errors) >= int(before) + ATTEMPTS * len(tables):
            hint = 'Run "headgate status", which shows the error. The request remains, and the node tries it again.'
            raise PostgresError("55000", f'tables of subscription "{subscription}" could not be made equal', hint=hint)
        time.sleep(PAUSE)


def _summary(tables: Sequence[ComparedRow]) -> str:
    results = Counter(row.result for row in tables)
    skipped = results.pop("skipped", 0)
    differences = ", ".join(f"{results[result]} {result}" for result in sorted(results) if result != "equal")
    compared = f"compared {count(results.total(), 'table')}"
    if not results:
        return f"{compared}, skipped {skipped}" if skipped else compared
    return f"{compared}{f', skipped {skipped}' if skipped else ''}: {differences or 'all rows are equal'}"


def _line(row: ComparedRow) -> str:
    if row.key is not None:
        values = [f"{side} {value}" for side, value in (("there", row.theirs), ("here", row.ours)) if value is not None]
        columns = [f"columns {row.columns}"] if row.columns else []
        return "    " + ", ".join([f"{row.result}: {row.key}", *columns, *values])
    more = f" ({row.columns})" if row.columns else ""
    took = float(row.seconds or 0)
    compared = f"{row.rows} rows, {row.ranges} ranges, {took:.1f} s"
    return f"{row.subscription}  {row.schema}.{row.name}: {row.result}, {compared}{more}"
