"""``headgate verify``: whether the tables of subscriptions are what their publishers have, by `headgate.verify()` of the running node.

Called by `main`. A line for each table, with its rows and seconds, one more for each row that differs (its key, and the columns). Exit
code 1 where rows differ, 0 where none do; a table that was not compared is named and counts as none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from headgate.cli import session
from headgate.cli.message import out
from headgate.walreceiver.connection import literal

HERE = "(SELECT oid FROM pg_database WHERE datname = current_database())"
NAMES = f"SELECT subname FROM pg_subscription WHERE subenabled AND subdbid = {HERE} ORDER BY 1"
FIELDS = ("schema", "name", "result", "key", "columns", "rows", "seconds")


def verify(data_dir: Path, username: str | None, database: str, subscription: str | None, table: str | None, *, as_json: bool) -> None:
    """Prints what differs, of one subscription or of all that are enabled; SystemExit(1) where something does."""
    found: list[dict[str, Any]] = []
    with session.opened(data_dir, username, database) as opened:
        wanted = [subscription] if subscription is not None else [name for (name,) in opened.execute(NAMES.encode()).fetchall()]
        for each in wanted:
            given = literal(each) if table is None else f"{literal(each)}, {literal(table)}"
            for row in opened.execute(f"SELECT * FROM headgate.verify({given})".encode()).fetchall():
                found.append({"subscription": each, **dict(zip(FIELDS, row, strict=True))})
                if not as_json:
                    out(_line(found[-1]))
    if as_json:
        out(json.dumps(found, indent=2))
    if any(row["result"] not in ("equal", "skipped") for row in found):
        raise typer.Exit(1)


def _line(row: dict[str, Any]) -> str:
    if row["key"] is not None:
        return f"    {row['result']}: {row['key']}" + (f", columns {row['columns']}" if row["columns"] else "")
    more = f" ({row['columns']})" if row["columns"] else ""
    return f"{row['subscription']}  {row['schema']}.{row['name']}: {row['result']}, {row['rows']} rows, {float(row['seconds']):.1f} s{more}"
