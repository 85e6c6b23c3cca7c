"""The options of ``format("headgate")``, checked before anything is read.

Spark gives options as texts, under names in lower case. An option that the source does not have is an error: a misspelled ``onTruncate``
must not be taken for its default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})\Z")
_SLOT = re.compile(r"[a-z0-9_]{1,63}\Z")
_COMMON = frozenset({"url", "publication", "table", "tasks", "ontruncate"})
STREAM = _COMMON | {"slot", "start", "maxrows"}
"""The options of ``readStream``."""
BATCH = _COMMON | {"from", "to", "lsn", "slot"}
"""The options of ``read``."""
_TRUNCATE = ("fail", "row", "skip")
_NO_SLOT = 'option "slot" is needed, a name of lower case letters, digits and underscores, of at most 63 characters'
MOST_TASKS = 1000


def parse_lsn(text: str, option: str) -> int:
    """Return the number of an LSN in PostgreSQL's form."""
    match = _LSN.match(text)
    if match is None:
        raise ValueError(f'option "{option}" must be an LSN such as 0/1A2B3C4D, not "{text}"')
    return int(match[1], 16) << 32 | int(match[2], 16)


def lsn_text(number: int) -> str:
    """Return an LSN in PostgreSQL's form."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class SourceOptions:
    """The checked options of a query.

    `start` is "snapshot", "now" or an LSN. `first`, `last` and `lsn` are LSNs of ``read``; None stands for the latest.
    """

    url: str
    publication: str
    table: str
    slot: str = ""
    start: str | int = "snapshot"
    max_rows: int | None = None
    tasks: int = 4
    on_truncate: str = "fail"
    first: int | None = None
    last: int | None = None
    lsn: int | None = None

    @classmethod
    def of_stream(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options of ``readStream``; ValueError for wrong ones."""
        texts = _known(options, STREAM)
        slot = texts.get("slot", "")
        if not _SLOT.match(slot):
            raise ValueError(_NO_SLOT)
        start = texts.get("start", "snapshot")
        position = start if start in ("snapshot", "now") else parse_lsn(start, "start")
        most = _number(texts, "maxrows", 1 << 62) if "maxrows" in texts else None
        return cls(*_named(texts), slot, position, most, *_shared(texts))

    @classmethod
    def of_batch(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options of ``read``; ValueError for wrong ones."""
        texts = _known(options, BATCH)
        if "lsn" in texts and ("from" in texts or "to" in texts):
            raise ValueError('option "lsn" asks for the table as of an LSN, "from" and "to" for changes: give one or the other')
        if "to" in texts and "from" not in texts:
            raise ValueError('option "to" needs option "from"')
        tasks, on_truncate = _shared(texts)
        slot = texts.get("slot", "")
        if slot and ("from" not in texts or not _SLOT.match(slot)):
            raise ValueError(_NO_SLOT if "from" in texts else 'option "slot" needs option "from"')
        first = parse_lsn(texts["from"], "from") if "from" in texts else None
        last, lsn = (parse_lsn(texts[name], name) if texts.get(name, "latest") != "latest" else None for name in ("to", "lsn"))
        if first is not None and last is not None and last < first:
            raise ValueError('option "to" must not be before option "from"')
        return cls(*_named(texts), slot, tasks=tasks, on_truncate=on_truncate, first=first, last=last, lsn=lsn)


def _known(options: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    texts = {name.lower(): text for name, text in options.items()}
    unknown = sorted(set(texts) - names)
    if unknown:
        raise ValueError(f'unknown option "{unknown[0]}"; the options are {", ".join(sorted(names))}')
    return texts


def _named(texts: Mapping[str, str]) -> tuple[str, str, str]:
    for name in ("url", "publication", "table"):
        if not texts.get(name):
            raise ValueError(f'option "{name}" is needed')
    return texts["url"], texts["publication"], texts["table"]


def _shared(texts: Mapping[str, str]) -> tuple[int, str]:
    on_truncate = texts.get("ontruncate", "fail")
    if on_truncate not in _TRUNCATE:
        raise ValueError(f'option "onTruncate" must be one of {", ".join(_TRUNCATE)}, not "{on_truncate}"')
    return _number(texts, "tasks", MOST_TASKS) if "tasks" in texts else 4, on_truncate


def _number(texts: Mapping[str, str], name: str, most: int) -> int:
    text = texts[name]
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= most:
        raise ValueError(f'option "{name}" must be a whole number from 1 to {most}, not "{text}"')
    return int(text)
