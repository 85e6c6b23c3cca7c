"""The commands of a replication connection (manual, 55.4).

The simple query protocol calls `Walsender.run` with each query string. It executes replication commands and leaves SQL to the session. Each
query string ends the snapshot that CREATE_REPLICATION_SLOT has exported.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headgate.backup import catalog as backup
from headgate.backup import target
from headgate.catalog.security import acl
from headgate.catalog.security.role import READ_ALL_SETTINGS
from headgate.errors import PostgresError, cannot_write
from headgate.publisher.slots import check_name, invalidated
from headgate.settings.definition import guarded, is_guarded
from headgate.sql import secret
from headgate.storage import inventory
from headgate.types import registry
from headgate.types.resultset import ResultColumn, of_rows
from headgate.walsender import grammar, options
from headgate.walsender.grammar import CreateReplicationSlot, StartReplication
from headgate.walsender.host import Host
from headgate.walsender.sender import Sender

_log = logging.getLogger("headgate.walsender")
TEXT, INT4 = registry.TEXT, registry.INT4
TIMELINE = "1"


class Walsender:
    """The replication side of one session."""

    def __init__(self, host: Host, *, physical: bool) -> None:
        self.host = host
        self.physical = physical
        self._streamed = False
        """Whether a stream of the session has ended. PostgreSQL ends a second one at once, because it does not reset its flags."""

    def run(self, text: str) -> bool:
        """Run a replication command. Return False if the text is SQL."""
        node = self.host.node
        node.slots.snapshots.forget(self.host.pid)
        command = grammar.parse(text, self.host.notices)
        if command is None:
            if self.physical:
                raise PostgresError("0A000", "cannot execute SQL commands in WAL sender for physical replication")
            return False
        if self.host.settings.flag("log_replication_commands"):
            _log.info("received replication command: %s", secret.hidden(text))
        self.host.block.check_not_failed()
        _RUNNERS[type(command)](self, command)
        return True

    # ---- simple commands --------------------------------------------------------------------------------
    def identify(self, command: grammar.IdentifySystem) -> None:
        node = self.host.node
        columns = (
            ResultColumn("systemid", TEXT),
            ResultColumn("timeline", INT4),
            ResultColumn("xlogpos", TEXT),
            ResultColumn("dbname", TEXT),
        )
        name = None if self.physical else self.host.context.database_name
        row = (node.system_identifier, TIMELINE, str(node.engine.log.end), name)
        self.host.send_result(of_rows(columns, [row], "IDENTIFY_SYSTEM"))

    def show(self, command: grammar.Show) -> None:
        """Run SHOW name. Raise 42501 for a setting that the role may not read."""
        settings = self.host.settings
        columns = (ResultColumn(settings.canonical(command.name), TEXT),)
        if is_guarded(command.name) and not self._reads_all():
            raise guarded(settings.canonical(command.name))
        self.host.send_result(of_rows(columns, [(settings.text(command.name),)], "SHOW"))

    def _reads_all(self) -> bool:
        """Return whether the role has the privileges of pg_read_all_settings."""
        with contextlib.closing(self.host.node.catalog.cursor()) as cursor:
            return acl.role(cursor, self.host.context.user).owns(READ_ALL_SETTINGS)

    def timeline_history(self, command: grammar.TimelineHistory) -> None:
        """Run TIMELINE_HISTORY n. Raise 58P01: a node has one timeline and no file about it."""
        columns = (ResultColumn("filename", TEXT), ResultColumn("content", TEXT))
        self.host.send_description(of_rows(columns, []))
        name = f"{command.timeline:08X}.history"
        raise PostgresError("58P01", f'could not open file "pg_wal/{name}": No such file or directory')

    def read_slot(self, command: grammar.ReadReplicationSlot) -> None:
        """Run READ_REPLICATION_SLOT name, for physical slots, which a node does not have."""
        if self.host.node.slots.find(command.slot) is not None:
            raise PostgresError("0A000", "cannot use READ_REPLICATION_SLOT with a logical replication slot")
        columns = (ResultColumn("slot_type", TEXT), ResultColumn("restart_lsn", TEXT), ResultColumn("restart_tli", registry.INT8))
        self.host.send_result(of_rows(columns, [(None, None, None)], "READ_REPLICATION_SLOT"))

    def base_backup(self, command: grammar.BaseBackup) -> None:
        """Raise 0A000: BASE_BACKUP is not supported."""
        raise PostgresError("0A000", "BASE_BACKUP is not supported by a node")

    # ---- commands that only a node has -------------------------------------------------------------------
    def check_node(self, command: grammar.CheckNode) -> None:
        """Run CHECK_NODE ['database']: return the findings of `headgate.check`, a row each.

        Only for superusers, as it covers all databases. The command tag contains the number of tables that were checked.
        """
        self._check_superuser("check a node")
        tables = 0

        def findings() -> Iterator[tuple[str, str, str, str]]:
            nonlocal tables
            tables = yield from self.host.node.findings(command.database, lambda what: self.host.tell_progress(f"checking {what}"))

        rows = []
        for finding in findings():
            self.host.check()
            rows.append(finding)
        columns = tuple(ResultColumn(name, TEXT) for name in ("severity", "place", "what", "advice"))
        self.host.send_result(of_rows(columns, rows, f"CHECK_NODE {tables}"))

    def backup_catalog(self, command: grammar.BackupCatalog) -> None:
        """Run BACKUP_CATALOG: copy the catalog into a marked folder. Its files are retained until the next command or the disconnect."""
        self._check_superuser("back up a node")
        node, folder = self.host.node, Path(command.folder)
        if not folder.is_absolute() or not target.is_incomplete(folder):
            raise PostgresError("22023", f'directory "{folder}" has not been made for a backup')
        node.slots.snapshots.export(node.engine.log.end, 0, self.host.pid)
        try:
            end = backup.of_running(node.engine, node.data_dir, folder)
        except OSError as error:
            raise cannot_write(error, folder) from error
        columns = tuple(ResultColumn(name, TEXT) for name in ("lsn", "location"))
        self.host.send_result(of_rows(columns, [(str(end), str(node.engine.base))], "BACKUP_CATALOG"))

    def list_tables(self, command: grammar.ListTables) -> None:
        """Run LIST_TABLES ['database']: all tables at one LSN, as `headgate.snapshot()` in every database. Only for superusers."""
        self._check_superuser("list the tables of all databases")
        engine = self.host.node.engine
        pin = engine.begin(0)
        try:
            with engine.commit_lock:
                pin.isolate(None, serializable=False)
                cursor, end = pin.cursor, pin.snapshot.lsn
            rows = [
                (
                    table.database,
                    table.schema,
                    table.name,
                    str(table.oid),
                    str(table.path),
                    str(table.version),
                    str(end),
                    json.dumps(table.columns),
                )
                for table in inventory.tables(cursor, engine.folders, engine.log.versions(end), command.database)
            ]
        finally:
            pin.rollback()
        names = ("database", "schema", "name", "oid", "path", "version", "lsn", "columns")
        self.host.send_result(of_rows(tuple(ResultColumn(name, TEXT) for name in names), rows, "LIST_TABLES"))

    def _check_superuser(self, action: str) -> None:
        if not self.host.context.superuser:
            raise PostgresError("42501", f"must be superuser to {action}")

    # ---- slots ------------------------------------------------------------------------------------------
    def create_slot(self, command: CreateReplicationSlot) -> None:
        snapshot, two_phase, failover = _slot_options(command)
        if command.plugin is None:
            raise PostgresError("0A000", "a node has no physical replication slots")
        if self.physical:
            raise PostgresError("55000", "logical decoding requires a database connection")
        self._check_transaction(snapshot)
        node, context = self.host.node, self.host.context
        slot = node.slots.create(
            command.slot,
            command.plugin,
            context.database,
            pid=self.host.pid,
            temporary=command.temporary,
            two_phase=two_phase,
            failover=failover,
        )
        name = None
        if snapshot == "export":
            name = node.slots.snapshots.export(slot.confirmed_flush_lsn, context.database, self.host.pid)
        elif snapshot == "use":
            self.host.block.import_snapshot(slot.confirmed_flush_lsn)
        columns = tuple(ResultColumn(name, TEXT) for name in ("slot_name", "consistent_point", "snapshot_name", "output_plugin"))
        row = (command.slot, str(slot.confirmed_flush_lsn), name, command.plugin)
        self.host.send_result(of_rows(columns, [row], "CREATE_REPLICATION_SLOT"))

    def _check_transaction(self, snapshot: str) -> None:
        """Raise an error if the slot cannot be created in the session's transaction, as PostgreSQL does."""
        block = self.host.block
        if snapshot == "export":
            if block.is_open():
                raise _slot_error("(SNAPSHOT 'export') must not be called inside a transaction")
        elif snapshot == "use":
            if not block.is_open():
                raise _slot_error("(SNAPSHOT 'use') must be called inside a transaction")
            if block.isolation() != "repeatable read":
                raise _slot_error("(SNAPSHOT 'use') must be called in REPEATABLE READ isolation mode transaction")
            if block.statements():
                raise _slot_error("(SNAPSHOT 'use') must be called before any query")
            if block.in_subtransaction():
                raise _slot_error("(SNAPSHOT 'use') must not be called in a subtransaction")
        if block.has_writes():
            raise PostgresError("25001", "cannot create logical replication slot in transaction that has performed writes")

    def drop_slot(self, command: grammar.DropReplicationSlot) -> None:
        """Run DROP_REPLICATION_SLOT name [WAIT]."""
        check_name(command.slot)
        host = self.host
        host.node.slots.drop(command.slot, host.pid, host.check if command.wait else None)
        host.complete("DROP_REPLICATION_SLOT")

    def alter_slot(self, command: grammar.AlterReplicationSlot) -> None:
        """Run ALTER_REPLICATION_SLOT name (FAILOVER …, TWO_PHASE …) of 17 and 18. Wait while the slot is active."""
        flags: dict[str, bool] = {}
        for name, value in command.options:
            if name not in ("failover", "two_phase"):
                raise PostgresError("XX000", f"unrecognized option: {name}")
            if name in flags:
                raise PostgresError("42601", "conflicting or redundant options")
            flags[name] = _flag(name, value)
        host = self.host
        host.node.slots.alter(command.slot, host.pid, flags, host.check)
        host.complete("ALTER_REPLICATION_SLOT")

    # ---- the stream -------------------------------------------------------------------------------------
    def start(self, command: StartReplication) -> None:
        host = self.host
        slots, pid = host.node.slots, host.pid
        if command.slot is None:
            raise PostgresError("0A000", "physical replication is not supported by a node")
        if not command.logical:
            slots.get(command.slot)
            raise PostgresError("55000", "cannot use a logical replication slot for physical replication")
        if self.physical:
            raise PostgresError("55000", "logical decoding requires a database connection")
        if host.block.is_open():
            raise PostgresError("25001", "START_REPLICATION cannot run inside a transaction block")
        slot = slots.acquire(command.slot, pid)
        try:
            if slot.database != host.context.database:
                raise PostgresError("55000", f'replication slot "{slot.name}" was not created in this database')
            if slot.idle:
                raise invalidated(slot)
            if slot.lost:
                raise PostgresError(
                    "55000",
                    f'cannot read from logical replication slot "{slot.name}"',
                    detail="This slot has been invalidated because it exceeded the maximum reserved size.",
                )
            try:
                plugin_options = options.read(command.options, host.settings.integer("server_version_num"))
            except PostgresError as error:
                raise error.within(f'slot "{slot.name}", output plugin "pgoutput", in the startup callback') from error
            host.copy_both()
            if not self._streamed:
                self._stream(Sender(host, slot, command.start, plugin_options))
            host.complete("COPY 0")
            host.complete("START_REPLICATION")
        finally:
            slots.release(command.slot, pid)

    def _stream(self, sender: Sender) -> None:
        try:
            sender.run()
            self._streamed = True
        finally:
            sender.close()


def _slot_error(words: str) -> PostgresError:
    return PostgresError("XX000", f"CREATE_REPLICATION_SLOT ... {words}")


def _flag(name: str, value: str | None) -> bool:
    """Return the value of a Boolean option (defGetBoolean). Raise 42601 for any other value."""
    flag = options.switch(value)
    if flag is None:
        raise PostgresError("42601", f"{name} requires a Boolean value")
    return flag


def _slot_options(command: CreateReplicationSlot) -> tuple[str, bool, bool]:
    """Return (snapshot action, two_phase, failover) of the options. The default action is export."""
    values: dict[str, str | bool | None] = {}
    for name, value in command.options:
        if name not in ("snapshot", "two_phase", "failover", "reserve_wal"):
            raise PostgresError("XX000", f"unrecognized option: {name}")
        if name in values or (name == "reserve_wal") != (command.plugin is None):
            raise PostgresError("42601", "conflicting or redundant options")
        values[name] = value if name == "snapshot" else _flag(name, value)
        if name == "snapshot" and value is None:
            raise PostgresError("42601", "snapshot requires a parameter")
        if name == "snapshot" and value not in ("export", "nothing", "use"):
            raise PostgresError("22023", f'unrecognized value for CREATE_REPLICATION_SLOT option "snapshot": "{value}"')
    return str(values.get("snapshot") or "export"), bool(values.get("two_phase")), bool(values.get("failover"))


# each function takes the command type of its key
_RUNNERS: dict[type, Callable[[Walsender, Any], None]] = {
    grammar.IdentifySystem: Walsender.identify,
    grammar.Show: Walsender.show,
    grammar.TimelineHistory: Walsender.timeline_history,
    grammar.ReadReplicationSlot: Walsender.read_slot,
    grammar.BaseBackup: Walsender.base_backup,
    CreateReplicationSlot: Walsender.create_slot,
    grammar.DropReplicationSlot: Walsender.drop_slot,
    grammar.AlterReplicationSlot: Walsender.alter_slot,
    StartReplication: Walsender.start,
    grammar.CheckNode: Walsender.check_node,
    grammar.BackupCatalog: Walsender.backup_catalog,
    grammar.ListTables: Walsender.list_tables,
}
