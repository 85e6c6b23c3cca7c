"""The options of pgoutput in START_REPLICATION and pg_logical_slot_…_changes (pgoutput.c, parse_output_parameters; manual, 55.5.1).

`read` validates them as the announced release (15 to 18) does, in the same order and with the same messages. Errors have the CONTEXT of the
startup callback.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headgate.catalog.replication.slot import Slot
from headgate.errors import PostgresError
from headgate.publisher.framing import StreamOptions
from headgate.settings.definition import read_bool
from headgate.settings.encoding import Encoding
from headgate.settings.session import SessionSettings
from headgate.settings.table import VERSION_NUMBER

MIN_VERSION, MAX_VERSION = 1, 4
STREAM_VERSION, TWO_PHASE_VERSION, PARALLEL_VERSION = 2, 3, 4


@dataclass(frozen=True)
class PgoutputOptions:
    """The client's options for pgoutput."""

    version: int
    publications: tuple[str, ...]
    binary: bool = False
    messages: bool = False
    streaming: bool = False
    two_phase: bool = False
    only_local: bool = False


def stream_options(requested: PgoutputOptions, settings: SessionSettings, slot: Slot) -> StreamOptions:
    """Return the options that concern whole transactions of this slot. Once enabled by a client, two_phase stays enabled."""
    work_mem = settings.integer("logical_decoding_work_mem") * 1024
    encoding = Encoding(settings.text("client_encoding"))
    two_phase, announced = requested.two_phase or slot.two_phase, settings.integer("server_version_num") // 10000
    return StreamOptions(
        requested.streaming, two_phase, requested.messages, slot.two_phase_at, work_mem, encoding, requested.only_local, announced
    )


def read(options: Iterable[tuple[str, str | None]], announced: int = VERSION_NUMBER) -> PgoutputOptions:
    """Parse the (name, value) pairs of the command. `announced` is the node's server_version_num."""
    newer = announced >= 160000
    readers, maximum = (_READERS | _NEWER_READERS, MAX_VERSION) if newer else (_READERS, TWO_PHASE_VERSION)
    values: dict[str, object] = {}
    for name, value in options:
        if name not in readers:
            raise PostgresError("XX000", f"unrecognized pgoutput option: {name}")
        if name in values:
            raise PostgresError("42601", "conflicting or redundant options")
        values[name] = readers[name](name, value)
    version = values.get("proto_version", 0)
    assert isinstance(version, int)
    if version > maximum:
        raise PostgresError("0A000", f"client sent proto_version={version} but we only support protocol {maximum} or lower")
    if version < MIN_VERSION:
        raise PostgresError("0A000", f"client sent proto_version={version} but we only support protocol {MIN_VERSION} or higher")
    publications = values.get("publication_names")
    if not publications:
        raise PostgresError("22023", "publication_names parameter missing")
    assert isinstance(publications, tuple)
    streaming, two_phase = bool(values.get("streaming")), bool(values.get("two_phase"))
    if streaming and version < STREAM_VERSION:
        raise PostgresError("22023", f"requested proto_version={version} does not support streaming, need {STREAM_VERSION} or higher")
    if values.get("streaming") == "parallel" and version < PARALLEL_VERSION:
        raise PostgresError(
            "22023", f"requested proto_version={version} does not support parallel streaming, need {PARALLEL_VERSION} or higher"
        )
    if two_phase and version < TWO_PHASE_VERSION:
        raise PostgresError(
            "22023", f"requested proto_version={version} does not support two-phase commit, need {TWO_PHASE_VERSION} or higher"
        )
    binary, messages, only_local = (bool(values.get(name)) for name in ("binary", "messages", "origin"))
    return PgoutputOptions(version, publications, binary, messages, streaming, two_phase, only_local)


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


def switch(value: str | None) -> bool | None:
    """Return the value of a Boolean option, for which no value means on (defGetBoolean), or None for any other word."""
    return {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}.get("on" if value is None else value.lower())


def _boolean(name: str, value: str | None) -> bool:
    if value is None:
        return True
    flag = read_bool(value)
    if flag is None or value.lower() not in ("true", "false", "on", "off"):
        raise PostgresError("42601", f"{name} requires a Boolean value")
    return flag


def _streaming(name: str, value: str | None) -> bool | str:
    """Return whether streaming is enabled, or "parallel" (16): a node streams transactions after their end, so none is ever aborted."""
    if value is not None and value.lower() == "parallel":
        return "parallel"
    flag = switch(value)
    if flag is None:
        raise PostgresError("42601", f'{name} requires a Boolean value or "parallel"')
    return flag


def _origin(name: str, value: str | None) -> bool:
    """Return whether only changes without an origin are requested (16)."""
    if value is not None and value.lower() in ("none", "any"):
        return value.lower() == "none"
    raise PostgresError("22023", f'unrecognized origin value: "{value or ""}"')


_READERS: dict[str, Callable[[str, str | None], object]] = {
    "proto_version": _version,
    "publication_names": _publications,
    "binary": _boolean,
    "messages": _boolean,
    "streaming": _boolean,
    "two_phase": _boolean,
}
_NEWER_READERS: dict[str, Callable[[str, str | None], object]] = {"streaming": _streaming, "origin": _origin}


def split_identifiers(text: str) -> list[str] | None:
    """Split a comma-separated list of identifiers, quoted or folded to lower case (SplitIdentifierString). Return None if malformed."""
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
            match = re.compile(r'"((?:[^"]|"")*)"').match(text, at)
            if not match or not match[1]:
                return None
            names.append(match[1].replace('""', '"'))
        else:
            match = re.compile(r"([^\s,]+)").match(text, at)
            if not match:
                return None
            names.append(match[1].lower())
        at = skip(match.end())
        if at == length:
            return names
        if text[at] != ",":
            return None
        at = skip(at + 1)
        if at == length:
            return None
