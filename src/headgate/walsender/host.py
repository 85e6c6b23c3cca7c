"""The parts and functions of its session and of the node that a walsender uses, as records.

`server.client.replication` fills them in for each replication connection, because the server may not be imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from headgate.catalog.catalog import Catalog
from headgate.catalog.session import SessionContext
from headgate.errors import Notices, PostgresError
from headgate.lsn import Lsn
from headgate.publisher.decoded import ChangeCache
from headgate.publisher.slots import Slots
from headgate.publisher.watch import LogWatch
from headgate.settings.session import SessionSettings
from headgate.storage.engine import Engine
from headgate.types.resultset import ResultSet
from headgate.walsender.statistics import Senders


@dataclass(frozen=True)
class Channel:
    """The client's connection.

    poll            the type and body of the next message, or None after the timeout (seconds) or an interrupt
    write, flush    append bytes to the output buffer; send all buffered output
    flush_while     send the buffered output, then the bytes. While the socket is full, call the function when the client has sent
                    something, or every 100 ms
    interrupt       make `poll` return; any thread may call it
    resume          make `poll` wait again after an interrupt
    """

    poll: Callable[[float | None], tuple[str, bytes] | None]
    write: Callable[[bytes], None]
    flush: Callable[[], None]
    flush_while: Callable[[Callable[[], None], bytes | memoryview], None]
    interrupt: Callable[[], None]
    resume: Callable[[], None]


@dataclass(frozen=True)
class Node:
    """The parts of the node.

    `findings` checks the node's files, of all databases or the named one. It yields severity, place, problem and advice of each finding,
    and returns the number of tables that were checked.
    """

    catalog: Catalog
    engine: Engine
    data_dir: Path
    system_identifier: str
    slots: Slots
    senders: Senders
    changes: ChangeCache
    log_watch: LogWatch
    is_stopping: Callable[[], bool]
    findings: Callable[[str | None, Callable[[str], None]], Generator[tuple[str, str, str, str], None, int]]


@dataclass(frozen=True)
class Block:
    """The session's transaction block.

    `statements`: the number of statements of the transaction that have taken a snapshot. `has_writes`: whether it has written anything.
    `check_not_failed` raises 25P02 if the transaction has failed. `import_snapshot` makes the transaction read as of an LSN.
    """

    is_open: Callable[[], bool]
    isolation: Callable[[], str]
    statements: Callable[[], int]
    has_writes: Callable[[], bool]
    in_subtransaction: Callable[[], bool]
    check_not_failed: Callable[[], None]
    import_snapshot: Callable[[Lsn], None]


@dataclass(frozen=True)
class Host:
    """The session.

    check            raise the error of a pending cancel or termination request
    pending          the error that `check` would raise, or None
    cancelling       call the function at a request inside the context, from another thread and until the context has been left
    tell_progress    send the progress of a long command, if the client receives DEBUG messages
    send_result      send RowDescription, the rows and CommandComplete; `send_description` sends RowDescription only
    complete         send CommandComplete; `copy_both` sends CopyBothResponse
    leave            end the session: the client has sent Terminate
    """

    node: Node
    pid: int
    context: SessionContext
    settings: SessionSettings
    notices: Notices
    channel: Channel
    block: Block
    check: Callable[[], None]
    pending: Callable[[], PostgresError | None]
    cancelling: Callable[[Callable[[], None]], AbstractContextManager[None]]
    tell_progress: Callable[[str], None]
    send_result: Callable[[ResultSet], None]
    send_description: Callable[[ResultSet], None]
    complete: Callable[[str], None]
    copy_both: Callable[[], None]
    leave: Callable[[], NoReturn]
