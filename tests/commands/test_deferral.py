"""The deferred checks of a transaction: their order, their state at a savepoint, and their cost if they are many."""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.commands.deferral import Deferrable, Deferral
from headgate.commands.pending_notifications import PendingNotifications

LATER, FIRST = Deferrable(1, initially=True), Deferrable(2, initially=True)


def put_off(deferral: Deferral, ran: list[str], name: str, constraint: Deferrable = LATER, then: Callable[[], None] = lambda: None) -> None:
    def action() -> None:
        ran.append(name)
        then()

    deferral.put_off(constraint, 0, action)


def test_savepoint_has_the_checks_that_have_run_since_and_not_those_deferred_since() -> None:
    deferral, ran = Deferral(), list[str]()
    for name, constraint in (("a", LATER), ("b", FIRST), ("c", LATER)):
        put_off(deferral, ran, name, constraint)
    deferral.set_some({FIRST.oid}, deferred=False)
    outer = deferral.saved()
    put_off(deferral, ran, "d", FIRST)
    inner = deferral.saved()
    deferral.check()
    assert ran == ["b", "d"]
    put_off(deferral, ran, "e")
    deferral.restore(inner)
    deferral.check()
    assert ran == ["b", "d"] * 2
    deferral.restore(outer)
    put_off(deferral, ran, "f")
    ran.clear()
    deferral.finish()
    assert ran == ["a", "b", "c", "f"]
    deferral.restore(outer)
    deferral.finish()
    assert ran == ["a", "b", "c", "f", "a", "b", "c"]


def test_check_may_defer_others_and_run_those_that_wait() -> None:
    deferral, ran = Deferral(), list[str]()
    put_off(deferral, ran, "a", then=lambda: put_off(deferral, ran, "d"))
    put_off(deferral, ran, "b", then=lambda: deferral.check(everything=True))
    put_off(deferral, ran, "c")
    deferral.finish()
    assert ran == ["a", "b", "c", "d"]


def test_cost_of_a_check_and_of_a_notification_does_not_grow_with_their_number() -> None:
    deferral, ran, pending = Deferral(), list[str](), PendingNotifications()
    began = time.process_time()
    for number in range(40_000):
        put_off(deferral, ran, str(number))
        pending.notify("news", str(number))
        before = deferral.saved(), pending.saved()
        put_off(deferral, ran, "rolled back")
        pending.notify("news", "rolled back")
        deferral.restore(before[0])
        pending.restore(before[1])
    deferral.finish()
    assert time.process_time() - began < 5
    assert ran == [str(number) for number in range(40_000)] == [payload for _, payload in pending.notifications]
    assert pending.size == sum(len("news") + len(name) + 256 for name in ran)
