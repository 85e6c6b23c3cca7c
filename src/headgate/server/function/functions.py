"""The functions that act on the node or the session: slots, backends, settings, origins, LSNs.

`functions` returns them by PostgreSQL's name for `commands.query.catalog.query`, which calls them with Python values (pg_lsn as Lsn). A
function with OUT parameters returns a tuple, a set-returning one a list of tuples. The parameters have PostgreSQL's names.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headgate.catalog import database as databases
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.security import acl
from headgate.catalog.security import role as roles
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.server.function.advisory_function import AdvisoryFunctions
from headgate.server.function.change_function import ChangeFunction
from headgate.server.function.explain_function import ExplainFunction
from headgate.server.function.publication_function import PublicationFunction
from headgate.server.function.sequence_function import SequenceFunctions
from headgate.server.function.slot_function import SlotFunctions
from headgate.server.function.snapshot_function import SnapshotFunction
from headgate.server.function.subscription_function import SubscriptionFunctions
from headgate.server.function.verify_function import VerifyFunction
from headgate.server.session import session_role, transaction_mode
from headgate.server.session.session_origin import SessionOrigin

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor
    from headgate.server.node import Node
    from headgate.server.session.session import ClientSession


_OWN = ("change_ranges", "complete_until", "explain_row", "publications", "reconcile", "resync", "snapshot", "verify", "wait_for_lsn")
"""The functions in the schema headgate."""
_ALWAYS_COUNTED = frozenset({"archiver", "bgwriter", "checkpointer", "slru", "wal"})
"""The kinds of statistics of which each server has exactly one."""


def functions(node: Node, session: ClientSession) -> Mapping[str, Callable[..., object]]:
    """Return the functions by name."""
    instance = _Functions(node, session)
    builtins = {name.removeprefix("fn_"): getattr(instance, name) for name in dir(instance) if name.startswith("fn_")}
    return builtins | {f"headgate.{name}": getattr(instance, name) for name in _OWN}


class _Functions(
    AdvisoryFunctions,
    ChangeFunction,
    ExplainFunction,
    PublicationFunction,
    SequenceFunctions,
    SlotFunctions,
    SnapshotFunction,
    SubscriptionFunctions,
    VerifyFunction,
):
    """The functions of one session."""

    def __init__(self, node: Node, session: ClientSession) -> None:
        self.node = node
        self.session = session
        self.pid = session.backend.pid

    # ---- the log ----------------------------------------------------------------------------------------
    def fn_pg_current_wal_lsn(self) -> Lsn:
        """Return the end of the node's transaction log."""
        return self.node.engine.log.end

    fn_pg_current_wal_insert_lsn = fn_pg_current_wal_flush_lsn = fn_pg_current_wal_lsn

    def fn_pg_switch_wal(self) -> Lsn:
        """Move the end of the log to the next segment."""
        return self.node.engine.switch(self.session.context.database)

    def fn_pg_logical_emit_message(self, transactional: bool | None, prefix: str | None, content: str | bytes | None) -> Lsn | None:
        """Write a logical decoding message of text or bytea. Return its LSN, or NULL if an argument is NULL."""
        if transactional is None or prefix is None or content is None:
            return None
        body = content.encode() if isinstance(content, str) else bytes(content)
        if not transactional:
            return self.node.engine.emit(self.session.context.database, prefix, body)
        self.session.begin_statement().emit(prefix, body)
        return self.node.engine.log.end

    def fn_pg_last_wal_receive_lsn(self) -> None:
        """Return NULL: a node is not a standby."""

    fn_pg_last_wal_replay_lsn = fn_pg_last_xact_replay_timestamp = fn_pg_last_wal_receive_lsn

    def fn_txid_current(self) -> int:
        """Return the transaction's ID."""
        return int(self.session.begin_statement().xid)

    fn_pg_current_xact_id = fn_txid_current

    def fn_pg_export_snapshot(self) -> str:
        """Export the transaction's snapshot, or the end of the log if it has none. Raise 25001 in a subtransaction."""
        session = self.session
        if session.block.in_subtransaction:
            raise PostgresError("25001", "cannot export a snapshot from a subtransaction")
        position = session.snapshot or self.node.engine.log.end
        return self.node.slots.snapshots.export(position, session.context.database, self.pid)

    # ---- backends ---------------------------------------------------------------------------------------
    def _signalled(self, pid: int, verb: str, noun: str, done: str) -> bool:
        """Return whether the backend exists. Raise 42501 if the user may not signal it (pg_signal_backend)."""
        backend = self.node.activity.find(pid)
        if backend is None:
            self.session.notices.warning(f"PID {pid} is not a PostgreSQL server process")
            return False
        if self.session.is_superuser:
            return True
        with contextlib.closing(self.node.catalog.cursor()) as cursor:
            owner = None if backend.role is None else roles.find(cursor, backend.role)
            user = acl.role(cursor, self.session.context.user)
        if owner is None or owner.superuser:
            raise PostgresError("42501", f"must be a superuser to {verb} superuser {noun}")
        if not user.owns(owner.oid) and not user.owns(roles.SIGNAL_BACKEND):
            message = f"must be a member of the role whose {noun} is being {done} or member of pg_signal_backend"
            raise PostgresError("42501", message)
        return True

    def fn_pg_terminate_backend(self, pid: int, timeout: int = 0) -> bool:
        """Terminate a backend. With a `timeout` in ms, return whether it ended in that time."""
        if timeout < 0:
            raise PostgresError("22003", '"timeout" must not be negative')
        if not self._signalled(pid, "terminate", "process", "terminated"):
            return False
        backend = self.node.activity.find(pid)
        self.node.activity.terminate(pid)
        if timeout and backend is not None:
            return self.node.activity.wait_gone([backend], timeout / 1000)
        return True

    def fn_pg_cancel_backend(self, pid: int) -> bool:
        """Cancel a backend's statement."""
        return self._signalled(pid, "cancel", "query", "canceled") and self.node.activity.cancel(pid)

    def fn_pg_sleep(self, seconds: float) -> None:
        """Wait, interruptibly."""
        self.session.interrupts.sleep(float(seconds))

    def fn_pg_postmaster_start_time(self) -> datetime.datetime:
        """Return the start time of the node."""
        return datetime.datetime.fromtimestamp(self.node.started_at, datetime.UTC)

    def fn_pg_conf_load_time(self) -> datetime.datetime:
        """Return the time at which the settings were last read."""
        return datetime.datetime.fromtimestamp(self.node.reloaded_at, datetime.UTC)

    def fn_pg_notify(self, channel: str | None, payload: str | None) -> None:
        """Execute NOTIFY."""
        self.session.block.touch()
        self.session.pending.notify(channel or "", payload or "")

    def fn_pg_listening_channels(self) -> list[tuple[str]]:
        """Return the channels on which this session listens."""
        return [(channel,) for channel in self.session.mailbox.channels]

    def fn_pg_notification_queue_usage(self) -> float:
        """Return the fraction of the notification queue that is in use."""
        return self.node.channels.usage

    def fn_pg_stat_reset(self) -> None:
        """Reset the statistics of the database and its tables."""
        self.node.engine.statistics.reset(self.session.context.database)

    def fn_pg_stat_reset_single_table_counters(self, reloid: int) -> None:
        """Reset the statistics of one table."""
        self.node.engine.statistics.dropped([(self.session.context.database, reloid)])

    def fn_pg_stat_statements_reset(self, userid: int | None = 0, dbid: int | None = 0, queryid: int | None = 0) -> None:
        """Reset the statistics of statements of a role, a database and a query; 0 is any (manual, F.32.3)."""
        if userid is not None and dbid is not None and queryid is not None:
            self.node.statements.reset(userid, dbid, queryid)

    def fn_pg_stat_have_stats(self, kind: str, dboid: int, objoid: int) -> bool:
        """Return whether there are statistics of an object (pgstat.c): `_ALWAYS_COUNTED`, databases, slots and subscriptions.

        `objoid` of a slot is its index in the list of slots. Relations and functions do not have such statistics.
        """
        if kind in _ALWAYS_COUNTED:
            return True
        cursor = self.session.begin_statement().cursor
        match kind:
            case "database":
                return objoid == 0 and (dboid == 0 or any(database.oid == dboid for database in databases.all_databases(cursor)))
            case "subscription":
                return dboid == 0 and subscriptions.find(cursor, objoid) is not None
            case "replslot":
                return dboid == 0 and objoid < len(list(self.node.slots.all()))
            case "relation" | "function":
                return False
            case _:
                raise PostgresError("22023", f'invalid statistics kind: "{kind}"')

    # ---- settings ---------------------------------------------------------------------------------------
    def fn_set_config(self, setting_name: str | None, new_value: str | None, is_local: bool | None) -> str:
        """Execute SET and return the new value."""
        if setting_name is None:
            raise PostgresError("22004", "SET requires parameter name")
        session = self.session
        session.block.touch()
        if setting_name.lower() in session_role.NAMES:
            session_role.set_to(session, setting_name, new_value, local=bool(is_local))
        elif new_value is None:
            session.settings.reset(setting_name, local=bool(is_local), superuser=session.is_superuser)
        else:
            transaction_mode.check(session, setting_name, [new_value])
            session.settings.set(setting_name, new_value, local=bool(is_local), superuser=session.is_superuser)
        session.setting_changed(setting_name)
        return session.settings.text(setting_name)

    def fn_pg_reload_conf(self) -> bool:
        """Reload the configuration files."""
        self.node.reload()
        return True

    def fn_pg_rotate_logfile(self) -> bool:
        """Return false with a warning: a node logs to stderr."""
        self.session.notices.warning("rotation not possible because log collection not active")
        return False

    def fn_pg_current_logfile(self, format: str | None = None) -> None:  # noqa: A002 (the name in PostgreSQL's message)
        """Return NULL: a node logs to stderr (manual, 9.26)."""
        if format is not None and format not in ("stderr", "csvlog", "jsonlog"):
            hint = 'The supported log formats are "stderr", "csvlog", and "jsonlog".'
            raise PostgresError("22023", f'log format "{format}" is not supported', hint=hint)

    # ---- origins ----------------------------------------------------------------------------------------
    def fn_pg_replication_origin_create(self, node_name: str) -> int:
        """Create a replication origin. Raise 42939 for a reserved name."""
        if node_name.startswith("pg_"):
            raise PostgresError(
                "42939", f'replication origin name "{node_name}" is reserved', detail='Origin names starting with "pg_" are reserved.'
            )
        return origins.create(self.session.begin_statement().cursor, node_name)

    def fn_pg_replication_origin_drop(self, node_name: str) -> None:
        """Drop a replication origin. Raise 42704 if it does not exist, 55006 if it is in use."""
        cursor = self.session.begin_statement().cursor
        ident = self._origin(cursor, node_name)
        user = self._origin_user(node_name)
        if user is not None:
            raise PostgresError("55006", f"could not drop replication origin with ID {ident}, in use by PID {user}")
        origins.drop(cursor, node_name)

    @staticmethod
    def _origin(cursor: CatalogCursor, name: str) -> int:
        ident = origins.find(cursor, name)
        if ident is None:
            raise PostgresError("42704", f'replication origin "{name}" does not exist')
        return ident

    def _origin_user(self, name: str) -> int | None:
        """Return the pid of the session or subscription worker that uses an origin, or None."""
        workers = self.node.launcher.workers()
        pids = [worker.backend.pid for worker in workers if worker.origin == name and worker.backend is not None]
        return pids[0] if pids else self.node.origin_users.user(name)

    def fn_pg_replication_origin_session_setup(self, node_name: str) -> None:
        """Attribute the session's writes to this origin. Raise 42704, 55000 or 55006 if that is not possible."""
        ident = self._origin(self.session.begin_statement().cursor, node_name)
        if self.session.block.origin is not None:
            raise PostgresError("55000", "cannot setup replication origin when one is already setup")
        user = self._origin_user(node_name)
        if user is not None:
            raise PostgresError("55006", f"replication origin with ID {ident} is already active for PID {user}")
        self.node.origin_users.enter(node_name, self.pid)
        self.session.block.origin = SessionOrigin(node_name)

    def fn_pg_replication_origin_session_reset(self) -> None:
        """End the attribution of the session's writes to its origin."""
        self._session_origin()
        self.node.origin_users.leave(self.pid)
        self.session.block.origin = None

    def fn_pg_replication_origin_session_is_setup(self) -> bool:
        """Return whether the session has an origin."""
        return self.session.block.origin is not None

    def fn_pg_replication_origin_session_progress(self, flush: bool) -> Lsn | None:
        """Return the progress of the session's origin."""
        return self.fn_pg_replication_origin_progress(self._session_origin().name, flush)

    def fn_pg_replication_origin_xact_setup(self, origin_lsn: Lsn, origin_timestamp: object) -> None:
        """Set the remote LSN of the current transaction's commit."""
        self._session_origin().xact = (Lsn(origin_lsn), None)

    def fn_pg_replication_origin_xact_reset(self) -> None:
        """Discard the remote LSN of the current transaction."""
        self._session_origin().xact = None

    def _session_origin(self) -> SessionOrigin:
        origin = self.session.block.origin
        if origin is None:
            raise PostgresError("55000", "no replication origin is configured")
        return origin

    def fn_pg_replication_origin_oid(self, node_name: str) -> int | None:
        """Return the origin's OID, or NULL."""
        return origins.find(self.session.begin_statement().cursor, node_name)

    def fn_pg_replication_origin_advance(self, node_name: str, lsn: Lsn) -> None:
        """Set the progress of an origin. As in PostgreSQL, a rollback of the transaction does not undo it."""
        user = self._origin_user(node_name)
        if user is not None and user != self.pid:
            cursor = self.session.begin_statement().cursor
            ident = self._origin(cursor, node_name)
            raise PostgresError("55006", f"replication origin with ID {ident} is already active for PID {user}")
        self.node.catalog.change(lambda cursor: origins.advance(cursor, node_name, Lsn(lsn), self.node.engine.log.end))

    def fn_pg_replication_origin_progress(self, node_name: str, flush: bool = False) -> Lsn | None:
        """Return the progress of an origin, or NULL if it has none. Raise 42704 if the origin does not exist."""
        cursor = self.session.begin_statement().cursor
        if origins.find(cursor, node_name) is None:
            raise PostgresError("42704", f'replication origin "{node_name}" does not exist')
        progress = origins.progress(cursor, node_name)
        return None if progress is None else progress.remote_lsn
