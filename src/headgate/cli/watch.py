"""``headgate status --watch``: redraws the status every two seconds until it is interrupted.

Called by `main`. `screen` renders a node's report (`cli.status`) in as many lines as the terminal has, each at most as wide: the problems
first, then one line for each subscription, those with problems first, then a summary of the slots. The rest is summarized.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.cli import status
from headgate.cli.control import check_directory
from headgate.server.monitoring.snapshot import StatusReport
from headgate.subscriber.snapshot import CopyReport, SubscriptionReport

SECONDS = 2.0
WIDTHS = (18, 12, 20, 9, 8, 8)
"""The widths of the columns of a subscription's line, with a space between two of them: 80 in all."""
TITLES = ("SUBSCRIPTION", "DATABASE", "STATE", "TABLES", "LAG", "ROWS/S")
_GOOD = ("streaming", "disabled")
_FEW = 4
"""The number of problem lines that are always shown."""


def watch(data_dir: Path, *, verbose: bool) -> None:
    """Show the status repeatedly, in place on a terminal. `verbose`: everything that ``headgate status`` shows."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    check_directory(data_dir, code=4)
    console = Console()
    before: StatusReport | None = None
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            node = status.look(data_dir)
            report = None if node is None else node.report
            if verbose or node is None or report is None:
                lines = list(status.lines(data_dir, node))
            else:
                head = f"headgate: {status.condition(node)}"
                lines = [head, *screen(report, before, console.width, console.height - 1)]
                before = report
            live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(SECONDS)


def screen(report: StatusReport, before: StatusReport | None, width: int, height: int) -> list[str]:
    """Return the report as at most `height` lines. `before`: the previous report, from which rates are computed."""
    rates = {} if before is None else _rates(before, report)
    problems = [f"! {one.subject}: {one.message}" for one in report.problems]
    ordered = sorted(report.subscriptions, key=_rank)
    slots = [_slots(report)] if report.slots else []
    room = height - 1 - len(slots)  # without the titles
    most = max(_FEW, room - len(ordered) - 1)
    lines = [*_first(problems, most), *([] if not problems else [""])]
    rows = [_row(one, rates.get((one.database, one.name))) for one in ordered]
    fit = max(1, room - len(lines))
    if len(rows) > fit:
        left = Counter(one.state for one in ordered[fit - 1 :])
        rows = [*rows[: fit - 1], f"and {sum(left.values())} more: {', '.join(f'{count} {state}' for state, count in left.most_common())}"]
    return [_cut(line, width) for line in (*lines, _cells(TITLES), *rows, *slots)][:height]


def _first(lines: Sequence[str], most: int) -> list[str]:
    return (
        list(lines) if len(lines) <= most else [*lines[: most - 1], f"and {len(lines) - most + 1} more problems: headgate status shows all"]
    )


def _rank(subscription: SubscriptionReport) -> tuple[bool, bool, float, str]:
    """Return the sort key: subscriptions with problems first, then those that are not streaming, then by lag."""
    return not subscription.problems, subscription.state in _GOOD, -(subscription.lag_seconds or 0.0), subscription.name


def _rates(before: StatusReport, now: StatusReport) -> Mapping[tuple[str, str], float]:
    def rows(report: StatusReport) -> dict[tuple[str, str], int]:
        return {(one.database, one.name): one.applied_rows + one.copied_rows for one in report.subscriptions}

    old, seconds = rows(before), max(now.time - before.time, 1e-3)
    return {key: max(0, count - old[key]) / seconds for key, count in rows(now).items() if key in old}


def _row(subscription: SubscriptionReport, rate: float | None) -> str:
    copies = [copy for copy in subscription.copies if copy.estimated_rows]
    state = _copying(copies) if copies and subscription.state == "copying" else subscription.state
    lag = "" if subscription.lag_seconds is None else status.span(subscription.lag_seconds)
    rows = "" if rate is None else f"{rate:,.0f}"
    return _cells((subscription.name, subscription.database, state, f"{subscription.tables_synced}/{subscription.tables}", lag, rows))


def _copying(copies: Sequence[CopyReport]) -> str:
    """Return the combined progress of a subscription's running copies."""
    done = sum(copy.rows for copy in copies) / sum(copy.estimated_rows or 0 for copy in copies)
    left = max((copy.seconds_left or 0.0 for copy in copies), default=0.0)
    return f"copying {min(100.0, 100 * done):.0f} %, {status.span(left)}"


def _slots(report: StatusReport) -> str:
    states = Counter(slot.state for slot in report.slots)
    most = max(slot.lag_bytes for slot in report.slots)
    return f"slots: {', '.join(f'{count} {state}' for state, count in states.most_common())}, at most {status.size(most)} behind"


def _cells(texts: Sequence[str]) -> str:
    from rich.cells import set_cell_size

    return " ".join(set_cell_size(_cut(text, width), width) for text, width in zip(texts, WIDTHS, strict=True)).rstrip()


def _cut(text: str, width: int) -> str:
    """Return a text in one line of at most this width."""
    from rich.cells import cell_len, set_cell_size

    line = " ".join(text.split()) if "\n" in text or "\t" in text else text
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"
