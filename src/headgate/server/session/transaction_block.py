"""The transaction of a session: transaction blocks, implicit blocks, savepoints and the actions at their ends.

States (PostgreSQL's TBLOCK_*, as far as a client can distinguish them), with the status of ReadyForQuery:

    IDLE      I   no transaction is open
    IMPLICIT  I   the statements of one query string, or of a pipeline up to Sync; ends with `finish`
    BLOCK     T   BEGIN … COMMIT
    FAILED    E   an error inside a block; ends with ROLLBACK, COMMIT (which rolls back) or ROLLBACK TO

The storage transaction begins when the first statement needs it. Only the session changes states, with the methods below:

    BEGIN          IDLE/IMPLICIT → BLOCK            COMMIT    BLOCK → IDLE (storage commits)
    error          BLOCK → FAILED, others → IDLE    ROLLBACK  BLOCK/FAILED → IDLE
    ROLLBACK TO s  FAILED → BLOCK                   PREPARE   BLOCK → IDLE (storage keeps it)

Traced: ``INSERT 1; BEGIN; INSERT 2; COMMIT; INSERT 3; SELEC`` never starts (it does not parse); ``INSERT 1; BEGIN; INSERT 2;
COMMIT; INSERT 3; SELECT 1/0``: IDLE, IMPLICIT (1), BLOCK (1, 2), IDLE (both committed), IMPLICIT (3), error → IDLE (3 rolled back).
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headgate.commands import pending_notifications
from headgate.commands.deferral import Deferral, Saved
from headgate.commands.pending_notifications import PendingNotifications
from headgate.errors import PostgresError
from headgate.lsn import Lsn

if TYPE_CHECKING:
    from headgate.server.protocol.open_portals import OpenPortals
    from headgate.server.session.advisory_lock import SessionAdvisoryLocks
    from headgate.server.session_origin import SessionOrigin
    from headgate.settings.session import SessionSettings, SettingValues
    from headgate.storage.transaction.log import OriginProgress
    from headgate.storage.transaction.transaction import Transaction

ABORTED = "current transaction is aborted, commands ignored until end of transaction block"


class BlockState(enum.Enum):
    """The state of a session's transaction; the value is the status in ReadyForQuery."""

    IDLE = "I"
    BLOCK = "T"
    FAILED = "E"


class TransactionBlock:
    """One session's transaction state machine."""

    def __init__(
        self,
        begin: Callable[[], Transaction],
        values: SessionSettings,
        portals: OpenPortals,
        admit: Callable[[PendingNotifications], None],
        announce: Callable[[PendingNotifications], None],
        advisory: SessionAdvisoryLocks,
        replicated: Callable[[Lsn], None],
    ) -> None:
        """Create a block without an open transaction.

        `begin` begins a storage transaction. `values`, `portals` and the transaction-level `advisory` locks end with the transaction.
        `announce` delivers the transaction's notifications after the commit; `admit` raises an error before it if they do not fit.
        `replicated` waits for synchronous standbys.
        """
        self._begin = begin
        self._values = values
        self._portals = portals
        self._admit = admit
        self._announce = announce
        self._advisory = advisory
        self.pending = PendingNotifications()
        """The requests of LISTEN, UNLISTEN and NOTIFY."""
        self._replicated = replicated
        self.committed_at: Lsn | None = None
        """The LSN at the end of the log entry just committed, until the wait for its replication."""
        self.state = BlockState.IDLE
        self.storage: Transaction | None = None
        self.several = False
        """Whether the statement is one of several in a query string or a pipeline."""
        self.pipelined = False
        """Whether a pipeline has executed a statement in the open transaction."""
        self.commits_alone = False
        """Whether the transaction commits after its statement, also in a pipeline (XACT_FLAGS_NEEDIMMEDIATECOMMIT)."""
        self.snapshot: Lsn | None = None
        self.imported: Lsn | None = None
        """The snapshot set by SET TRANSACTION SNAPSHOT or by a walsender's SNAPSHOT 'use'."""
        self.ended = 0
        """The number of transactions that procedures have ended."""
        self.statements = 0
        """The number of statements of the transaction that have taken a snapshot."""
        self.origin: SessionOrigin | None = None
        """The replication origin of the session's writes (pg_replication_origin_session_setup)."""
        self._settings: SettingValues | None = None
        self.deferral = Deferral()
        """The actions that this transaction has deferred until its end."""
        self._savepoints: list[tuple[str, SettingValues, Saved, pending_notifications.Saved, int]] = []
        self._after_commit: list[Callable[[], None]] = []
        self._after_rollback: list[Callable[[], None]] = []

    @property
    def letter(self) -> str:
        """The status in ReadyForQuery."""
        return self.state.value

    @property
    def isolation(self) -> str:
        """The isolation level of the transaction."""
        return self._values.text("transaction_isolation")

    @property
    def read_only(self) -> bool:
        return self._values.flag("transaction_read_only")

    @property
    def in_subtransaction(self) -> bool:
        return bool(self._savepoints)

    @property
    def in_block(self) -> bool:
        """Whether BEGIN has opened a block that has not failed."""
        return self.state is BlockState.BLOCK

    # ---- statements -------------------------------------------------------------------------------------
    def touch(self) -> None:
        """Remember the settings when the transaction's first transactional action begins, so that they can be rolled back."""
        if self._settings is None:
            self._settings = self._values.remember()
            self._values.begin_transaction()

    def statement(self) -> Transaction:
        """Return the storage transaction. Begin it if none is open."""
        self.touch()
        if self.storage is None:
            self.storage = self._begin()
        return self.storage

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` after this transaction has committed."""
        self._after_commit.append(action)

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Run `action` if this transaction rolls back."""
        self._after_rollback.append(action)

    def check_not_failed(self) -> None:
        """Raise 25P02 in a failed block."""
        if self.state is BlockState.FAILED:
            raise PostgresError("25P02", ABORTED)

    def prevent(self, command: str) -> None:
        """Raise 25001 in a block or beside other statements, for a `command` that commits by itself."""
        if self.state is BlockState.BLOCK or self.several:
            raise PostgresError("25001", f"{command} cannot run inside a transaction block")
        self.commits_alone = True

    def require(self, command: str) -> None:
        """Raise 25P01 outside BEGIN … COMMIT, for a `command` that has an effect only there."""
        if self.state is not BlockState.BLOCK:
            raise PostgresError("25P01", f"{command} can only be used in transaction blocks")

    # ---- blocks -----------------------------------------------------------------------------------------
    def begin(self, chained: SettingValues | None = None) -> bool:
        """Open a block. Return False if one is already open; the caller warns. `chained`: the settings of the block before (AND CHAIN)."""
        if self.state is BlockState.BLOCK:
            return False
        self.touch()
        if chained is not None:
            self._values.chain(chained)
        self.state = BlockState.BLOCK
        return True

    def end(self, *, commits: bool, chain: bool) -> None:
        """End the implicit transaction of a procedure, which goes on in another one. `chain`: as AND CHAIN."""
        settings = self._values.remember()
        if commits:
            self.commit()
        else:
            self.rollback()
        self.ended += 1
        if chain:
            self.touch()
            self._values.chain(settings)

    def commit(self) -> bool:
        """Commit the open transaction. Return False if it was rolled back because the block had failed."""
        if self.state is BlockState.FAILED:
            self.rollback()
            return False
        try:
            if self.storage is not None:
                self._settle(self.storage)
            self._portals.commit()
            self._admit(self.pending)
        except BaseException:
            self.rollback()
            raise
        storage, self.storage = self.storage, None
        if storage is not None:
            try:
                self.committed_at = storage.commit(self._progress(storage))
            except BaseException:
                with contextlib.suppress(Exception):
                    storage.rollback()
                self.storage = None
                self._end(rolled_back=True)
                raise
        self._end(rolled_back=False)
        return True

    def _progress(self, storage: Transaction) -> OriginProgress | None:
        """Return the progress of the session's origin if the transaction has written."""
        return None if self.origin is None or not storage.has_writes else self.origin.progress()

    def prepare(self, gid: str, owner: str) -> None:
        """End the block and prepare its storage transaction. Roll it back if that fails."""
        storage = self.statement()
        try:
            self._settle(storage)
            self._portals.check_prepare()
            self.pending.check_prepare()
            self._advisory.check_prepare()
            self.storage = None
            self.committed_at = storage.prepare(gid, owner, self._progress(storage))
        except BaseException:
            with contextlib.suppress(Exception):
                storage.rollback()
            self.storage = None
            self._end(rolled_back=True)
            raise
        self._end(rolled_back=False)

    def rollback(self) -> None:
        """Roll back the open transaction."""
        self._portals.roll_back()
        storage, self.storage = self.storage, None
        try:
            if storage is not None:
                _roll_back(storage)
        finally:
            self._end(rolled_back=True)

    def finish(self) -> None:
        """Commit an implicit transaction at the end of a query string or at Sync. A block stays open."""
        if self.state is BlockState.IDLE:
            self.commit()
        self.several = self.pipelined = False

    def fail(self) -> None:
        """Handle an error: a block becomes FAILED, any other transaction is rolled back."""
        if self.state is BlockState.IDLE:
            self.rollback()
            self.several = False
        elif self.state is BlockState.BLOCK:
            self.state = BlockState.FAILED
            self._advisory.end(self._savepoints[-1][4] if self._savepoints else 0)
            if not self._savepoints:
                self._portals.fail()
            if not self._savepoints and self.storage is not None:
                storage, self.storage = self.storage, None
                _roll_back(storage)

    def _settle(self, storage: Transaction) -> None:
        """Run the deferred actions on the latest committed state."""
        storage.statement()
        self.deferral.finish()

    def _end(self, *, rolled_back: bool) -> None:
        self.state = BlockState.IDLE
        self.pipelined = self.commits_alone = False
        self._portals.roll_back()
        self._portals.depth = 0
        self._advisory.end()
        self.deferral = Deferral()
        settings, self._settings = self._settings, None
        if settings is not None:
            self._values.restore(settings, rolled_back)
        self._savepoints.clear()
        self.snapshot = self.imported = None
        self.statements = 0
        committed, self.committed_at = self.committed_at, None
        if committed is not None and not rolled_back:
            self._replicated(committed)
        pending, self.pending = self.pending, PendingNotifications()
        if pending and not rolled_back:
            self._announce(pending)
        actions = self._after_rollback if rolled_back else self._after_commit
        self._after_commit, self._after_rollback = [], []
        for action in actions:
            action()

    # ---- savepoints -------------------------------------------------------------------------------------
    def savepoint(self, name: str) -> None:
        self.require("SAVEPOINT")
        self.statement().savepoint(name)
        self._savepoints.append((name, self._values.remember(), self.deferral.saved(), self.pending.saved(), self._advisory.saved()))
        self._portals.depth = len(self._savepoints)

    def release(self, name: str) -> None:
        """Execute RELEASE SAVEPOINT name. Raise 3B001 if it does not exist."""
        self.require("RELEASE SAVEPOINT")
        index = self._find(name)
        self.statement().release(name)
        self._values.release(self._savepoints[index][1])
        self._portals.release(index)
        del self._savepoints[index:]

    def rollback_to(self, name: str) -> None:
        """Execute ROLLBACK TO SAVEPOINT name. A failed block becomes usable again."""
        if self.state is BlockState.IDLE:
            raise PostgresError("25P01", "ROLLBACK TO SAVEPOINT can only be used in transaction blocks")
        index = self._find(name)
        self._portals.roll_back_to(index)
        self.statement().rollback_to(name)
        self._values.rollback_to(self._savepoints[index][1])
        self.deferral.restore(self._savepoints[index][2])
        self.pending.restore(self._savepoints[index][3])
        self._advisory.end(self._savepoints[index][4])
        del self._savepoints[index + 1 :]
        self.state = BlockState.BLOCK

    @contextlib.contextmanager
    def nested(self) -> Iterator[None]:
        """Run a subtransaction of a function. If it raises a PostgresError, close its cursors and release its advisory locks."""
        depth, settings, locks = self._portals.depth, self._values.remember(), self._advisory.saved()
        self._portals.depth += 1
        try:
            yield
            self._values.release(settings)
        except PostgresError:
            self._portals.roll_back_to(depth)
            self._advisory.end(locks)
            raise
        finally:
            self._portals.release(depth)

    def _find(self, name: str) -> int:
        for index in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[index][0] == name:
                return index
        raise PostgresError("3B001", f'savepoint "{name}" does not exist')


def _roll_back(transaction: Transaction) -> None:
    transaction.storage.statistics.rolled_back(transaction.database)
    transaction.rollback()
