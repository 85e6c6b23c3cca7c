"""The settings under which a worker applies rows (`commands.subscription.row_completion`)."""

from __future__ import annotations

from headgate.commands.subscription.row_completion import workers_settings
from headgate.settings import Settings


def test_a_worker_is_a_replica_without_policies_and_without_a_limit_whatever_the_node_says() -> None:
    node = Settings.of({"row_security": "off", "temp_file_limit": "100kB", "session_replication_role": "origin", "TimeZone": "Asia/Tokyo"})

    applied = workers_settings(node)

    assert applied.text("session_replication_role") == "replica"
    assert applied.text("row_security") == "on"
    assert applied.integer("temp_file_limit") == -1
    assert applied.text("TimeZone") == "Asia/Tokyo"
