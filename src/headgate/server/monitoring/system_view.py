"""The dynamic relations: rows of pg_stat_activity, pg_stat_replication, pg_replication_slots, pg_settings and their like.

`providers` gives for each relation a callable without arguments, whose rows have the columns of PostgreSQL 15 in their order (manual,
28.2 and 54). Called by the session for each catalog query.
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
from headgate.catalog.security import acl
from headgate.catalog.security.role import READ_ALL_SETTINGS, READ_ALL_STATS
from headgate.catalog.system_view import Provider
from headgate.catalog.system_view import relations as relations_of_system
from headgate.commands.privilege import role_name
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.server.authentication import hba, ident_map
from headgate.server.authentication.certificate import shown
from headgate.server.authentication.hba_line import shown as address_shown
from headgate.server.monitoring.status_report import database_names
from headgate.storage.transaction.log import POSTGRES_EPOCH
from headgate.subscriber.apply.prepared import all_prepared
from headgate.subscriber.report import table_report

if TYPE_CHECKING:
    from headgate.server.node import Node
    from headgate.server.session.session import ClientSession

Row = tuple[object, ...]


def providers(node: Node, session: ClientSession) -> Mapping[str, Provider]:
    """The dynamic relations by name."""
    return {
        "pg_stat_activity": partial(_activity, node, session),
        "pg_stat_database": partial(_databases, node),
        "pg_stat_all_tables": partial(_tables, node, session),
        "pg_stat_replication": partial(_replication, node, session),
        "pg_replication_slots": partial(_slots, node, session),
        "pg_stat_replication_slots": partial(_slot_statistics, node),
        "pg_settings": partial(_settings, session),
        "pg_prepared_statements": partial(_prepared, session),
        "pg_cursors": partial(_cursors, session),
        "pg_hba_file_rules": partial(_access_rules, node, session),
        "pg_ident_file_mappings": partial(_mappings, node, session),
        "pg_locks": partial(_locks, node),
        "pg_stat_statements": partial(_statements, node, session),
        "pg_stat_ssl": partial(_ssl, node, session),
        "pg_stat_gssapi": partial(_gssapi, node, session),
        "pg_prepared_xacts": partial(_prepared_transactions, node),
        "relation_sizes": node.engine.sizes,
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
    """Whether the session may see what a role's backends do (HAS_PGSTAT_PERMISSIONS)."""
    if session.context.superuser:
        return True
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        who = acl.role(cursor, session.context.user)
    return who.owns(READ_ALL_STATS) or (role is not None and who.owns(role))


def _reads(session: ClientSession, right: int) -> bool:
    """Whether the session has the rights of a predefined role."""
    if session.context.superuser:
        return True
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        return acl.role(cursor, session.context.user).owns(right)


def _activity(node: Node, session: ClientSession) -> Iterator[Row]:
    for one in node.activity.all():
        head = (one.database, one.database_name, one.pid, None, one.role, one.role_name, one.application_name)
        if not _sees(session, one.role):
            yield (*head, *[None] * 13, "<insufficient privilege>", None)
            continue
        waits = one.wait or (("Client", "ClientRead") if one.state and one.state != "active" else (None, None))
        yield (
            *head,
            one.client_addr,
            one.client_hostname,
            one.client_port,
            _moment(one.started),
            _moment(one.transaction_start),
            _moment(one.query_start),
            _moment(one.state_change),
            *waits,
            one.state,
            None,
            None,
            None,
            one.query,
            one.kind,
        )


def _locks(node: Node) -> Iterator[Row]:
    """Who holds and who waits for what; a row of a catalog is an object, that of a relation's the relation."""
    for each in node.engine.locks.shown():
        kind, relation, classid, objid, objsubid = "transactionid", each.relation, None, None, None
        if each.advisory is not None:
            kind, (_, classid, objid, objsubid) = "advisory", each.advisory
        elif each.row is not None and each.row[0] == "pg_class":
            kind, relation = "relation", each.row[1]
        elif each.row is not None:
            kind, classid, objid, objsubid = "object", relations_of_system()["pg_catalog", each.row[0]].oid, each.row[1], 0
        elif each.relation is not None:
            kind = "relation"
        virtual = f"{each.pid or -1}/{each.owner or 0}"
        place = (kind, each.database, relation, None, None, None, each.xid, classid, objid, objsubid)
        yield (*place, virtual, each.pid, each.mode, each.since is None, False, _moment(each.since))


def _blockers(node: Node) -> Iterator[Row]:
    """What pg_blocking_pids finds: the backends that wait for locks, each with those for whom."""
    for one in node.activity.all():
        pids = node.engine.locks.blocking(one.pid)
        if pids:
            yield (one.pid, pids)


def _statements(node: Node, session: ClientSession) -> Iterator[Row]:
    """Of others' statements neither text nor number are shown to who may not see them; blocks, WAL and JIT are NULL."""
    sees = {role: _sees(session, role) for role in {key.role for key, _ in node.statements.rows()}}
    for key, counts in node.statements.rows():
        shown = (key.query_id, counts.text) if sees.get(key.role, False) else (None, "<insufficient privilege>")
        deviation = math.sqrt(counts.deviation / counts.calls) if counts.calls else 0.0
        times = (counts.total, counts.least, counts.greatest, counts.mean, deviation)
        yield (key.role, key.database, True, *shown, 0, *[0.0] * 5, counts.calls, *times, counts.rows, *[None] * 25)


def _databases(node: Node) -> Iterator[Row]:
    """Counted since the node was made, or a crash; what it does not count (blocks, tuples, time) is NULL."""
    names = database_names(node)
    backends = Counter(one.database for one in node.activity.all())
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


def _tables(node: Node, session: ClientSession) -> Iterator[Row]:
    """Rows inserted, updated and deleted since the node was made, or a crash; dead ones are those that deletion vectors hide.

    What a node does not count (scans) and does not do (VACUUM, ANALYZE) is NULL and 0.
    """
    database = session.context.database
    with contextlib.closing(node.catalog.cursor()) as cursor:
        found = relations.all_tables(cursor, database, {RelationKind.TABLE})
    for each in found:
        counts = node.engine.statistics.of_table((database, each.oid))
        shown = node.engine.visible.get((database, each.oid))
        live, dead = (0, 0) if shown is None else (shown.state.rows, shown.state.dead_rows)
        changed = counts.inserted + counts.updated + counts.deleted
        scans = (None,) * 4
        rows = (counts.inserted, counts.updated, counts.deleted, 0, live, dead, changed, counts.inserted)
        yield (each.oid, each.schema, each.name, *scans, *rows, *(None,) * 4, *(0,) * 4)


def _replication(node: Node, session: ClientSession) -> Iterator[Row]:
    for sender in node.senders.all():
        one = node.activity.find(sender.pid)
        if one is None:
            continue
        head = (one.pid, one.role, one.role_name, one.application_name)
        if not _sees(session, one.role):
            yield (*head, *[None] * 16)
            continue
        priority, state = node.standbys.state(sender.pid)
        reply = None if sender.reply_time is None else _moment(sender.reply_time / 1_000_000 + POSTGRES_EPOCH)
        yield (
            *head,
            one.client_addr,
            one.client_hostname,
            one.client_port,
            _moment(one.started),
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


def _slots(node: Node, session: ClientSession) -> Iterator[Row]:
    """With the columns of the release that the node announces, as `catalog.system_view` has them."""
    announced = session.context.announced
    names = database_names(node)
    for live in node.slots.all():
        slot = live.slot
        active = live.active if live.active is not None else live.owner
        conflicting = slot.lost and announced == 16  # from 17 on: with recovery on a standby alone
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


def _slot_statistics(node: Node) -> Iterator[Row]:
    for live in node.slots.all():
        one = live.counts
        spilled, streamed = (one.spill_txns, one.spill_count, one.spill_bytes), (one.stream_txns, one.stream_count, one.stream_bytes)
        yield (live.slot.name, *spilled, *streamed, one.total_txns, one.total_bytes, _moment(live.reset))


def _settings(session: ClientSession) -> Iterator[Row]:
    for row in session.settings.rows(guarded=_reads(session, READ_ALL_SETTINGS)):
        yield tuple(row.values())


def _prepared(session: ClientSession) -> Iterator[Row]:
    for one in session.prepared.values():
        yield (one.name, one.text, _moment(session.backend.started), list(one.parameters), one.from_sql, 0, 0)


def _prepared_transactions(node: Node) -> Iterator[Row]:
    names = database_names(node)
    with contextlib.closing(node.catalog.cursor()) as cursor:
        found = all_prepared(cursor)
        owners = {one.owner: role_name(cursor, one.owner) for one in found}
    for one in found:
        yield (one.xid, one.gid, one.prepared, owners[one.owner], names.get(one.database))
    for mine in node.engine.prepared.all():
        yield (mine.xid % 2**32, mine.gid, _since_2000(mine.time), mine.owner, names.get(mine.database))


def _cursors(session: ClientSession) -> Iterator[Row]:
    for one in session.portals.values():
        if one.name:
            scrolls = one.buffered is not None and one.buffered.scroll is not False
            yield (one.name, one.prepared.text, one.hold, any(one.formats), scrolls, _moment(session.backend.query_start))


def _ssl(node: Node, session: ClientSession) -> Iterator[Row]:
    """Each client connection; of others' backends not even that they are there, as their port is hidden."""
    for one in node.activity.all():
        if one.client_port is None or not _sees(session, one.role):
            continue
        if one.tls is None:
            yield (one.pid, False, *[None] * 6)
            continue
        found = one.tls.certificate
        names = (None, None, None) if found is None else (shown(found.subject), str(found.serial), shown(found.issuer))
        yield (one.pid, True, one.tls.version, one.tls.cipher, one.tls.bits, *names)


def _gssapi(node: Node, session: ClientSession) -> Iterator[Row]:
    """Each client connection that `_ssl` shows: none of them has come by GSSAPI."""
    for one in node.activity.all():
        if one.client_port is not None and _sees(session, one.role):
            yield (one.pid, False, None, False)


def _access_rules(node: Node, session: ClientSession) -> Iterator[Row]:
    """What pg_hba.conf says now, be it in force or not."""
    if not session.context.superuser:
        raise PostgresError("42501", "permission denied for view pg_hba_file_rules")
    for number, line, error in hba.rules(Path(node.settings.text("hba_file")), tls=node.settings.flag("ssl")):
        if line is None:
            yield (number, *[None] * 7, error)
            continue
        words = ([word.text for word in line.databases], [word.text for word in line.users])
        host = None if line.host is None else line.host.text
        options = [f"{name}={line.options[name]}" for name in ("map", "clientcert") if name in line.options] or None
        place = (
            host if line.address is None else address_shown(line.address),
            None if line.netmask is None else address_shown(line.netmask),
        )
        yield (number, line.kind, *words, *place, line.method, options, error)


def _mappings(node: Node, session: ClientSession) -> Iterator[Row]:
    """What pg_ident.conf says now, be it in force or not."""
    if not session.context.superuser:
        raise PostgresError("42501", "permission denied for view pg_ident_file_mappings")
    for number, line, error in ident_map.mappings(Path(node.settings.text("ident_file"))):
        yield (number, *((None, None, None) if line is None else (line.map, line.system, line.role)), error)


def subscriptions(node: Node) -> Iterator[Row]:
    """The rows of pg_stat_subscription."""
    for row in node.launcher.subscription_rows():
        sent, received, ended = map(_since_2000, (row.last_msg_send_time, row.last_msg_receipt_time, row.latest_end_time))
        yield (row.subid, row.subname, row.pid, row.relid, row.received_lsn, sent, received, row.latest_end_lsn, ended)


def _subscription_tables(node: Node) -> Iterator[Row]:
    """What has been done with each table of each subscription, and with published ones that are in none."""
    for one in table_report(node.launcher):
        head = (one.subscription.oid, one.subscription.name, one.relation, one.schema, one.name, one.state, one.lsn)
        yield (*head, one.copied, one.applied, one.missing, one.left_out, one.resync)


def _copies(node: Node, session: ClientSession) -> Iterator[Row]:
    """COPY of sessions and initial copies; of others' backends only that there is one."""
    names = database_names(node)
    for one in node.activity.all():
        copy = one.copy
        if copy is None:
            continue
        head = (one.pid, one.database, one.database_name)
        if _sees(session, one.role):
            yield (*head, copy.relation, copy.command, "PIPE", copy.bytes, 0, copy.rows, copy.excluded)
        else:
            yield (*head, *[None] * 7)
    for row in node.launcher.copy_rows():
        pid, database, *rest = row
        yield (pid, database, names.get(database), *rest)


def _since_2000(microseconds: int | None) -> datetime.datetime | None:
    return None if microseconds is None else _moment(microseconds / 1_000_000 + POSTGRES_EPOCH)
