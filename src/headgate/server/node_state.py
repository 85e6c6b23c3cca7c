"""The state that the threads of a node share: its parts and its counters.

`Node` fills it in while it starts, in the order in which the parts need each other. Connections, sessions and monitoring read it.
Invariants: nothing here starts or stops a part, and no part takes the whole state: it takes the parts that it needs.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import PostgresError, Severity
from headgate.server.authentication.access import Access
from headgate.server.monitoring.activity import Activity, Backend
from headgate.server.monitoring.statement_statistics import StatementStatistics
from headgate.server.notification import Channels
from headgate.server.protocol.statement_memory import OF_ALL, OF_MESSAGES, OF_RUNNING, Pool
from headgate.server.session_origin import OriginUsers
from headgate.settings.node import Settings
from headgate.walsender.standby import Standbys
from headgate.walsender.statistics import Senders

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog
    from headgate.commands.session import NodeParts
    from headgate.publisher.decoded import ChangeCache
    from headgate.publisher.slots import Slots
    from headgate.publisher.watch import LogWatch
    from headgate.server.checkpointer import Checkpointer
    from headgate.server.cluster_watch import ClusterWatch
    from headgate.server.listener import Listener
    from headgate.server.task_watch import TaskWatch
    from headgate.storage.engine import Engine
    from headgate.subscriber.worker_registry import WorkerRegistry
    from headgate.supervision import Supervised


class NodeState:
    """The shared state. The attributes without a value in the constructor exist from the node's start on."""

    port: int
    listener: Listener
    catalog: Catalog
    engine: Engine
    slots: Slots
    changes: ChangeCache
    log_watch: LogWatch
    checkpointer: Checkpointer
    task_watch: TaskWatch
    workers: WorkerRegistry
    parts: NodeParts

    def __init__(self, data_dir: Path, settings: Settings, reload: Callable[[], None]) -> None:
        """Create the state of a node that has not started. `reload` reloads the configuration files."""
        self.data_dir = Path(data_dir)
        self.settings = settings
        self.reload_files = reload
        self.access = Access(settings, self.data_dir)
        self.activity = Activity()
        self.statements = StatementStatistics(settings.integer("statement_statistics"))
        self.started_at = time.time()
        self.reloaded_at = self.counted_since = self.started_at
        self.senders = Senders()
        self.origin_users = OriginUsers()
        self.channels = Channels()
        self.statement_memory, self.running_memory, self.message_memory = Pool(OF_ALL), Pool(OF_RUNNING), Pool(OF_MESSAGES)
        self.standbys = Standbys(self.senders, lambda: settings.text("synchronous_standby_names"), self.activity.application_name)
        self.accepting = False
        """Whether the node accepts connections."""
        self.stopping = threading.Event()
        """Set when the node begins to stop."""
        self.threads: list[Supervised] = []
        """The threads that must run as long as the node."""
        self.cluster: ClusterWatch | None = None
        """The watch of the Spark cluster; None if tasks run in the node's own JVM."""
        self.spark_pages: str | None = None
        """The `cluster.pages` of the Spark session."""

    @functools.cached_property
    def system_identifier(self) -> str:
        return self.catalog.system_identifier()

    @functools.cached_property
    def mock_nonce(self) -> bytes:
        """The value from which the salts of roles without a password are derived."""
        return self.catalog.mock_authentication_nonce()

    def admit(self, walsender: bool, pid: int) -> Backend:
        """Register a connection and return its backend. Raise FATAL 57P03 during shutdown, 53300 if there are too many connections."""
        if not self.accepting:
            raise PostgresError("57P03", "the database system is shutting down", severity=Severity.FATAL)
        if walsender:
            limit = self.settings.integer("max_wal_senders")
            if sum(backend.kind == "walsender" for backend in self.activity.all()) >= limit:
                self.activity.refused_at["walsender"] = time.monotonic()
                raise PostgresError(
                    "53300",
                    f"number of requested standby connections exceeds max_wal_senders (currently {limit})",
                    severity=Severity.FATAL,
                )
            return self.activity.enter("walsender", pid=pid)
        return self.activity.enter("client backend", self.settings.integer("max_connections"), pid)

    def has_place_for_all(self) -> bool:
        """Return whether at least superuser_reserved_connections connections are free, not counting the calling one."""
        used = sum(backend.kind == "client backend" for backend in self.activity.all())
        has_place = self.settings.integer("max_connections") - used >= self.settings.integer("superuser_reserved_connections")
        if not has_place:
            self.activity.refused_at["client backend"] = time.monotonic()
        return has_place
