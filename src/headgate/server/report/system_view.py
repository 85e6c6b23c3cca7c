"""The dynamic relations: the rows of pg_stat_activity, pg_stat_replication, pg_replication_slots, pg_settings and similar views.

`providers` maps the name of each relation to a callable without arguments. Its rows have the columns of PostgreSQL 15 in their order
(manual, 28.2 and 54). The session calls it for each catalog query.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.replication import subscription as subscription_catalog
from headgate.catalog.security import acl
from headgate.catalog.security.role import READ_ALL_SETTINGS, READ_ALL_STATS
from headgate.catalog.system_view import Provider
from headgate.catalog.system_view import relations as relations_of_system
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.server.authentication import hba, ident_map
from headgate.server.authentication.hba_line import shown as address_shown
from headgate.server.protocol.certificate import shown
from headgate.server.report.status_report import database_names
from headgate.storage.transaction.log import POSTGRES_EPOCH
from headgate.subscriber.apply.prepared import all_prepared
from headgate.subscriber.report import table_report
from headgate.subscriber.synchronization.table_sync import SyncWorker
from headgate.subscriber.worker import Worker
from headgate.walreceiver.progress import ReceiverPosition

if TYPE_CHECKING:
    from headgate.server.node_state import NodeState
    from headgate.server.session.session import ClientSession

Row = tuple[object, ...]


def providers(node: NodeState, session: ClientSession) -> Mapping[str, Provider]:
    """Return the dynamic relations by name."""
    return {
        "pg_stat_activity": partial(_activity, node, session),
        "pg_stat_database": partial(_databases, node),
        "pg_stat_all_tables": partial(_tables, node, session),
        "pg_stat_replication": partial(_replication, node, session),
        "pg_replication_slots": partial(_slots, node, session),
        "pg_stat_replication_slots": partial(_slot_statistics, node),
        "pg_settings": partial(_settings, session),
        "pg_prepared_statements": partial(_prepared_statements, session),
        "pg_cursors": partial(_cursors, session),
        "pg_hba_file_rules": partial(_access_rules, node, session),
        "pg_ident_file_mappings": partial(_mappings, node, session),
        "pg_locks": partial(_locks, node),
        "pg_stat_statements": partial(_statements, node, session),
        "pg_stat_ssl": partial(_ssl, node, session),
        "pg_stat_gssapi": partial(_gssapi, node, session),
        "pg_prepared_xacts": partial(_prepared_transactions, node),
        "relation_sizes": node.engine.folders.sizes,
        "blockers": partial(_blockers, node),
        "pg_stat_subscription": partial(subscriptions, node),
        "pg_stat_subscription_rel": partial(_subscription_tables, node),
        "pg_stat_progress_copy": partial(_copies, node, session),
    }


def _moment(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _lag(seconds: float | None) -> datetime.timedelta | None:
    return None if seconds is None else datetime.timedelta(seconds=round(seconds, 6))


def _lsn(position: Lsn) -> Lsn | None:
    return position or None


def _sees(session: ClientSession, role: int | None) -> bool:
    """Return whether the session may see the activity of a role's backends (HAS_PGSTAT_PERMISSIONS)."""
    if session.context.superuser:
        return True
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        user = acl.role(cursor, session.context.user)
    return user.owns(READ_ALL_STATS) or (role is not None and user.owns(role))


def _reads(session: ClientSession, right: int) -> bool:
    """Return whether the session has the privileges of a predefined role."""
    if session.context.superuser:
        return True
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        return acl.role(cursor, session.context.user).owns(right)


def _activity(node: NodeState, session: ClientSession) -> Iterator[Row]:
    for backend in node.activity.all():
        head = (backend.database, backend.database_name, backend.pid, None, backend.role, backend.role_name, backend.application_name)
        if not _sees(session, backend.role):
            yield (*head, *[None] * 13, "<insufficient privilege>", None)
            continue
        waits = backend.wait or (("Client", "ClientRead") if backend.state and backend.state != "active" else (None, None))
        yield (
            *head,
            backend.client_addr,
            backend.client_hostname,
            backend.client_port,
            _moment(backend.started),
            _moment(backend.transaction_start),
            _moment(backend.query_start),
            _moment(backend.state_change),
            *waits,
            backend.state,
            None,
            None,
            None,
            backend.query,
            backend.kind,
        )


def _locks(node: NodeState) -> Iterator[Row]:
    """Yield the locks that are held or awaited. A row of pg_class is shown as the relation, a row of another catalog as an object."""
    for lock in node.engine.locks.shown():
        kind, relation, classid, objid, objsubid = "transactionid", lock.relation, None, None, None
        if lock.advisory is not None:
            kind, (_, classid, objid, objsubid) = "advisory", lock.advisory
        elif lock.row is not None and lock.row[0] == "pg_class":
            kind, relation = "relation", lock.row[1]
        elif lock.row is not None:
            kind, classid, objid, objsubid = "object", relations_of_system()["pg_catalog", lock.row[0]].oid, lock.row[1], 0
        elif lock.relation is not None:
            kind = "relation"
        virtual = f"{lock.pid or -1}/{lock.owner or 0}"
        target = (kind, lock.database, relation, None, None, None, lock.xid, classid, objid, objsubid)
        yield (*target, virtual, lock.pid, lock.mode, lock.since is None, False, _moment(lock.since))


def _blockers(node: NodeState) -> Iterator[Row]:
    """Yield the backends that wait for locks, with the pids that block them (pg_blocking_pids)."""
    for backend in node.activity.all():
        pids = node.engine.locks.blocking(backend.pid)
        if pids:
            yield (backend.pid, pids)


def _statements(node: NodeState, session: ClientSession) -> Iterator[Row]:
    """Yield statement counts. Text and query ID of others' statements need HAS_PGSTAT_PERMISSIONS. Blocks, WAL and JIT are NULL."""
    sees = {role: _sees(session, role) for role in {key.role for key, _ in node.statements.rows()}}
    for key, counts in node.statements.rows():
        shown = (key.query_id, counts.text) if sees.get(key.role, False) else (None, "<insufficient privilege>")
        deviation = math.sqrt(counts.deviation / counts.calls) if counts.calls else 0.0
        times = (counts.total, counts.least, counts.greatest, counts.mean, deviation)
        yield (key.role, key.database, True, *shown, 0, *[0.0] * 5, counts.calls, *times, counts.rows, *[None] * 25)


def _databases(node: NodeState) -> Iterator[Row]:
    """Yield counts since initdb or the last crash. Values that a node does not count (blocks, tuples, time) are NULL."""
    names = database_names(node)
    backends = Counter(backend.database for backend in node.activity.all())
    for oid, name in names.items():
        counts = node.engine.statistics.of(oid)
        yield (
            oid,
            name,
            backends[oid],
            counts.commits,
            counts.rollbacks,
            *[None] * 10,
            counts.deadlocks,
            *[None] * 11,
            _moment(node.counted_since),
        )


def _tables(node: NodeState, session: ClientSession) -> Iterator[Row]:
    """Yield rows inserted, updated and deleted since initdb or the last crash. Dead rows are those hidden by deletion vectors.

    Values that a node does not count (scans) are NULL. Counts of VACUUM and ANALYZE, which it does not have, are 0.
    """
    database = session.context.database
    with contextlib.closing(node.catalog.cursor()) as cursor:
        tables = relations.all_tables(cursor, database, {RelationKind.TABLE})
    for table in tables:
        counts = node.engine.statistics.of_table((database, table.oid))
        shown = node.engine.tables.visible.get((database, table.oid))
        live, dead = (0, 0) if shown is None else (shown.state.rows, shown.state.dead_rows)
        changed = counts.inserted + counts.updated + counts.deleted
        scans = (None,) * 4
        rows = (counts.inserted, counts.updated, counts.deleted, 0, live, dead, changed, counts.inserted)
        yield (table.oid, table.schema, table.name, *scans, *rows, *(None,) * 4, *(0,) * 4)


def _replication(node: NodeState, session: ClientSession) -> Iterator[Row]:
    for sender in node.senders.all():
        backend = node.activity.find(sender.pid)
        if backend is None:
            continue
        head = (backend.pid, backend.role, backend.role_name, backend.application_name)
        if not _sees(session, backend.role):
            yield (*head, *[None] * 16)
            continue
        priority, state = node.standbys.state(sender.pid)
        reply = None if sender.reply_time is None else _moment(sender.reply_time / 1_000_000 + POSTGRES_EPOCH)
        yield (
            *head,
            backend.client_addr,
            backend.client_hostname,
            backend.client_port,
            _moment(backend.started),
            None,
            sender.state.value,
            _lsn(sender.sent),
            _lsn(sender.write),
            _lsn(sender.flush),
            _lsn(sender.apply),
            _lag(sender.write_lag),
            _lag(sender.flush_lag),
            _lag(sender.apply_lag),
            priority,
            state,
            reply,
        )


def _slots(node: NodeState, session: ClientSession) -> Iterator[Row]:
    """Yield slots with the columns of the PostgreSQL version that the node announces, as in `catalog.system_view`."""
    announced = session.context.announced
    names = database_names(node)
    for live in node.slots.all():
        slot = live.slot
        active = live.active if live.active is not None else live.owner
        conflicting = slot.lost and announced == 16  # from version 17 on only for recovery on a standby
        later = (
            *((18, _lsn(slot.two_phase_at)), (17, _moment(live.inactive_since)), (16, conflicting), (17, slot.invalidation)),
            *((17, slot.failover), (17, False)),
        )
        yield (
            slot.name,
            slot.plugin,
            "logical",
            slot.database,
            names.get(slot.database),
            slot.temporary,
            active is not None,
            active,
            None,
            None,
            None if slot.lost and not slot.idle else slot.restart_lsn,
            slot.confirmed_flush_lsn,
            *node.checkpointer.wal_status(slot),
            slot.two_phase,
            *(value for since, value in later if since <= announced),
        )


def _slot_statistics(node: NodeState) -> Iterator[Row]:
    for live in node.slots.all():
        counts = live.counts
        spilled, streamed = (
            (counts.spill_txns, counts.spill_count, counts.spill_bytes),
            (counts.stream_txns, counts.stream_count, counts.stream_bytes),
        )
        yield (live.slot.name, *spilled, *streamed, counts.total_txns, counts.total_bytes, _moment(live.reset))


def _settings(session: ClientSession) -> Iterator[Row]:
    for row in session.settings.rows(guarded=_reads(session, READ_ALL_SETTINGS)):
        yield tuple(row.values())


def _prepared_statements(session: ClientSession) -> Iterator[Row]:
    for prepared in session.prepared.values():
        yield (prepared.name, prepared.text, _moment(session.backend.started), list(prepared.parameters), prepared.from_sql, 0, 0)


def _prepared_transactions(node: NodeState) -> Iterator[Row]:
    names = database_names(node)
    with contextlib.closing(node.catalog.cursor()) as cursor:
        held = all_prepared(cursor)
        owners = {xact.owner: acl.role_name(cursor, xact.owner) for xact in held}
    for xact in held:
        yield (xact.xid, xact.gid, xact.prepared, owners[xact.owner], names.get(xact.database))
    for own in node.engine.prepared.all():
        yield (own.xid % 2**32, own.gid, _since_2000(own.time), own.owner, names.get(own.database))


def _cursors(session: ClientSession) -> Iterator[Row]:
    for portal in session.portals.values():
        if portal.name:
            scrolls = portal.buffered is not None and portal.buffered.scroll is not False
            yield (portal.name, portal.prepared.text, portal.hold, portal.binary, scrolls, _moment(session.backend.query_start))


def _ssl(node: NodeState, session: ClientSession) -> Iterator[Row]:
    """Yield client connections. Other users' backends are left out, as their port is hidden."""
    for backend in node.activity.all():
        if backend.client_port is None or not _sees(session, backend.role):
            continue
        if backend.tls is None:
            yield (backend.pid, False, *[None] * 6)
            continue
        certificate = backend.tls.certificate
        names = (
            (None, None, None) if certificate is None else (shown(certificate.subject), str(certificate.serial), shown(certificate.issuer))
        )
        yield (backend.pid, True, backend.tls.version, backend.tls.cipher, backend.tls.bits, *names)


def _gssapi(node: NodeState, session: ClientSession) -> Iterator[Row]:
    """Yield the client connections that `_ssl` yields. None of them uses GSSAPI."""
    for backend in node.activity.all():
        if backend.client_port is not None and _sees(session, backend.role):
            yield (backend.pid, False, None, False)


def _access_rules(node: NodeState, session: ClientSession) -> Iterator[Row]:
    """Yield the current lines of pg_hba.conf, whether they are in force or not."""
    if not session.context.superuser:
        raise PostgresError("42501", "permission denied for view pg_hba_file_rules")
    for number, line, error in hba.rules(Path(node.settings.text("hba_file")), tls=node.settings.flag("ssl")):
        if line is None:
            yield (number, *[None] * 7, error)
            continue
        words = ([word.text for word in line.databases], [word.text for word in line.users])
        host = None if line.host is None else line.host.text
        options = [f"{name}={line.options[name]}" for name in ("map", "clientcert") if name in line.options] or None
        address = (
            host if line.address is None else address_shown(line.address),
            None if line.netmask is None else address_shown(line.netmask),
        )
        yield (number, line.kind, *words, *address, line.method, options, error)


def _mappings(node: NodeState, session: ClientSession) -> Iterator[Row]:
    """Yield the current lines of pg_ident.conf, whether they are in force or not."""
    if not session.context.superuser:
        raise PostgresError("42501", "permission denied for view pg_ident_file_mappings")
    for number, line, error in ident_map.mappings(Path(node.settings.text("ident_file"))):
        yield (number, *((None, None, None) if line is None else (line.map, line.system, line.role)), error)


def subscriptions(node: NodeState) -> Iterator[Row]:
    """Yield the rows of pg_stat_subscription. A subscription without an apply worker has a row too."""
    with contextlib.closing(node.catalog.cursor()) as cursor:
        all_subscriptions = subscription_catalog.all_subscriptions(cursor)
    running = node.workers.all()
    for subscription in all_subscriptions:
        workers = [worker for worker in running if worker.subscription.oid == subscription.oid]
        if all(worker.relation is not None for worker in workers):
            yield (subscription.oid, subscription.name, *[None] * 7)
        for worker in workers:
            position = worker.position or ReceiverPosition()
            received = position.received if worker.relation is None and worker.position else None
            times = (position.last_send_time or None, position.last_receipt_time or None)
            sent, receipt, ended = map(_since_2000, (*times, position.latest_end_time or None))
            head = (subscription.oid, subscription.name, _pid(worker), worker.relation)
            yield (*head, received, sent, receipt, position.latest_end or None, ended)


def _pid(worker: Worker) -> int | None:
    return None if worker.backend is None else worker.backend.pid


def _subscription_tables(node: NodeState) -> Iterator[Row]:
    """Yield the tables of each subscription and the published tables that are missing in it."""
    for report in table_report(node.workers):
        head = (report.subscription.oid, report.subscription.name, report.relation, report.schema, report.name, report.state, report.lsn)
        yield (*head, report.copied, report.applied, report.missing, report.left_out, report.resync)


def _copies(node: NodeState, session: ClientSession) -> Iterator[Row]:
    """Yield running COPY commands and initial copies. Of other users' backends only their existence is shown."""
    names = database_names(node)
    for backend in node.activity.all():
        copy = backend.copy
        if copy is None:
            continue
        head = (backend.pid, backend.database, backend.database_name)
        if _sees(session, backend.role):
            yield (*head, copy.relation, copy.command, "PIPE", copy.bytes, 0, copy.rows, copy.excluded)
        else:
            yield (*head, *[None] * 7)
    for worker in node.workers.all():
        if isinstance(worker, SyncWorker) and worker.copy is not None and worker.copy.running:
            rows, size = worker.copy.arrived
            total = max(size, size * worker.copy.estimate // rows) if worker.copy.estimate and rows else 0
            database = worker.subscription.database
            yield (_pid(worker), database, names.get(database), worker.relation, "COPY FROM", "CALLBACK", size, total, rows, 0)


def _since_2000(microseconds: int | None) -> datetime.datetime | None:
    return None if microseconds is None else _moment(microseconds / 1_000_000 + POSTGRES_EPOCH)
