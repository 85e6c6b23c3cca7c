"""Process ids of sessions, which are the node's own numbers."""

from __future__ import annotations

from headgate.server.monitoring.activity import Activity


def test_a_process_id_stays_within_the_32_bits_in_which_it_is_sent_and_is_nobody_elses() -> None:
    activity = Activity(first_pid=2**31 - 3)
    waiting = activity.enter("client backend")
    pids = []
    for _ in range(5):
        backend = activity.enter("client backend")
        pids.append(backend.pid)
        activity.leave(backend.pid)
    assert waiting.pid == 2**31 - 3
    assert pids == [2**31 - 2, 2**31 - 1, 2**31 - 2, 2**31 - 1, 2**31 - 2]
