"""The entries that a server writes to its log from a point in time on, with their DETAIL, HINT and CONTEXT."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from tests.conftest import Server, until

_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \S+ \[\d+\] ([A-Z0-9]+):  ")
_FIELDS = {"DETAIL", "HINT", "CONTEXT", "STATEMENT"}


@dataclass
class Entry:
    """A message and its further fields by name (DETAIL, HINT, CONTEXT, STATEMENT)."""

    moment: datetime
    severity: str
    message: str
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """The CONTEXT, empty if there is none."""
        return self.fields.get("CONTEXT", "")

    @property
    def detail(self) -> str:
        """The DETAIL, empty if there is none."""
        return self.fields.get("DETAIL", "")


class Log:
    """The entries that a server writes from now on. Servers are shared, so look for texts that only this test causes."""

    def __init__(self, server: Server) -> None:
        self._file = server.logfile
        self._start = server.logfile.stat().st_size

    def entries(self) -> list[Entry]:
        """Return the entries so far. The last one may be incomplete."""
        with self._file.open("rb") as log:
            log.seek(self._start)
            lines = log.read().decode(errors="replace").split("\n")
        all_entries: list[Entry] = []
        last = ""
        for line in lines:
            begun = _LINE.match(line)
            if begun is None:
                if all_entries and line.startswith("\t"):  # the message or the field has a line more
                    _append(all_entries[-1], last, "\n" + line[1:])
            elif begun[2] in _FIELDS:
                last = begun[2]
                _append(all_entries[-1], last, line[begun.end() :])
            else:
                last = ""
                all_entries.append(Entry(datetime.fromisoformat(begun[1]), begun[2], line[begun.end() :]))
        return all_entries

    def matching(self, text: str) -> list[Entry]:
        """Return the entries whose message contains the text."""
        return [entry for entry in self.entries() if text in entry.message]

    def error(self, text: str) -> Entry:
        """Wait for an error whose message contains the text, and return it."""
        return until(lambda: next((entry for entry in self.matching(text) if entry.severity == "ERROR"), None), f"no error {text!r}", 60)


def _append(entry: Entry, name: str, text: str) -> None:
    if name:
        entry.fields[name] = entry.fields.get(name, "") + text
    else:
        entry.message += text
