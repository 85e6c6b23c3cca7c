"""The parts of the node and the functions of the server that commands use (`commands.session.NodeParts`). Called by the node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headgate.commands.session import NodeParts
from headgate.server.session import cursor, utility
from headgate.server.session.notification import Mailbox

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.commands.pending_notifications import PendingNotifications
    from headgate.commands.result import Result
    from headgate.commands.session import Session
    from headgate.server.node import Node
    from headgate.sql.parser import ParseNode
    from headgate.types.resultset import ResultSet


def of_node(node: Node) -> NodeParts:
    def announce(database_oid: int, pending: PendingNotifications) -> None:
        node.channels.committed(Mailbox(database_oid, lambda: None), pending, os.getpid())

    return NodeParts(
        catalog=node.catalog,
        engine=node.engine,
        settings=node.settings,
        data_dir=node.data_dir,
        slots=node.slots,
        launcher=node.launcher,
        run_statement=_run_statement,
        insert_rows=_insert_rows,
        modify=_modify,
        open_cursor=cursor.open_for_function,
        move_cursor=cursor.move_for_function,
        close_cursor=cursor.close_for_function,
        announce=announce,
        sessions_of=lambda database: len(node.activity.of_database(database)),
        terminate_database=node.terminate_database,
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
