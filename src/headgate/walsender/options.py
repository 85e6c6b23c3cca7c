"""The options of pgoutput in START_REPLICATION and pg_logical_slot_…_changes (pgoutput.c, parse_output_parameters; manual, 55.5.1).

`read` checks them as PostgreSQL 15 does, in its order and with its texts; errors carry the CONTEXT of the start-up callback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.catalog.replication.slot import Slot
from headgate.errors import PostgresError
from headgate.publisher.framing import Wanted
from headgate.settings import SessionSettings
from headgate.settings.definition import read_bool
from headgate.settings.encoding import Encoding

MIN_VERSION, MAX_VERSION = 1, 3
STREAM_VERSION, TWO_PHASE_VERSION = 2, 3


@dataclass(frozen=True)
class PgoutputOptions:
    """What the client asked of pgoutput."""

    version: int
    publications: tuple[str, ...]
    binary: bool = False
    messages: bool = False
    streaming: bool = False
    two_phase: bool = False


def wanted(asked: PgoutputOptions, settings: SessionSettings, slot: Slot) -> Wanted:
    """What the options mean for whole transactions of this slot; two_phase stays on once a client has asked for it."""
    work_mem = settings.integer("logical_decoding_work_mem") * 1024
    encoding = Encoding(settings.text("client_encoding"))
    return Wanted(asked.streaming, asked.two_phase or slot.two_phase, asked.messages, slot.two_phase_at, work_mem, encoding)


def read(given: Iterable[tuple[str, str | None]]) -> PgoutputOptions:
    """The options out of the (name, value) pairs of the command."""
    found: dict[str, object] = {}
    for name, value in given:
        if name not in _READERS:
            raise PostgresError("XX000", f"unrecognized pgoutput option: {name}")
        if name in found:
            raise PostgresError("42601", "conflicting or redundant options")
        found[name] = _READERS[name](name, value)
    version = found.get("proto_version", 0)
    assert isinstance(version, int)
    if version > MAX_VERSION:
        raise PostgresError("0A000", f"client sent proto_version={version} but we only support protocol {MAX_VERSION} or lower")
    if version < MIN_VERSION:
        raise PostgresError("0A000", f"client sent proto_version={version} but we only support protocol {MIN_VERSION} or higher")
    publications = found.get("publication_names")
    if not publications:
        raise PostgresError("22023", "publication_names parameter missing")
    assert isinstance(publications, tuple)
    streaming, two_phase = bool(found.get("streaming")), bool(found.get("two_phase"))
    if streaming and version < STREAM_VERSION:
        raise PostgresError("22023", f"requested proto_version={version} does not support streaming, need {STREAM_VERSION} or higher")
    if two_phase and version < TWO_PHASE_VERSION:
        raise PostgresError(
            "22023", f"requested proto_version={version} does not support two-phase commit, need {TWO_PHASE_VERSION} or higher"
        )
    return PgoutputOptions(version, publications, bool(found.get("binary")), bool(found.get("messages")), streaming, two_phase)


def _version(name: str, value: str | None) -> int:
    text = (value or "").strip()
    if not re.fullmatch(r"[+-]?\d+", text):
        raise PostgresError("22023", "invalid proto_version")
    if not 0 <= int(text) <= 0xFFFFFFFF:
        raise PostgresError("22023", f'proto_version "{value}" out of range')
    return int(text)


def _publications(name: str, value: str | None) -> tuple[str, ...]:
    names = split_identifiers(value or "")
    if names is None:
        raise PostgresError("42602", "invalid publication_names syntax")
    return tuple(names)


def _boolean(name: str, value: str | None) -> bool:
    if value is None:
        return True
    found = read_bool(value)
    if found is None or value.lower() not in ("true", "false", "on", "off"):
        raise PostgresError("42601", f"{name} requires a Boolean value")
    return found


_READERS = {
    "proto_version": _version,
    "publication_names": _publications,
    "binary": _boolean,
    "messages": _boolean,
    "streaming": _boolean,
    "two_phase": _boolean,
}


def split_identifiers(text: str) -> list[str] | None:
    """A comma list of identifiers, quoted or folded to lower case (SplitIdentifierString); None if it is malformed."""
    names: list[str] = []
    at = 0
    length = len(text)

    def skip(at: int) -> int:
        while at < length and text[at].isspace():
            at += 1
        return at

    at = skip(at)
    if at == length:
        return names
    while True:
        if text[at : at + 1] == '"':
            found = re.compile(r'"((?:[^"]|"")*)"').match(text, at)
            if not found or not found[1]:
                return None
            names.append(found[1].replace('""', '"'))
        else:
            found = re.compile(r"([^\s,]+)").match(text, at)
            if not found:
                return None
            names.append(found[1].lower())
        at = skip(found.end())
        if at == length:
            return names
        if text[at] != ",":
            return None
        at = skip(at + 1)
        if at == length:
            return None
