"""The checkpointer: invalidates slots that retain too much, persists the other slots, and removes files that no slot needs.

Manual, 20.6.1 and 30.5.

One thread of the node. A checkpoint happens after checkpoint_timeout, after the transaction log has grown by half of max_wal_size, and at
CHECKPOINT. wal_status of a slot, with d = end of the log - restart_lsn:

    reserved    d <= max_wal_size
    extended    d is larger, but within max_slot_wal_keep_size (or that is -1)
    unreserved  d is larger than max_slot_wal_keep_size: the next checkpoint will invalidate the slot
    lost        a checkpoint has invalidated the slot

Sizes are compared with distances in the transaction log, in which a write advances the LSN by the bytes of its files.

The thread also has Delta write checkpoints of the tables' logs, checkpoints the catalog's file, and restarts the node if that file has
become unusable.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headgate.catalog.replication.slot import Slot
from headgate.errors import PostgresError
from headgate.publisher.slots import IDLE_TIMEOUT
from headgate.server import reinitialize
from headgate.storage.cleaning import Cleaner
from headgate.storage.delta.delta_checkpoint import DeltaCheckpoints
from headgate.storage.spark import job_group
from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog
    from headgate.publisher.slots import Slots
    from headgate.settings.node import Settings
    from headgate.storage.engine import Engine
    from headgate.storage.log_table import LogTable

LOOK_SECONDS = 5.0
LOCK_SECONDS = 0.1
"""The interval at which the waits for another checkpoint and for the table of the log call `check`."""
LISTED_LOOKS = 30
"""The number of these intervals for which a checkpoint waits for the table of the log."""
MEGABYTE = 1 << 20


class Checkpointer(Supervised):
    """The checkpointer's thread, as the module describes."""

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        slots: Slots,
        log_table: LogTable,
        settings: Settings,
        *,
        terminate: Callable[[int], bool],
        lacks_executors: Callable[[], bool],
    ) -> None:
        """Prepare the thread.

        `terminate` ends the backend with that process ID. `lacks_executors` returns whether a Spark job would wait for executors.
        """
        super().__init__("checkpointer", self._watch, patience=30)
        self._catalog, self._engine, self._slots, self._log_table, self._settings = catalog, engine, slots, log_table, settings
        self._terminate, self._lacks_executors = terminate, lacks_executors
        self._cleaner = Cleaner(engine)
        self._delta_checkpoints = DeltaCheckpoints(engine.tables, durable=engine.durable)
        self._one = threading.Lock()
        self._jobs = job_group.EndedJobs("checkpointer", "headgate checkpointer", self._check)
        self._last, self._last_end = time.monotonic(), engine.log.end

    def stop(self) -> None:
        """End the thread, even if it waits for executors."""
        self.stopping.set()
        self._jobs.end()
        super().stop()

    def _watch(self) -> None:
        try:
            with self._jobs.entered(self._engine.spark.sparkContext):
                self._run_periodically()
        except PostgresError:
            if not self.stopping.is_set():
                raise

    def _check(self) -> None:
        if self.stopping.is_set():
            raise PostgresError("57P01", "terminating checkpointer due to administrator command")

    def _run_periodically(self) -> None:
        while not self.stopping.wait(LOOK_SECONDS):
            if not self._catalog.is_usable():
                reinitialize.restart_node(self._engine, f'catalog "{self._catalog.path}" cannot be used any more')
                return
            self._catalog.checkpoint()
            with self._alone(self._check):
                self._write_due(self._check)
            passed = time.monotonic() - self._last >= self._settings.integer("checkpoint_timeout")
            grown = self._engine.log.end - self._last_end >= self._settings.integer("max_wal_size") * MEGABYTE // 2
            if passed or grown:
                self.checkpoint(self._check)

    def checkpoint(self, check: Callable[[], None]) -> None:
        """Invalidate slots, persist the others, and remove files that are no longer needed (as CheckPointReplicationSlots in PostgreSQL).

        `check` raises to end the wait for another checkpoint and for executors.
        """
        with self._alone(check):
            self._last, self._last_end = time.monotonic(), self._engine.log.end
            limit = self._limit()
            if limit is not None:
                self._slots.invalidate(limit, self._terminate)
            timeout: int = self._settings.integer(IDLE_TIMEOUT)
            if timeout:
                self._slots.invalidate_idle(timeout)
            self._slots.persist_all()  # includes slots confirmed shortly after the last checkpoint, whose idle streams do not persist them
            self._write_due(check)
            self._await_log_table(check)
            self._cleaner.clean(self._engine.claim_removal(), self._settings.integer("file_retention"))
            self._catalog.checkpoint(0)

    def _await_log_table(self, check: Callable[[], None]) -> None:
        """Wait a short time for the table of the log: only entries that it has can be removed."""
        end = self._engine.log.end
        for _ in range(LISTED_LOOKS):
            if self._log_table.wait(end, LOCK_SECONDS):
                return
            check()

    def _write_due(self, check: Callable[[], None]) -> None:
        """Write the due checkpoints of the tables' logs, unless that would wait for executors. Nothing else here needs executors."""
        if not self._lacks_executors():
            self._delta_checkpoints.write_due(check)

    @contextlib.contextmanager
    def _alone(self, check: Callable[[], None]) -> Iterator[None]:
        while not self._one.acquire(timeout=LOCK_SECONDS):
            check()
        try:
            yield
        finally:
            self._one.release()

    def _limit(self) -> int | None:
        """Return the number of bytes by which a slot may lag, or None for no limit."""
        most: int = self._settings.integer("max_slot_wal_keep_size")
        return None if most < 0 else max(most, self._settings.integer("wal_keep_size")) * MEGABYTE

    def wal_status(self, slot: Slot) -> tuple[str, int | None]:
        """Return pg_replication_slots.wal_status and safe_wal_size."""
        if slot.lost:
            return "lost", None
        distance = self._engine.log.end - slot.restart_lsn
        limit = self._limit()
        safe = None if limit is None else limit - distance
        if limit is not None and distance > limit:
            return "unreserved", safe
        extended = distance > self._settings.integer("max_wal_size") * MEGABYTE
        return ("extended" if extended else "reserved"), safe
