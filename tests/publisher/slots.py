"""Read the changes of a slot with the SQL functions, as texts that are the same for PostgreSQL and a node."""

from __future__ import annotations

from headgate.pgoutput import codec
from headgate.pgoutput import message as m


def make(server: object, database: str, name: str, *, two_phase: bool = False) -> str:
    """Create a slot with a name that is unique on the server."""
    slot = f"{database}_{name}"
    server.psql(database, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput', false, {str(two_phase).lower()})")  # type: ignore[attr-defined]
    return slot


def messages(server: object, database: str, slot: str, publication: str = "p", *settings: str, **options: str) -> list[str]:
    """Return the messages that have not been read yet, as texts. `settings`: SQL commands to run before."""
    options_of_call = {"proto_version": "3", "publication_names": publication, **options}
    listed = ", ".join(f"'{name}', '{value}'" for name, value in options_of_call.items())
    sql = f"{' '.join(settings)} SELECT data FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL, {listed});"
    rows = server.psql(database, sql)  # type: ignore[attr-defined]
    return list(as_texts([bytes.fromhex(line[2:]) for line in rows.splitlines()]))


def as_texts(payloads: list[bytes]) -> list[str]:
    """Return pgoutput messages as texts. Transaction ids are replaced by numbers in order of appearance."""
    streamed, descriptions = False, []
    names: dict[int, str] = {}
    xids: list[int] = []
    for payload in payloads:
        message = codec.read(payload, streamed=streamed)
        streamed = isinstance(message, m.StreamStart) or (streamed and not isinstance(message, m.StreamStop))
        if isinstance(message, m.Relation):
            names[message.relation] = message.name
        descriptions.append(_said(message, names, xids))
    return descriptions


def _said(message: m.Message, names: dict[int, str], xids: list[int]) -> str:
    word = type(message).__name__
    xid = getattr(message, "xid", None)
    mark = ""
    if xid is not None:
        if xid not in xids:
            xids.append(xid)
        mark = f" x{xids.index(xid)}"
    if isinstance(message, m.Insert | m.Update | m.Delete):
        old = "" if isinstance(message, m.Insert) or message.old is None else f" {_row(message.old)}"
        new = "" if isinstance(message, m.Delete) else f" {_row(message.new)}"
        return f"{word}{mark} {names[message.relation]}{old}{new}"
    if isinstance(message, m.LogicalMessage):
        return f"{word}{mark} {message.transactional} {message.prefix} {message.content[:20].decode()}"
    gid = getattr(message, "gid", None)
    return f"{word}{mark}" + (f" {gid}" if gid is not None else "")


def _row(values: m.Tuple) -> str:
    return "(" + ", ".join("null" if value.data is None else value.data.decode() for value in values) + ")"
