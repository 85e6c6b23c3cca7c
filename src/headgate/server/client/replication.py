"""The walsender of a replication connection: the session and the node as the walsender uses them (`walsender.host`).

Called by `server.client.startup` after authentication.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from headgate.check import course, subject
from headgate.walsender.commands import Walsender
from headgate.walsender.host import Block, Channel, Host, Node

if TYPE_CHECKING:
    from headgate.server.monitoring.activity import Backend
    from headgate.server.node_state import NodeState
    from headgate.server.protocol.connection import Connection
    from headgate.server.session.session import ClientSession


def walsender(session: ClientSession, *, physical: bool) -> Walsender:
    interrupts = session.interrupts
    host = Host(
        node=_node(session.node),
        pid=session.backend.pid,
        context=session.context,
        settings=session.settings,
        notices=session.notices,
        channel=_channel(session.connection, session.backend),
        block=_block(session),
        check=interrupts.check,
        pending=interrupts.pending,
        cancelling=interrupts.cancelling,
        tell_progress=session.tell_progress,
        send_result=session.send_result,
        send_description=session.send_description,
        complete=session.complete,
        copy_both=session.copy_both,
        leave=session.leave,
    )
    return Walsender(host, physical=physical)


def _channel(connection: Connection, backend: Backend) -> Channel:
    def poll(timeout: float | None) -> tuple[str, bytes] | None:
        backend.wait = None if timeout == 0 else ("Client", "WalSenderWaitForWAL")
        message = connection.poll(timeout)
        backend.wait = None
        return None if message is None else (message.kind, message.body)

    def resume() -> None:
        connection.interrupted = False

    return Channel(
        poll=poll,
        write=connection.write,
        flush=connection.flush,
        flush_while=connection.flush_while,
        interrupt=connection.interrupt,
        resume=resume,
    )


def _block(session: ClientSession) -> Block:
    block = session.block
    return Block(
        is_open=lambda: block.in_block,
        isolation=lambda: block.isolation,
        statements=lambda: block.statements,
        has_writes=lambda: block.storage is not None and block.storage.has_writes,
        in_subtransaction=lambda: block.in_subtransaction,
        check_not_failed=block.check_not_failed,
        import_snapshot=session.import_snapshot,
    )


def _node(node: NodeState) -> Node:
    def findings(database: str | None, progress: Callable[[str], None]) -> Generator[tuple[str, str, str, str], None, int]:
        with subject.of_running(node.engine, node.data_dir, database) as checked:
            checked.progress = progress
            for finding in course.run(checked):
                yield str(finding.severity), finding.place, finding.what, finding.advice
            return len(checked.tables)

    return Node(
        catalog=node.catalog,
        engine=node.engine,
        data_dir=node.data_dir,
        system_identifier=node.system_identifier,
        slots=node.slots,
        senders=node.senders,
        changes=node.changes,
        log_watch=node.log_watch,
        is_stopping=node.stopping.is_set,
        findings=findings,
    )
