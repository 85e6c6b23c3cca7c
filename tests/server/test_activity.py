"""Process ids of sessions are numbers of the node."""

from __future__ import annotations

from headgate.server.monitoring.activity import Activity


def test_process_id_fits_into_32_bits_and_is_unique() -> None:
    activity = Activity(first_pid=2**31 - 3)
    waiting = activity.enter("client backend")
    pids = []
    for _ in range(5):
        backend = activity.enter("client backend")
        pids.append(backend.pid)
        activity.leave(backend.pid)
    assert waiting.pid == 2**31 - 3
    assert pids == [2**31 - 2, 2**31 - 1, 2**31 - 2, 2**31 - 1, 2**31 - 2]
