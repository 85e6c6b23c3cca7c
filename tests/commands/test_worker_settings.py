"""A worker applies rows under fixed settings (`commands.subscription.row_completion`)."""

from __future__ import annotations

from headgate.commands.subscription.row_completion import workers_settings
from headgate.settings.node import Settings


def test_worker_is_a_replica_without_policies_and_file_limit_under_any_settings_of_the_node() -> None:
    node = Settings.of({"row_security": "off", "temp_file_limit": "100kB", "session_replication_role": "origin", "TimeZone": "Asia/Tokyo"})

    applied = workers_settings(node)

    assert applied.text("session_replication_role") == "replica"
    assert applied.text("row_security") == "on"
    assert applied.integer("temp_file_limit") == -1
    assert applied.text("TimeZone") == "Asia/Tokyo"
