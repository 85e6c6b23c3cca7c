"""SQL functions that create, drop, advance and read replication slots (manual, 9.27.6)."""

from __future__ import annotations

import contextlib
import datetime
from typing import TYPE_CHECKING, NoReturn

from headgate.catalog.security import role as roles
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.publisher.framing import Counts
from headgate.publisher.slots import PLUGIN, check_name, invalidated
from headgate.publisher.stream import Stream, StreamRequest
from headgate.types import text_column
from headgate.walsender import options as pgoutput_options

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

Row = tuple[object, ...]
Words = str | list[str] | tuple[str, ...]
"""One argument of VARIADIC, or an array of them."""
_XID = {b"B": 17, b"S": 1, b"c": 1, b"A": 1, b"b": 25, b"P": 26, b"K": 26, b"p": 26, b"r": 34}
"""The offset of the transaction's xid in each message type."""
_OPENING, _CLOSING = frozenset({b"B", b"S", b"b"}), frozenset({b"C", b"E", b"P"})
"""The messages that begin and end a transaction's messages."""
NAME_BYTES = 63


def _may_replicate(session: ClientSession) -> None:
    if session.context.superuser:
        return
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        role = roles.get(cursor, session.context.user)
    if not role.replication:
        raise PostgresError("42501", "must be superuser or replication role to use replication slots")


def pg_create_logical_replication_slot(
    session: ClientSession,
    slot_name: str | None,
    plugin: str | None,
    temporary: bool = False,
    twophase: bool = False,
    failover: bool = False,
) -> tuple[str | None, Lsn | None]:
    """Create a logical slot. Raise 25001 if the transaction has written."""
    _may_replicate(session)
    if slot_name is None or plugin is None:
        return None, None
    slot_name = _as_name(slot_name)
    storage = session.block.storage
    if storage is not None and storage.has_writes:
        raise PostgresError("25001", "cannot create logical replication slot in transaction that has performed writes")
    slot = session.node.slots.create(
        slot_name, plugin, session.context.database, pid=session.backend.pid, temporary=bool(temporary), two_phase=bool(twophase),
        failover=bool(failover),
    )  # fmt: skip
    return slot_name, slot.confirmed_flush_lsn


def pg_copy_logical_replication_slot(
    session: ClientSession, src_slot_name: str, dst_slot_name: str, temporary: bool | None = None, plugin: str | None = None
) -> tuple[str, Lsn]:
    """Create a slot at the position of another one. Raise 55000 if that one is invalidated or in another database."""
    _may_replicate(session)
    dst_slot_name = _as_name(dst_slot_name)
    _check_database(session, src_slot_name)
    slot = session.node.slots.copy(src_slot_name, dst_slot_name, pid=session.backend.pid, plugin=plugin, temporary=temporary)
    return dst_slot_name, slot.confirmed_flush_lsn


def pg_sync_replication_slots(session: ClientSession) -> NoReturn:
    """Raise 55000: a node is not a standby."""
    _may_replicate(session)
    raise PostgresError("55000", "replication slots can only be synchronized to a standby server")


def pg_create_physical_replication_slot(
    session: ClientSession, slot_name: str, immediately_reserve: bool = False, temporary: bool = False
) -> NoReturn:
    """Raise 0A000: a node does not have physical slots."""
    raise PostgresError("0A000", "a node has no physical replication slots")


def pg_drop_replication_slot(session: ClientSession, slot_name: str) -> None:
    _may_replicate(session)
    check_name(slot_name)
    session.node.slots.drop(slot_name, session.backend.pid)


def pg_replication_slot_advance(session: ClientSession, slot_name: str, upto_lsn: Lsn) -> tuple[str, Lsn]:
    _may_replicate(session)
    if not upto_lsn:
        raise PostgresError("XX000", "invalid target WAL LSN")
    _check_database(session, slot_name)
    return slot_name, session.node.slots.advance(slot_name, Lsn(upto_lsn), session.backend.pid)


def _check_database(session: ClientSession, slot_name: str) -> None:
    if session.node.slots.get(slot_name).database != session.context.database:
        raise PostgresError("55000", f'replication slot "{slot_name}" was not created in this database')


def pg_logical_slot_get_changes(session: ClientSession, slot_name: str, upto_lsn: object, upto_nchanges: object, *options: str) -> NoReturn:
    """Raise 0A000: pgoutput's output is binary."""
    _textual("pg_logical_slot_get_changes")


def pg_logical_slot_peek_changes(
    session: ClientSession, slot_name: str, upto_lsn: object, upto_nchanges: object, *options: str
) -> NoReturn:
    """Raise 0A000: pgoutput's output is binary."""
    _textual("pg_logical_slot_peek_changes")


def _textual(name: str) -> NoReturn:
    raise PostgresError(
        "0A000",
        f'logical decoding output plugin "{PLUGIN}" produces binary output, but function '
        f'"{name}(name,pg_lsn,integer,text[])" expects textual data',
    )


def pg_logical_slot_get_binary_changes(
    session: ClientSession, slot_name: str | None, upto_lsn: Lsn | None, upto_nchanges: int | None, *options: Words
) -> list[Row]:
    """Return the changes of a slot and advance it past them."""
    return _changes(session, slot_name, upto_lsn, upto_nchanges, options, keep=False)


def pg_logical_slot_peek_binary_changes(
    session: ClientSession, slot_name: str | None, upto_lsn: Lsn | None, upto_nchanges: int | None, *options: Words
) -> list[Row]:
    """Return the changes of a slot without advancing it."""
    return _changes(session, slot_name, upto_lsn, upto_nchanges, options, keep=True)


def _changes(
    session: ClientSession, name: str | None, upto: Lsn | None, limit: int | None, options: tuple[Words, ...], *, keep: bool
) -> list[Row]:
    _may_replicate(session)
    if name is None:
        raise PostgresError("22004", "slot name must not be null")
    words = [word for part in options for word in (part if isinstance(part, list | tuple) else [part])]
    if len(words) % 2:
        raise PostgresError("0A000", "array must have even number of elements")
    slots = session.node.slots
    slot = slots.acquire(name, session.backend.pid)
    try:
        _check_database(session, name)
        if slot.idle:
            raise invalidated(slot)
        if slot.lost:
            raise PostgresError(
                "55000",
                f'can no longer get changes from replication slot "{name}"',
                detail="This slot has never previously reserved WAL, or it has been invalidated.",
            )
        try:
            announced = session.settings.integer("server_version_num")
            plugin_options = pgoutput_options.read(list(zip(words[::2], words[1::2], strict=True)), announced)
        except PostgresError as error:
            raise error.within(f'slot "{name}", output plugin "{PLUGIN}", in the startup callback') from error
        settings = session.settings
        if plugin_options.two_phase:
            slots.enable_two_phase(name, slot.confirmed_flush_lsn)
            slot = slots.get(name)
        request = StreamRequest(
            plugin_options.publications,
            plugin_options.binary,
            text_column.TextSettings.of(settings),
            options=pgoutput_options.stream_options(plugin_options, settings, slot),
            created=slot.created_lsn,
        )
        stream = Stream(session.node.engine, slot.database, name, slot.confirmed_flush_lsn, request, session.node.changes)
        try:
            with session.cancelling_jobs():
                rows, counts = _collect(stream, Lsn(upto) if upto else None, limit or None)
            for batch_counts in counts:
                slots.count(name, batch_counts)
        finally:
            stream.close()
        if not keep:
            slots.confirm(name, stream.position)
        return rows
    finally:
        slots.release(name, session.backend.pid)


def pg_stat_reset_replication_slot(session: ClientSession, slot_name: str | None) -> None:
    """Reset the statistics of a slot (NULL: of all slots). Raise 22023 if it does not exist."""
    if slot_name is not None and session.node.slots.find(slot_name) is None:
        raise PostgresError("22023", f'replication slot "{slot_name}" does not exist')
    session.node.slots.reset_statistics(slot_name)


def pg_stat_get_replication_slot(session: ClientSession, slot_name: str | None) -> Row:
    """Return the statistics of a slot; zeros if it does not exist."""
    live = next((slot for slot in session.node.slots.all() if slot.slot.name == slot_name), None)
    counts = Counts() if live is None else live.counts
    reset = None if live is None or not live.reset else datetime.datetime.fromtimestamp(live.reset, datetime.UTC)
    return (
        slot_name, counts.spill_txns, counts.spill_count, counts.spill_bytes, counts.stream_txns, counts.stream_count,
        counts.stream_bytes, counts.total_txns, counts.total_bytes, reset,
    )  # fmt: skip


def _as_name(text: str) -> str:
    """Cast the text to type name, which truncates it."""
    return text.encode()[:NAME_BYTES].decode(errors="ignore")


def _collect(stream: Stream, upto: Lsn | None, limit: int | None) -> tuple[list[Row], list[Counts]]:
    """Read messages up to the end of the transaction in which a limit is reached.

    Return (lsn, xid, data) of each message, and the counts for the slot's statistics.
    """
    rows: list[Row] = []
    counts: list[Counts] = []
    xid, inside = 0, False
    while limit is None or len(rows) < limit:
        batch = stream.next(upto, alone=limit is not None)
        if batch is None:
            break
        data = b"".join(bytes(part) for part in batch.frames)
        counts.append(batch.counts)
        offset = 0
        while offset < len(data):
            length = int.from_bytes(data[offset + 1 : offset + 5], "big") + 1
            lsn = int.from_bytes(data[offset + 6 : offset + 14], "big")
            payload = data[offset + 30 : offset + length]
            kind = payload[:1]
            xid_offset = _XID.get(kind)
            if xid_offset is not None:
                xid = int.from_bytes(payload[xid_offset : xid_offset + 4], "big")
            inside = (inside or kind in _OPENING) and kind not in _CLOSING
            rows.append((Lsn(lsn), xid if inside or kind != b"M" else 0, payload))
            offset += length
    return rows, counts
