"""Commits wait for the standbys that synchronous_standby_names lists, as in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.errors import Notices, PostgresError
from headgate.lsn import Lsn
from headgate.walsender.standby import Standbys, parse
from headgate.walsender.statistics import Senders, SenderState


@pytest.mark.parametrize(
    ("text", "count", "names", "first"),
    [
        ("s1", 1, ("s1",), True),
        (" s1 , S2 ", 1, ("s1", "S2"), True),
        ("2 (a, b, c)", 2, ("a", "b", "c"), True),
        ("FIRST 2 (a, b)", 2, ("a", "b"), True),
        ("any 1 (*)", 1, ("*",), False),
        ('"Sub 1", "say ""hi"""', 1, ("Sub 1", 'say "hi"'), True),
        ("first, any", 1, ("first", "any"), True),
    ],
)
def test_every_form_of_the_list_is_parsed(text: str, count: int, names: tuple[str, ...], first: bool) -> None:
    standby_list = parse(text)
    assert standby_list is not None
    assert (standby_list.count, standby_list.names, standby_list.first) == (count, names, first)


@pytest.mark.parametrize("text", ["", "a b", "a,", "2 a", "FIRST 2", "0 (a)", "(a)", "a; b"])
def test_no_commit_waits_if_the_list_is_invalid(text: str) -> None:
    assert parse(text) is None


def streaming(**flushed: int) -> tuple[Senders, Callable[[int], str | None]]:
    """Return walsenders that stream and have received these flush positions, and their application names by pid."""
    senders = Senders()
    names = dict(enumerate(flushed, 1))
    for pid, position in enumerate(flushed.values(), 1):
        sender = senders.enter(pid)
        sender.state, sender.flush, sender.write, sender.apply = (
            SenderState.STREAMING,
            Lsn(position),
            Lsn(position + 10),
            Lsn(position - 10),
        )
    return senders, names.get


@pytest.mark.parametrize(
    ("names", "level", "released"),
    [
        ("FIRST 1 (a, b)", "on", True),
        ("FIRST 1 (b, a)", "on", False),
        ("FIRST 2 (a, b)", "on", False),
        ("ANY 1 (a, b)", "on", True),
        ("ANY 2 (a, b)", "on", False),
        ("*", "local", True),
        ("b", "remote_write", True),
        ("a", "remote_apply", False),
        ("nobody", "on", False),
        ("", "on", True),
    ],
)
def test_commit_waits_until_the_listed_standbys_have_flushed_its_lsn(names: str, level: str, released: bool) -> None:
    senders, application_name = streaming(a=100, b=95)
    notices, cancel = Notices(), PostgresError("57014", "canceling statement due to user request")
    requests = iter([None, cancel])
    assert Standbys(senders, lambda: names, application_name).wait(Lsn(100), level, lambda: next(requests), notices) == released
    assert [notice.message for notice in notices.said] == (
        [] if released else ["canceling wait for synchronous replication due to user request"]
    )


def test_states_are_those_of_pg_stat_replication() -> None:
    senders, application_name = streaming(a=100, b=95, c=90)

    def states(names: str) -> list[tuple[int, str]]:
        standbys = Standbys(senders, lambda: names, application_name)
        return [standbys.state(pid) for pid in (1, 2, 3)]

    assert states("FIRST 1 (b, a)") == [(2, "potential"), (1, "sync"), (0, "async")]
    assert states("ANY 1 (a, c)") == [(1, "quorum"), (0, "async"), (1, "quorum")]
    assert states("") == [(0, "async")] * 3
