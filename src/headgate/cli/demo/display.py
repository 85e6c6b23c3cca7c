"""The display of the demonstration: a live table of the rows and the lag of each server, and how to connect to them.

Called by `course`. The lag comes from pg_stat_replication of each link's publisher.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from headgate.cli.demo.orders import ChainLink
from headgate.cli.demo.servers import DemoServer


@dataclass
class Watch:
    """Sessions that read the rows and the lag of one server."""

    server: DemoServer
    filter: str
    incoming: ChainLink | None

    def __post_init__(self) -> None:
        self.session = self.server.connect()
        self.upstream = self.incoming.publisher.connect() if self.incoming else None

    def close(self) -> None:
        """End the sessions."""
        self.session.close()
        if self.upstream:
            self.upstream.close()

    def rows(self) -> int:
        """Return the number of rows in the table."""
        row = self.session.execute("SELECT count(*) FROM orders").fetchone()
        return int(row[0]) if row else 0

    def lag(self) -> tuple[str, str]:
        """Return the state of the link to this server, and the bytes of the publisher's log that it has not confirmed yet."""
        if self.incoming is None or self.upstream is None:
            return "source", ""
        row = self.upstream.execute(
            "SELECT state, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint FROM pg_stat_replication WHERE application_name = %s",
            (self.incoming.subscription,),
        ).fetchone()
        return (str(row[0]), f"{max(int(row[1] or 0), 0):,}") if row else ("not connected", "")


def table(watches: list[Watch], done: dict[str, int]) -> Table:
    """Return the live table, with a line for each server."""
    shown = Table(title="orders, live", caption_justify="left", expand=False)
    for name in ("server", "takes", "rows", "link", "lag, bytes"):
        shown.add_column(name, justify="right" if name in ("rows", "lag, bytes") else "left")
    for watch in watches:
        try:
            rows, (state, behind) = f"{watch.rows():,}", watch.lag()
        except psycopg.Error as error:  # only the display is affected, not the comparison at the end
            rows, state, behind = "?", type(error).__name__, ""
        shown.add_row(watch.server.title, watch.filter, rows, state, behind)
    if done:
        shown.caption = "transactions on the source: " + ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
    return shown


def connections(console: Console, servers: list[DemoServer], running: bool) -> None:
    """Print how to connect to each server with psql."""
    lines = "\n".join(f"{server.title:<12} [bold]{server.psql()}[/bold]" for server in servers)
    console.print(Panel(lines, title="still running" if running else "while it ran (make demo KEEP=1 leaves them running)", expand=False))
