"""The parts of the node and the functions of the server that commands use (`commands.session.NodeParts`).

Called by the node. `subscriber_host` returns those that the subscriber uses (`subscriber.host`).
"""

from __future__ import annotations

import functools
import os
from functools import partial
from typing import TYPE_CHECKING

from headgate.commands.session import NodeParts
from headgate.server.monitoring import log_line_prefix
from headgate.server.notification import Mailbox
from headgate.server.session import cursor, utility
from headgate.subscriber.host import Commands, Host
from headgate.subscriber.rows.leaf_constraints import UniqueChecks
from headgate.subscriber.subscription_statistics import Ledger

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.commands.pending_notifications import PendingNotifications
    from headgate.commands.result import Result
    from headgate.commands.session import Session
    from headgate.server.monitoring.activity import Backend
    from headgate.server.node_state import NodeState
    from headgate.sql.parser import ParseNode
    from headgate.types.resultset import ResultSet


def of_node(node: NodeState) -> NodeParts:
    def announce(database_oid: int, pending: PendingNotifications) -> None:
        node.channels.committed(Mailbox(database_oid, lambda: None), pending, os.getpid())

    return NodeParts(
        catalog=node.catalog,
        engine=node.engine,
        settings=node.settings,
        data_dir=node.data_dir,
        slots=node.slots,
        workers=node.workers,
        run_statement=_run_statement,
        insert_rows=_insert_rows,
        modify=_modify,
        open_cursor=cursor.open_for_function,
        move_cursor=cursor.move_for_function,
        close_cursor=cursor.close_for_function,
        announce=announce,
        sessions_of=lambda database: len(node.activity.of_database(database)),
        terminate_database=node.activity.terminate_database,
    )


# The commands are imported in the functions so that a start does not wait for the planner.


def _run_statement(statement: ParseNode, session: Session) -> Result:
    from headgate.commands.execute import run_one
    from headgate.server.session.session import ClientSession

    if isinstance(session, ClientSession) and statement.DESCRIPTOR.name in utility.IN_FUNCTIONS:
        return utility.run_in_function(session, statement)
    return run_one(statement, session)


def _insert_rows(statement: ParseNode, session: Session, rows: pa.Table) -> None:
    from headgate.commands.dml.insert import insert_rows

    insert_rows(statement, session, rows)


def _modify(statement: ParseNode, planner: object) -> ResultSet | None:
    from headgate.commands.execute import modify

    return modify(statement, planner)


def subscriber_host(node: NodeState) -> Host:
    def enter(kind: str) -> Backend:
        backend = node.activity.enter(kind)
        log_line_prefix.begin(log_line_prefix.Speaker(backend.pid, backend.started))
        return backend

    def leave(pid: int) -> None:
        node.activity.leave(pid)
        log_line_prefix.end()

    return Host(
        catalog=node.catalog,
        engine=node.engine,
        settings=node.settings,
        data_dir=node.data_dir,
        system_identifier=node.system_identifier,
        enter=enter,
        leave=leave,
        commands=functools.cache(lambda: _commands(node)),
        ledger=Ledger(),
    )


def _commands(node: NodeState) -> Commands:
    # imported here so that a start does not wait for the planner
    from headgate.commands.constraint import uniqueness
    from headgate.commands.subscription import applied_ddl, applied_triggers, history_tables, row_completion, schema_evolution
    from headgate.commands.subscription import target_privilege as privilege
    from headgate.verify.difference import Difference

    parts = node.parts
    return Commands(
        rows=lambda subscription: partial(row_completion.applied_rows, parts, subscription),
        triggers=lambda subscription: partial(applied_triggers.applied_triggers, parts, subscription),
        difference=lambda subscription: partial(Difference, parts, subscription),
        evolution=lambda subscription, patience, jobs: partial(schema_evolution.evolve, parts, subscription, patience, jobs),
        unique=UniqueChecks(uniqueness.check_rows, uniqueness.check_applied),
        check_rights=privilege.check,
        check_login=privilege.check_login,
        histories=partial(history_tables.prepare, parts),
        tables=partial(applied_ddl.join, parts),
    )
