"""What `headgate status` says in lines."""

from __future__ import annotations

import subprocess
from typing import Any

from rich.cells import cell_len
from tests.conftest import HEADGATE

from headgate.cli.status import shown, span
from headgate.cli.watch import screen

SUBSCRIPTION: dict[str, Any] = {
    "name": "s", "database": "d", "state": "retrying after an error", "tables_waiting": [], "tables_resync": {"public.u": "copy"}, "tables": 1, "tables_synced": 1, "copied_rows": 1,
    "copied_bytes": 7, "applied_rows": 1, "applied_transactions": 1, "applied_bytes": 120, "applied_lsn": "0/1", "applied_at": 90.0,
    "skipped_rows": 1, "connected": False, "lag_bytes": 0, "lag_seconds": 35.0, "types": [], "left_out": [{"table": "public.t", "changes": 1}],
    "unfilled": [{"column": "public.t.c", "rows": 1}], "last_error": None, "problems": [],
    "copies": [],
}  # fmt: skip


def test_one_is_singular_and_what_is_not_connected_says_so() -> None:
    lines = list(shown({"time": 100.0, "subscriptions": [SUBSCRIPTION], "slots": [], "log_end": "0/0"}))
    assert [line.strip() for line in lines[2:10]] == [
        "tables   1 of 1 synchronized",
        "again    public.u: copied again, as asked for",
        "copied   1 row, 7 bytes",
        "applied  1 row change in 1 transaction, 120 bytes, up to 0/1, the last 10.0 s ago",
        "skipped  1 change of rows that are not here",
        "lag      0 bytes, 35.0 s, not connected",
        "unfilled public.t.c: 1 row that the publisher has values for",
        "left out public.t: 1 change",
    ]


def test_a_copy_shows_its_rows_their_estimate_its_speed_and_the_time_that_is_left() -> None:
    copy = {"table": "public.t", "rows": 300_000, "bytes": 1, "rows_per_second": 20_000.0, "still_seconds": 0.1}
    for estimated, expected in (
        ((1_200_000, 45.0), "copying  public.t: 300,000 of about 1,200,000 rows, 20,000 rows/s, 45.0 s left"),
        ((None, None), "copying  public.t: 300,000 rows, 20,000 rows/s"),
    ):
        report = {**SUBSCRIPTION, "copies": [{**copy, "estimated_rows": estimated[0], "seconds_left": estimated[1]}]}
        lines = shown({"time": 100.0, "subscriptions": [report], "slots": [], "log_end": "0/0"})
        assert expected in [line.strip() for line in lines]


def test_problems_come_first_with_what_to_do() -> None:
    problem = {"kind": "pool", "subject": "out of walsenders", "message": "3 of 3 in use", "to_do": "Raise it."}
    report = {"time": 100.0, "problems": [problem], "subscriptions": [SUBSCRIPTION], "slots": [], "log_end": "0/0"}
    assert list(shown(report))[:3] == ["\nProblems: 1", "  out of walsenders: 3 of 3 in use", "    to do    Raise it."]


def watched(count: int, problems: int, *, width: int = 80, height: int = 23) -> list[str]:
    """The lines that --watch shows of a node with so many subscriptions, of which the last have problems."""
    told = [{"kind": "subscription", "subject": f'subscription "s{n}"', "message": "x" * 200, "to_do": None} for n in range(problems)]
    found = [
        {
            **SUBSCRIPTION,
            "name": f"s{number:03}",
            "state": "streaming",
            "lag_seconds": 0.0,
            "problems": told[max(0, number - count + problems) :][:1] if number >= count - problems else [],
        }
        for number in range(count)
    ]
    slots = [{"state": "streaming", "lag_bytes": 1 << 20}, {"state": "inactive", "lag_bytes": 5}]
    before = {"time": 98.0, "subscriptions": [{**each, "applied_rows": 0} for each in found]}
    return screen({"time": 100.0, "problems": told, "subscriptions": found, "slots": slots, "log_end": "0/0"}, before, width, height)


def test_watch_fits_the_terminal_with_trouble_first() -> None:
    for count, problems in ((0, 0), (1, 0), (5, 1), (20, 0), (40, 3), (40, 40), (300, 2)):
        lines = watched(count, problems)
        assert len(lines) <= 23
        assert all(cell_len(line) <= 80 for line in lines)
        assert sum(line.startswith("! ") for line in lines) + sum("more problems" in line for line in lines) >= min(problems, 1)
    lines = watched(40, 2)
    titles = next(place for place, line in enumerate(lines) if line.startswith("SUBSCRIPTION"))
    assert [line[:4] for line in lines[titles + 1 : titles + 4]] == ["s038", "s039", "s000"]
    assert lines[titles + 3].split() == ["s000", "d", "streaming", "1/1", "0.0", "s", "0"]
    shown_lines = len(lines) - titles - 3
    assert lines[-2:] == [
        f"and {40 - shown_lines} more: {40 - shown_lines} streaming",
        "slots: 1 streaming, 1 inactive, at most 1024 kB behind",
    ]


def test_watch_shows_how_far_a_copy_is_and_how_fast_rows_come() -> None:
    copy = {"rows": 25, "estimated_rows": 100, "seconds_left": 75.0}
    now = {**SUBSCRIPTION, "state": "copying", "copies": [copy], "applied_rows": 0, "copied_rows": 5000}
    before = {"time": 98.0, "subscriptions": [{**SUBSCRIPTION, "applied_rows": 0, "copied_rows": 1000}]}
    [_, line] = screen({"time": 100.0, "problems": [], "subscriptions": [now], "slots": []}, before, 80, 23)
    assert line.split("  ")[-1].split()[-1] == "2,000"
    assert "copying 25 %, 75.0 s" in line


def test_long_spans_are_read_at_a_glance() -> None:
    assert [span(seconds) for seconds in (-1, 59.94, 599, 600, 7199, 7200, 172_800)] == [
        "0.0 s",
        "59.9 s",
        "599.0 s",
        "10 min",
        "120 min",
        "2 h",
        "2 d",
    ]


def test_watch_and_json_do_not_go_together(tmp_path) -> None:
    done = subprocess.run([*HEADGATE, "status", "-D", str(tmp_path), "--watch", "--json"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "cannot be used together" in done.stderr) == (1, True)
