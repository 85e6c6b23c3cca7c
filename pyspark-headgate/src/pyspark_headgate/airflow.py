"""A deferrable sensor for Apache Airflow 3 that waits until a table of a node is complete up to a time.

Users import it in their DAGs. The package does not depend on Airflow: only this module imports it. The sensor passes the id of an Airflow
connection to the triggerer, never its password.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import psycopg
from airflow.sdk import BaseHook, BaseSensorOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from pyspark_headgate.connection import MARGIN, complete_until


class CompleteUntilTrigger(BaseTrigger):  # type: ignore[misc]
    """The asynchronous part of `CompleteUntilSensor`. It asks the node every `interval` seconds."""

    def __init__(self, connection_id: str, table: str, until: str, interval: float) -> None:
        super().__init__()
        self.connection_id, self.table, self.until, self.interval = connection_id, table, until, interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments, which Airflow stores in its database."""
        names = ("connection_id", "table", "until", "interval")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event when the table is complete. A node that is behind, or not reachable, is asked again."""
        url = (await BaseHook.aget_connection(self.connection_id)).get_uri()
        needed = datetime.fromisoformat(self.until) + MARGIN
        while True:
            try:
                moment = await asyncio.to_thread(complete_until, url, self.table, self.interval)
            except (TimeoutError, psycopg.OperationalError) as error:
                self.log.info("%s", error)
            else:
                if moment >= needed:
                    yield TriggerEvent({"complete_until": moment.isoformat()})
                    return
            await asyncio.sleep(self.interval)


class CompleteUntilSensor(BaseSensorOperator):  # type: ignore[misc]
    """Waits until a table that a subscription writes has every commit of the publisher before `until`.

    `connection_id`: an Airflow connection to the node. `table`: schema.name. `until`: a time with a time zone, in ISO 8601; it is a
    template, such as ``{{ data_interval_end }}``. The sensor holds no worker slot while it waits. `timeout` ends it with an error.
    """

    template_fields = ("table", "until")

    def __init__(self, *, connection_id: str, table: str, until: str, poke_interval: float = 10, **options: Any) -> None:
        super().__init__(poke_interval=poke_interval, **options)
        self.connection_id, self.table, self.until = connection_id, table, until

    def execute(self, context: Mapping[str, Any]) -> None:
        """Defer to the trigger."""
        if datetime.fromisoformat(self.until).tzinfo is None:
            raise ValueError(f"until needs a time zone: {self.until}")
        trigger = CompleteUntilTrigger(self.connection_id, self.table, self.until, self.poke_interval)
        self.defer(trigger=trigger, method_name="finish", timeout=timedelta(seconds=self.timeout))

    def finish(self, context: Mapping[str, Any], event: dict[str, str]) -> str:
        """Return the time up to which the table is complete."""
        return event["complete_until"]
