"""`headgate status` shows the state of a node in lines."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

from rich.cells import cell_len
from tests.conftest import HEADGATE

from headgate.cli.status import shown, span
from headgate.cli.watch import screen
from headgate.server.monitoring.snapshot import PoolReport, SlotReport, SparkReport, StatusReport, load
from headgate.subscriber.snapshot import CopyReport, FailureReport, LeftOut, OtherType, Problem, SubscriptionReport, Unfilled
from headgate.supervision import Health

SUBSCRIPTION = SubscriptionReport(
    name="s", database="d", publications=("p",), state="retrying after an error", starved_of=None, problems=(), missing_publications=(),
    left_out=(LeftOut("public.t", 1),), types=(), unfilled=(Unfilled("public.t.c", 1),), tables=1, tables_synced=1, tables_waiting=(),
    tables_resync={"public.u": "copy"}, table_states={"ready": 1}, copies=(), copied_rows=1, copied_bytes=7, applied_transactions=1,
    applied_rows=1, applied_bytes=120, batches=1, seconds={"merge": 0.5}, skipped_rows=1, conflicts={}, received_lsn=None,
    applied_lsn="0/1", applied_at=90.0, connected=False, lag_bytes=0, lag_seconds=35.0, failing=True, last_error=None, apply_errors=1,
    sync_errors=0,
)  # fmt: skip
REPORT = StatusReport(time=100.0, log_end="0/0", subscriptions=(SUBSCRIPTION,), slots=())
COPY = CopyReport("public.t", 300_000, 1, None, 20_000.0, None, 0.1)
SLOT = SlotReport("r", "d", "streaming", None, None, "reserved", None, 0, "0/0", 1 << 20, None, 0, 0)


def test_report_is_unchanged_after_a_round_trip_through_json() -> None:
    failure = FailureReport(90.0, None, "23505", "Delete the row.", "duplicate key", None, None, None)
    subscription = replace(SUBSCRIPTION, copies=(COPY,), types=(OtherType("public.t.d", "int4", "int8"),), last_error=failure)
    spark = SparkReport("local[2]", None, None, 1, 2, 3, 4, 5, 6)
    report = replace(
        REPORT,
        subscriptions=(subscription,),
        slots=(SLOT,),
        spark=spark,
        problems=(Problem("slot", "s", "m", None),),
        threads=(Health("launcher", False, 1, "it broke"),),
        pools=(PoolReport("walsenders", "max_wal_senders", 3, 3, ("s",), True, "Raise it."),),
    )
    assert load(json.loads(json.dumps(report, default=vars))) == report


def test_report_of_another_version_is_read_as_far_as_it_is_known() -> None:
    report = load({"time": 1.0, "log_end": "0/0", "subscriptions": [], "slots": [], "a_later_key": 1})
    assert (report.healthy, report.spark) == (None, None)


def test_counts_of_one_are_singular_and_a_missing_connection_is_shown() -> None:
    lines = list(shown(REPORT))
    assert [line.strip() for line in lines[2:10]] == [
        "tables   1 of 1 synchronized",
        "again    public.u: copied again, as requested",
        "copied   1 row, 7 bytes",
        "applied  1 row change in 1 transaction, 120 bytes, up to 0/1, the last 10.0 s ago",
        "skipped  1 change of rows that are not here",
        "lag      0 bytes, 35.0 s, not connected",
        "unfilled public.t.c: 1 row that the publisher has values for",
        "left out public.t: 1 change",
    ]


def test_copy_shows_its_rows_the_estimate_its_rate_and_the_time_left() -> None:
    for estimated, expected in (
        ((1_200_000, 45.0), "copying  public.t: 300,000 of about 1,200,000 rows, 20,000 rows/s, 45.0 s left"),
        ((None, None), "copying  public.t: 300,000 rows, 20,000 rows/s"),
    ):
        copy = replace(COPY, estimated_rows=estimated[0], seconds_left=estimated[1])
        lines = shown(replace(REPORT, subscriptions=(replace(SUBSCRIPTION, copies=(copy,)),)))
        assert expected in [line.strip() for line in lines]


def test_problems_are_shown_first_with_the_suggested_action() -> None:
    problem = Problem("pool", "out of walsenders", "3 of 3 in use", "Raise it.")
    assert list(shown(replace(REPORT, problems=(problem,))))[:3] == [
        "\nProblems: 1",
        "  out of walsenders: 3 of 3 in use",
        "    to do    Raise it.",
    ]


def watched(count: int, problems: int, *, width: int = 80, height: int = 23) -> list[str]:
    """Return the lines that --watch shows of a node with this number of subscriptions, of which the last ones have problems."""
    problem_list = tuple(Problem("subscription", f'subscription "s{number}"', "x" * 200, None) for number in range(problems))
    subscriptions = tuple(
        replace(
            SUBSCRIPTION,
            name=f"s{number:03}",
            state="streaming",
            lag_seconds=0.0,
            problems=problem_list[max(0, number - count + problems) :][:1] if number >= count - problems else (),
        )
        for number in range(count)
    )
    slots = (SLOT, replace(SLOT, state="inactive", lag_bytes=5))
    earlier_report = replace(
        REPORT, time=98.0, subscriptions=tuple(replace(subscription, applied_rows=0) for subscription in subscriptions)
    )
    return screen(replace(REPORT, problems=problem_list, subscriptions=subscriptions, slots=slots), earlier_report, width, height)


def test_watch_fits_the_terminal_with_problems_first() -> None:
    for count, problems in ((0, 0), (1, 0), (5, 1), (20, 0), (40, 3), (40, 40), (300, 2)):
        lines = watched(count, problems)
        assert len(lines) <= 23
        assert all(cell_len(line) <= 80 for line in lines)
        assert sum(line.startswith("! ") for line in lines) + sum("more problems" in line for line in lines) >= min(problems, 1)
    lines = watched(40, 2)
    titles = next(index for index, line in enumerate(lines) if line.startswith("SUBSCRIPTION"))
    assert [line[:4] for line in lines[titles + 1 : titles + 4]] == ["s038", "s039", "s000"]
    assert lines[titles + 3].split() == ["s000", "d", "streaming", "1/1", "0.0", "s", "0"]
    shown_lines = len(lines) - titles - 3
    assert lines[-2:] == [
        f"and {40 - shown_lines} more: {40 - shown_lines} streaming",
        "slots: 1 streaming, 1 inactive, at most 1024 kB behind",
    ]


def test_watch_shows_the_progress_of_a_copy_and_the_rate_of_rows() -> None:
    copy = replace(COPY, rows=25, estimated_rows=100, seconds_left=75.0)
    now = replace(SUBSCRIPTION, state="copying", copies=(copy,), applied_rows=0, copied_rows=5000)
    earlier_report = replace(REPORT, time=98.0, subscriptions=(replace(SUBSCRIPTION, applied_rows=0, copied_rows=1000),))
    [_, line] = screen(replace(REPORT, subscriptions=(now,)), earlier_report, 80, 23)
    assert line.split("  ")[-1].split()[-1] == "2,000"
    assert "copying 25 %, 75.0 s" in line


def test_long_durations_are_shown_in_larger_units() -> None:
    assert [span(seconds) for seconds in (-1, 59.94, 599, 600, 7199, 7200, 172_800)] == [
        "0.0 s",
        "59.9 s",
        "599.0 s",
        "10 min",
        "120 min",
        "2 h",
        "2 d",
    ]


def test_watch_and_json_cannot_be_combined(tmp_path) -> None:
    completed = subprocess.run([*HEADGATE, "status", "-D", str(tmp_path), "--watch", "--json"], capture_output=True, text=True, timeout=60)
    assert (completed.returncode, "cannot be used together" in completed.stderr) == (1, True)
