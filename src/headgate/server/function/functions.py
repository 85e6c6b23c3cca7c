"""The functions that act on the node or the session: slots, backends, settings, origins, LSNs.

`functions` returns them by PostgreSQL's name for `commands.query.catalog.query`, which calls them with Python values (pg_lsn as Lsn). A
function with OUT parameters returns a tuple, a set-returning one a list of tuples. The parameters have PostgreSQL's names.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from headgate.catalog import database as databases
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import publication
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.security import acl
from headgate.catalog.security import role as roles
from headgate.errors import PostgresError, existing
from headgate.lsn import Lsn
from headgate.server.function import advisory_function, own_function, sequence_function, slot_function, subscription_function
from headgate.server.session import session_role, transaction_mode
from headgate.server.session_origin import SessionOrigin

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor
    from headgate.server.session.session import ClientSession


def publications(session: ClientSession) -> list[tuple[object, ...]]:
    """Return (name, reconcile) of each publication of the database."""
    cursor = session.begin_statement().cursor
    return [(row.name, row.reconcile) for row in publication.all_publications(cursor, session.context.database)]


_ALWAYS_COUNTED = frozenset({"archiver", "bgwriter", "checkpointer", "slru", "wal"})
"""The kinds of statistics of which each server has exactly one."""


# ---- the log ----------------------------------------------------------------------------------------
def pg_current_wal_lsn(session: ClientSession) -> Lsn:
    """Return the end of the node's transaction log."""
    return session.node.engine.log.end


def pg_switch_wal(session: ClientSession) -> Lsn:
    """Move the end of the log to the next segment."""
    return session.node.engine.switch(session.context.database)


def pg_logical_emit_message(
    session: ClientSession, transactional: bool | None, prefix: str | None, content: str | bytes | None
) -> Lsn | None:
    """Write a logical decoding message of text or bytea. Return its LSN, or NULL if an argument is NULL."""
    if transactional is None or prefix is None or content is None:
        return None
    body = content.encode() if isinstance(content, str) else bytes(content)
    if not transactional:
        return session.node.engine.emit(session.context.database, prefix, body)
    session.begin_statement().emit(prefix, body)
    return session.node.engine.log.end


def pg_last_wal_receive_lsn(session: ClientSession) -> None:
    """Return NULL: a node is not a standby."""


def txid_current(session: ClientSession) -> int:
    return int(session.begin_statement().xid)


def pg_export_snapshot(session: ClientSession) -> str:
    """Export the snapshot, or the end of the log if there is none, until the transaction ends. Raise 25001 in a subtransaction."""
    if session.block.in_subtransaction:
        raise PostgresError("25001", "cannot export a snapshot from a subtransaction")
    position, snapshots, pid = session.snapshot or session.node.engine.log.end, session.node.slots.snapshots, session.backend.pid
    for at_the_end in (session.after_commit, session.after_rollback):
        at_the_end(lambda: snapshots.forget(pid))
    return snapshots.export(position, session.context.database, pid)


# ---- backends ---------------------------------------------------------------------------------------
def _signal(session: ClientSession, pid: int, verb: str, noun: str, done: str) -> bool:
    """Return whether the backend exists. Raise 42501 if the user may not signal it (pg_signal_backend)."""
    backend = session.node.activity.find(pid)
    if backend is None:
        session.notices.warning(f"PID {pid} is not a PostgreSQL server process")
        return False
    if session.is_superuser:
        return True
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        owner = None if backend.role is None else roles.find(cursor, backend.role)
        user = acl.role(cursor, session.context.user)
    if owner is None or owner.superuser:
        raise PostgresError("42501", f"must be a superuser to {verb} superuser {noun}")
    if not user.owns(owner.oid) and not user.owns(roles.SIGNAL_BACKEND):
        message = f"must be a member of the role whose {noun} is being {done} or member of pg_signal_backend"
        raise PostgresError("42501", message)
    return True


def pg_terminate_backend(session: ClientSession, pid: int, timeout: int = 0) -> bool:
    """Terminate a backend. With a `timeout` in ms, return whether it ended in that time."""
    if timeout < 0:
        raise PostgresError("22003", '"timeout" must not be negative')
    if not _signal(session, pid, "terminate", "process", "terminated"):
        return False
    backend = session.node.activity.find(pid)
    session.node.activity.terminate(pid)
    if timeout and backend is not None:
        return session.node.activity.wait_gone([backend], timeout / 1000)
    return True


def pg_cancel_backend(session: ClientSession, pid: int) -> bool:
    return _signal(session, pid, "cancel", "query", "canceled") and session.node.activity.cancel(pid)


def pg_sleep(session: ClientSession, seconds: float) -> None:
    """Wait, interruptibly."""
    session.interrupts.sleep(float(seconds))


def pg_postmaster_start_time(session: ClientSession) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(session.node.started_at, datetime.UTC)


def pg_conf_load_time(session: ClientSession) -> datetime.datetime:
    """Return the time at which the settings were last read."""
    return datetime.datetime.fromtimestamp(session.node.reloaded_at, datetime.UTC)


def pg_notify(session: ClientSession, channel: str | None, payload: str | None) -> None:
    session.block.touch()
    session.pending.notify(channel or "", payload or "")


def pg_listening_channels(session: ClientSession) -> list[tuple[str]]:
    return [(channel,) for channel in session.mailbox.channels]


def pg_notification_queue_usage(session: ClientSession) -> float:
    """Return the fraction of the notification queue that is in use."""
    return session.node.channels.usage


def pg_stat_reset(session: ClientSession) -> None:
    """Reset the statistics of the database and its tables."""
    session.node.engine.statistics.reset(session.context.database)


def pg_stat_reset_single_table_counters(session: ClientSession, reloid: int) -> None:
    session.node.engine.statistics.dropped([(session.context.database, reloid)])


def pg_stat_statements_reset(session: ClientSession, userid: int | None = 0, dbid: int | None = 0, queryid: int | None = 0) -> None:
    """Reset the statistics of statements of a role, a database and a query; 0 is any (manual, F.32.3)."""
    if userid is not None and dbid is not None and queryid is not None:
        session.node.statements.reset(userid, dbid, queryid)


def pg_stat_have_stats(session: ClientSession, kind: str, dboid: int, objoid: int) -> bool:
    """Return whether there are statistics of an object (pgstat.c): `_ALWAYS_COUNTED`, databases, slots and subscriptions.

    `objoid` of a slot is its index in the list of slots. Relations and functions do not have such statistics.
    """
    if kind in _ALWAYS_COUNTED:
        return True
    cursor = session.begin_statement().cursor
    match kind:
        case "database":
            return objoid == 0 and (dboid == 0 or any(database.oid == dboid for database in databases.all_databases(cursor)))
        case "subscription":
            return dboid == 0 and subscriptions.find(cursor, objoid) is not None
        case "replslot":
            return dboid == 0 and objoid < len(list(session.node.slots.all()))
        case "relation" | "function":
            return False
        case _:
            raise PostgresError("22023", f'invalid statistics kind: "{kind}"')


# ---- settings ---------------------------------------------------------------------------------------
def set_config(session: ClientSession, setting_name: str | None, new_value: str | None, is_local: bool | None) -> str:
    if setting_name is None:
        raise PostgresError("22004", "SET requires parameter name")
    session.block.touch()
    if setting_name.lower() in session_role.NAMES:
        session.role.set_to(setting_name, new_value, local=bool(is_local))
    elif new_value is None:
        session.settings.reset(setting_name, local=bool(is_local), superuser=session.is_superuser)
    else:
        transaction_mode.check(session, setting_name, [new_value])
        session.settings.set(setting_name, new_value, local=bool(is_local), superuser=session.is_superuser)
    session.setting_changed(setting_name)
    return session.settings.text(setting_name)


def pg_reload_conf(session: ClientSession) -> bool:
    session.node.reload_files()
    return True


def pg_rotate_logfile(session: ClientSession) -> bool:
    """Return false with a warning: a node logs to stderr."""
    session.notices.warning("rotation not possible because log collection not active")
    return False


def pg_current_logfile(session: ClientSession, format: str | None = None) -> None:  # noqa: A002 (the name in PostgreSQL's message)
    """Return NULL: a node logs to stderr (manual, 9.26)."""
    if format is not None and format not in ("stderr", "csvlog", "jsonlog"):
        hint = 'The supported log formats are "stderr", "csvlog", and "jsonlog".'
        raise PostgresError("22023", f'log format "{format}" is not supported', hint=hint)


# ---- origins ----------------------------------------------------------------------------------------
def pg_replication_origin_create(session: ClientSession, node_name: str) -> int:
    """Create a replication origin. Raise 42939 for a reserved name."""
    if node_name.startswith("pg_"):
        raise PostgresError(
            "42939", f'replication origin name "{node_name}" is reserved', detail='Origin names starting with "pg_" are reserved.'
        )
    return origins.create(session.begin_statement().cursor, node_name)


def pg_replication_origin_drop(session: ClientSession, node_name: str) -> None:
    """Drop a replication origin. Raise 42704 if it does not exist, 55006 if it is in use."""
    cursor = session.begin_statement().cursor
    ident = _origin(cursor, node_name)
    user = _origin_user(session, node_name)
    if user is not None:
        raise PostgresError("55006", f"could not drop replication origin with ID {ident}, in use by PID {user}")
    origins.drop(cursor, node_name)


def _origin(cursor: CatalogCursor, name: str) -> int:
    return existing(origins.find(cursor, name), "42704", f'replication origin "{name}"')


def _origin_user(session: ClientSession, name: str) -> int | None:
    """Return the pid of the session or subscription worker that uses an origin, or None."""
    workers = session.node.workers.all()
    pids = [worker.backend.pid for worker in workers if worker.origin == name and worker.backend is not None]
    return pids[0] if pids else session.node.origin_users.user(name)


def pg_replication_origin_session_setup(session: ClientSession, node_name: str) -> None:
    """Attribute the session's writes to this origin. Raise 42704, 55000 or 55006 if that is not possible."""
    ident = _origin(session.begin_statement().cursor, node_name)
    if session.block.origin is not None:
        raise PostgresError("55000", "cannot setup replication origin when one is already setup")
    user = _origin_user(session, node_name)
    if user is not None:
        raise PostgresError("55006", f"replication origin with ID {ident} is already active for PID {user}")
    session.node.origin_users.enter(node_name, session.backend.pid)
    session.block.origin = SessionOrigin(node_name)


def pg_replication_origin_session_reset(session: ClientSession) -> None:
    """End the attribution of the session's writes to its origin."""
    _session_origin(session)
    session.node.origin_users.leave(session.backend.pid)
    session.block.origin = None


def pg_replication_origin_session_is_setup(session: ClientSession) -> bool:
    return session.block.origin is not None


def pg_replication_origin_session_progress(session: ClientSession, flush: bool) -> Lsn | None:
    return pg_replication_origin_progress(session, _session_origin(session).name, flush)


def pg_replication_origin_xact_setup(session: ClientSession, origin_lsn: Lsn, origin_timestamp: object) -> None:
    """Set the remote LSN of the current transaction's commit."""
    _session_origin(session).xact = (Lsn(origin_lsn), None)


def pg_replication_origin_xact_reset(session: ClientSession) -> None:
    """Discard the remote LSN of the current transaction."""
    _session_origin(session).xact = None


def _session_origin(session: ClientSession) -> SessionOrigin:
    origin = session.block.origin
    if origin is None:
        raise PostgresError("55000", "no replication origin is configured")
    return origin


def pg_replication_origin_oid(session: ClientSession, node_name: str) -> int | None:
    return origins.find(session.begin_statement().cursor, node_name)


def pg_replication_origin_advance(session: ClientSession, node_name: str, lsn: Lsn) -> None:
    """Set the progress of an origin. As in PostgreSQL, a rollback of the transaction does not undo it."""
    user = _origin_user(session, node_name)
    if user is not None and user != session.backend.pid:
        cursor = session.begin_statement().cursor
        ident = _origin(cursor, node_name)
        raise PostgresError("55006", f"replication origin with ID {ident} is already active for PID {user}")
    local_lsn = session.node.engine.log.end
    session.node.catalog.change(lambda cursor: origins.advance(cursor, node_name, Lsn(lsn), local_lsn, backward=True))


def pg_replication_origin_progress(session: ClientSession, node_name: str, flush: bool = False) -> Lsn | None:
    """Return the progress of an origin, or NULL if it has none. Raise 42704 if the origin does not exist."""
    cursor = session.begin_statement().cursor
    _origin(cursor, node_name)
    progress = origins.progress(cursor, node_name)
    return None if progress is None else progress.remote_lsn


_BUILTIN: tuple[Callable[..., object], ...] = (
    pg_current_wal_lsn, pg_switch_wal, pg_logical_emit_message, pg_last_wal_receive_lsn, txid_current, pg_export_snapshot,
    pg_terminate_backend, pg_cancel_backend, pg_sleep, pg_postmaster_start_time, pg_conf_load_time, pg_notify, pg_listening_channels,
    pg_notification_queue_usage, pg_stat_reset, pg_stat_reset_single_table_counters, pg_stat_statements_reset, pg_stat_have_stats,
    set_config, pg_reload_conf, pg_rotate_logfile, pg_current_logfile, pg_replication_origin_create, pg_replication_origin_drop,
    pg_replication_origin_session_setup, pg_replication_origin_session_reset, pg_replication_origin_session_is_setup,
    pg_replication_origin_session_progress, pg_replication_origin_xact_setup, pg_replication_origin_xact_reset,
    pg_replication_origin_oid, pg_replication_origin_advance, pg_replication_origin_progress,
    sequence_function.nextval, sequence_function.currval, sequence_function.lastval, sequence_function.setval,
    slot_function.pg_create_logical_replication_slot, slot_function.pg_copy_logical_replication_slot,
    slot_function.pg_sync_replication_slots, slot_function.pg_create_physical_replication_slot, slot_function.pg_drop_replication_slot,
    slot_function.pg_replication_slot_advance, slot_function.pg_logical_slot_get_changes, slot_function.pg_logical_slot_peek_changes,
    slot_function.pg_logical_slot_get_binary_changes, slot_function.pg_logical_slot_peek_binary_changes,
    slot_function.pg_stat_reset_replication_slot, slot_function.pg_stat_get_replication_slot,
    subscription_function.pg_stat_get_subscription, subscription_function.pg_stat_get_subscription_stats,
    subscription_function.pg_stat_reset_subscription_stats,
)  # fmt: skip
"""PostgreSQL's functions, by their own names."""
_OWN: tuple[Callable[..., object], ...] = (
    own_function.change_ranges, own_function.explain_row, publications, own_function.snapshot,
    subscription_function.resync, subscription_function.reconcile, subscription_function.wait_for_lsn,
    subscription_function.complete_until, own_function.verify,
)  # fmt: skip
"""The functions in the schema headgate."""
_ALIASES = {
    "pg_current_wal_flush_lsn": pg_current_wal_lsn,
    "pg_current_wal_insert_lsn": pg_current_wal_lsn,
    "pg_current_xact_id": txid_current,
    "pg_last_wal_replay_lsn": pg_last_wal_receive_lsn,
    "pg_last_xact_replay_timestamp": pg_last_wal_receive_lsn,
}
_FUNCTIONS: Mapping[str, Callable[..., object]] = (
    {function.__name__: function for function in _BUILTIN}
    | {f"headgate.{function.__name__}": function for function in _OWN}
    | advisory_function.FUNCTIONS
    | _ALIASES
)
"""All functions by name. Their first argument is the session."""


def functions(session: ClientSession) -> Mapping[str, Callable[..., object]]:
    return {name: partial(function, session) for name, function in _FUNCTIONS.items()}
