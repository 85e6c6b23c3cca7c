"""A cancel stops the running statement, also if it arrives before the engine has begun, and never a later one."""

from __future__ import annotations

import threading

import pytest

from headgate.errors import PostgresError
from headgate.server.interrupts import Interrupts

WAIT_SECONDS = 20


def test_stop_is_repeated_if_the_query_had_not_begun() -> None:
    interrupts, begun, stopped = Interrupts(), threading.Event(), threading.Event()
    with interrupts.statement(0), interrupts.cancelling(lambda: stopped.set() if begun.is_set() else None):
        interrupts.cancel()
        assert not stopped.is_set()
        begun.set()
        assert stopped.wait(WAIT_SECONDS)
        with pytest.raises(PostgresError, match="user request"):
            interrupts.check()


def test_work_does_not_begin_after_the_cancel() -> None:
    interrupts = Interrupts()
    with interrupts.statement(0):
        interrupts.cancel()
        with pytest.raises(PostgresError, match="user request"), interrupts.cancelling(lambda: None):
            pytest.fail("the work began")


def test_stop_ends_with_its_statement() -> None:
    interrupts, again = Interrupts(), threading.Event()
    calls: list[str] = []
    with interrupts.statement(0), interrupts.cancelling(lambda: calls.append("cancelled")):
        interrupts.cancel()
    count = len(calls)
    with interrupts.statement(0), interrupts.cancelling(again.set):
        assert not again.wait(0.3)
    assert len(calls) == count


def test_out_of_memory_ends_the_statement_that_took_the_memory() -> None:
    interrupts, stopped = Interrupts(), threading.Event()
    with interrupts.statement(0), interrupts.cancelling(lambda: None, in_java=True):
        first = interrupts.computing
    with interrupts.statement(0), interrupts.cancelling(stopped.set, in_java=True):
        interrupts.cancel(("53200", "out of memory"), computing=first)
        interrupts.check()
        assert not stopped.is_set()
        interrupts.cancel(("53200", "out of memory"), computing=interrupts.computing)
        with pytest.raises(PostgresError, match="out of memory"):
            interrupts.check()
