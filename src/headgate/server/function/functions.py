"""The functions that act on the node or the session: slots, backends, settings, origins, positions of the log.

`functions` gives them by PostgreSQL's name to `commands.query.catalog.query`, which calls them with Python values (pg_lsn as Lsn); a
function with OUT parameters returns a tuple, one that returns a set a list of tuples. The names of the parameters are PostgreSQL's.
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


_OWN = ("change_ranges", "explain_row", "publications", "reconcile", "resync", "snapshot", "verify", "wait_for_lsn")
"""Those of the schema headgate."""
_ALWAYS_COUNTED = frozenset({"archiver", "bgwriter", "checkpointer", "slru", "wal"})
"""The kinds of statistics of which each server has one."""


def functions(node: Node, session: ClientSession) -> Mapping[str, Callable[..., object]]:
    """The functions by name."""
    own = _Functions(node, session)
    found = {name.removeprefix("fn_"): getattr(own, name) for name in dir(own) if name.startswith("fn_")}
    return found | {f"headgate.{name}": getattr(own, name) for name in _OWN}


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
    """One session's functions."""

    def __init__(self, node: Node, session: ClientSession) -> None:
        self.node = node
        self.session = session
        self.pid = session.backend.pid

    # ---- the log ----------------------------------------------------------------------------------------
    def fn_pg_current_wal_lsn(self) -> Lsn:
        """The end of the node's log."""
        return self.node.engine.log.end

    fn_pg_current_wal_insert_lsn = fn_pg_current_wal_flush_lsn = fn_pg_current_wal_lsn

    def fn_pg_switch_wal(self) -> Lsn:
        """Moves the end of the log to the next segment."""
        return self.node.engine.switch(self.session.context.database)

    def fn_pg_logical_emit_message(self, transactional: bool | None, prefix: str | None, content: str | bytes | None) -> Lsn | None:
        """A logical decoding message, of text or bytea."""
        if transactional is None or prefix is None or content is None:
            return None
        body = content.encode() if isinstance(content, str) else bytes(content)
        if not transactional:
            return self.node.engine.emit(self.session.context.database, prefix, body)
        self.session.begin_statement().emit(prefix, body)
        return self.node.engine.log.end

    def fn_pg_last_wal_receive_lsn(self) -> None:
        """A node is no standby."""

    fn_pg_last_wal_replay_lsn = fn_pg_last_xact_replay_timestamp = fn_pg_last_wal_receive_lsn

    def fn_txid_current(self) -> int:
        """The transaction's id."""
        return int(self.session.begin_statement().xid)

    fn_pg_current_xact_id = fn_txid_current

    def fn_pg_export_snapshot(self) -> str:
        """Exports the present position as a snapshot."""
        session = self.session
        if session.block.in_subtransaction:
            raise PostgresError("25001", "cannot export a snapshot from a subtransaction")
        position = session.snapshot or self.node.engine.log.end
        return self.node.slots.snapshots.export(position, session.context.database, self.pid)

    # ---- backends ---------------------------------------------------------------------------------------
    def _signalled(self, pid: int, verb: str, what: str, done: str) -> bool:
        """Whether there is a backend that the user may signal (pg_signal_backend); 42501 for one that belongs to who has more rights."""
        backend = self.node.activity.find(pid)
        if backend is None:
            self.session.notices.warning(f"PID {pid} is not a PostgreSQL server process")
            return False
        if self.session.is_superuser:
            return True
        with contextlib.closing(self.node.catalog.cursor()) as cursor:
            owner = None if backend.role is None else roles.find(cursor, backend.role)
            who = acl.role(cursor, self.session.context.user)
        if owner is None or owner.superuser:
            raise PostgresError("42501", f"must be a superuser to {verb} superuser {what}")
        if not who.owns(owner.oid) and not who.owns(roles.SIGNAL_BACKEND):
            message = f"must be a member of the role whose {what} is being {done} or member of pg_signal_backend"
            raise PostgresError("42501", message)
        return True

    def fn_pg_terminate_backend(self, pid: int, timeout: int = 0) -> bool:
        """Ends a backend."""
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
        """Cancels what a backend runs."""
        return self._signalled(pid, "cancel", "query", "canceled") and self.node.activity.cancel(pid)

    def fn_pg_sleep(self, seconds: float) -> None:
        """Waits."""
        self.session.interrupts.sleep(float(seconds))

    def fn_pg_postmaster_start_time(self) -> datetime.datetime:
        """When the node was started."""
        return datetime.datetime.fromtimestamp(self.node.started_at, datetime.UTC)

    def fn_pg_conf_load_time(self) -> datetime.datetime:
        """When the settings were read."""
        return datetime.datetime.fromtimestamp(self.node.reloaded_at, datetime.UTC)

    def fn_pg_notify(self, channel: str | None, payload: str | None) -> None:
        """NOTIFY as a function."""
        self.session.block.touch()
        self.session.block.pending.notify(channel or "", payload or "")

    def fn_pg_listening_channels(self) -> list[tuple[str]]:
        """What this session listens to."""
        return [(channel,) for channel in self.session.mailbox.channels]

    def fn_pg_notification_queue_usage(self) -> float:
        """Which part of the queue of notifications is taken."""
        return self.node.channels.usage

    def fn_pg_stat_reset(self) -> None:
        """Sets the counts of the database and of its tables to zero."""
        self.node.engine.statistics.reset(self.session.context.database)

    def fn_pg_stat_reset_single_table_counters(self, reloid: int) -> None:
        """Sets the counts of one table to zero."""
        self.node.engine.statistics.dropped([(self.session.context.database, reloid)])

    def fn_pg_stat_statements_reset(self, userid: int | None = 0, dbid: int | None = 0, queryid: int | None = 0) -> None:
        """Forgets what has been counted of statements: of a role, in a database, of one statement; 0 is any (manual, F.32.3)."""
        if userid is not None and dbid is not None and queryid is not None:
            self.node.statements.reset(userid, dbid, queryid)

    def fn_pg_stat_have_stats(self, kind: str, dboid: int, objoid: int) -> bool:
        """Whether there are statistics of an object (pgstat.c): `_ALWAYS_COUNTED`, and what databases, slots, subscriptions there are.

        A slot's number is its place among the slots. Relations and functions are not counted.
        """
        if kind in _ALWAYS_COUNTED:
            return True
        cursor = self.session.begin_statement().cursor
        match kind:
            case "database":
                return objoid == 0 and (dboid == 0 or any(one.oid == dboid for one in databases.all_databases(cursor)))
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
        """SET as a function."""
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
        """Reads the configuration files again."""
        self.node.reload()
        return True

    def fn_pg_rotate_logfile(self) -> bool:
        """A node's log goes to its stderr."""
        self.session.notices.warning("rotation not possible because log collection not active")
        return False

    def fn_pg_current_logfile(self, format: str | None = None) -> None:  # noqa: A002 (the name that PostgreSQL's message has)
        """NULL: a node's log goes to its stderr (manual, 9.26)."""
        if format is not None and format not in ("stderr", "csvlog", "jsonlog"):
            hint = 'The supported log formats are "stderr", "csvlog", and "jsonlog".'
            raise PostgresError("22023", f'log format "{format}" is not supported', hint=hint)

    # ---- origins ----------------------------------------------------------------------------------------
    def fn_pg_replication_origin_create(self, node_name: str) -> int:
        """Makes an origin."""
        if node_name.startswith("pg_"):
            raise PostgresError(
                "42939", f'replication origin name "{node_name}" is reserved', detail='Origin names starting with "pg_" are reserved.'
            )
        return origins.create(self.session.begin_statement().cursor, node_name)

    def fn_pg_replication_origin_drop(self, node_name: str) -> None:
        """Removes an origin."""
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
        """The process that uses an origin: a session, or a worker of a subscription."""
        workers = self.node.launcher.workers()
        pids = [worker.backend.pid for worker in workers if worker.origin == name and worker.backend is not None]
        return pids[0] if pids else self.node.origin_users.user(name)

    def fn_pg_replication_origin_session_setup(self, node_name: str) -> None:
        """What the session writes comes from this origin."""
        ident = self._origin(self.session.begin_statement().cursor, node_name)
        if self.session.block.origin is not None:
            raise PostgresError("55000", "cannot setup replication origin when one is already setup")
        user = self._origin_user(node_name)
        if user is not None:
            raise PostgresError("55006", f"replication origin with ID {ident} is already active for PID {user}")
        self.node.origin_users.enter(node_name, self.pid)
        self.session.block.origin = SessionOrigin(node_name)

    def fn_pg_replication_origin_session_reset(self) -> None:
        """What the session writes is its own again."""
        self._session_origin()
        self.node.origin_users.leave(self.pid)
        self.session.block.origin = None

    def fn_pg_replication_origin_session_is_setup(self) -> bool:
        """Whether the session has an origin."""
        return self.session.block.origin is not None

    def fn_pg_replication_origin_session_progress(self, flush: bool) -> Lsn | None:
        """How far the session's origin has been applied."""
        return self.fn_pg_replication_origin_progress(self._session_origin().name, flush)

    def fn_pg_replication_origin_xact_setup(self, origin_lsn: Lsn, origin_timestamp: object) -> None:
        """Where at the remote side the present transaction was committed."""
        self._session_origin().xact = (Lsn(origin_lsn), None)

    def fn_pg_replication_origin_xact_reset(self) -> None:
        """Takes it back."""
        self._session_origin().xact = None

    def _session_origin(self) -> SessionOrigin:
        origin = self.session.block.origin
        if origin is None:
            raise PostgresError("55000", "no replication origin is configured")
        return origin

    def fn_pg_replication_origin_oid(self, node_name: str) -> int | None:
        """The origin's number."""
        return origins.find(self.session.begin_statement().cursor, node_name)

    def fn_pg_replication_origin_advance(self, node_name: str, lsn: Lsn) -> None:
        """Sets how far an origin has been applied; at once, as in PostgreSQL, whatever becomes of the transaction."""
        user = self._origin_user(node_name)
        if user is not None and user != self.pid:
            cursor = self.session.begin_statement().cursor
            ident = self._origin(cursor, node_name)
            raise PostgresError("55006", f"replication origin with ID {ident} is already active for PID {user}")
        self.node.catalog.change(lambda cursor: origins.advance(cursor, node_name, Lsn(lsn), self.node.engine.log.end))

    def fn_pg_replication_origin_progress(self, node_name: str, flush: bool = False) -> Lsn | None:
        """How far an origin has been applied."""
        cursor = self.session.begin_statement().cursor
        if origins.find(cursor, node_name) is None:
            raise PostgresError("42704", f'replication origin "{node_name}" does not exist')
        found = origins.progress(cursor, node_name)
        return None if found is None else found.remote_lsn
