"""The server log in PostgreSQL's format (manual, 20.8).

Everything that the node logs goes through Python's logging; `start` gives it a handler that writes ``log_line_prefix``, the severity
and the message, and DETAIL, HINT, CONTEXT and STATEMENT lines with the same prefix. `said` logs an error as it was said
to a client, if log_min_messages lets it, with its statement if log_min_error_statement does. Passwords never get here: what
follows a word PASSWORD is hidden.
"""

from __future__ import annotations

import datetime
import logging
import os
import re
import sys
import threading
from typing import IO, Any

from headgate.errors import PostgresError, Severity
from headgate.settings import check

_LEVELS = {
    Severity.DEBUG: 10,
    Severity.INFO: 20,
    Severity.NOTICE: 21,
    Severity.WARNING: 30,
    Severity.LOG: 35,
    Severity.ERROR: 40,
    Severity.FATAL: 50,
    Severity.PANIC: 60,
}
_MINIMUM = {
    **{f"debug{number}": 10 - number for number in range(1, 6)},
    **{str(severity).lower(): level for severity, level in _LEVELS.items()},
}
_NAMES = {10: "DEBUG", 20: "INFO", 21: "NOTICE", 30: "WARNING", 35: "LOG", 40: "ERROR", 50: "FATAL", 60: "PANIC"}
_SECRET = re.compile(r"(password\s*(?:=\s*)?)('(?:[^']|'')*'|[^\s']+)", re.I)

_session = threading.local()


def set_session(**words: str) -> None:
    """What %u, %d, %a, %h, %r and %p stand for in this thread's lines."""
    _session.words = words


class PostgresFormatter(logging.Formatter):
    """Lines as PostgreSQL writes them to stderr."""

    def __init__(self, prefix: str, zone: str) -> None:
        super().__init__()
        self.prefix = prefix
        self.zone = check.zone(zone)

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines: message, then each field that a PostgresError brought along."""
        prefix = self._expanded(record)
        plain = "LOG" if record.levelno == logging.INFO else _NAMES.get(record.levelno, record.levelname)
        name = getattr(record, "severity", plain)
        lines = [f"{name}:  {record.getMessage()}"]
        for field in ("detail", "hint", "context", "statement"):
            value = getattr(record, field, None)
            if value:
                lines.append(f"{field.upper()}:  {value}")
        if record.exc_info:
            lines.append(f"DETAIL:  {self.formatException(record.exc_info)}")
        return "\n".join(prefix + line.replace("\n", "\n\t") for line in lines)

    def _expanded(self, record: logging.LogRecord) -> str:
        words: dict[str, str] = getattr(_session, "words", {})
        moment = datetime.datetime.fromtimestamp(record.created, self.zone)
        zone = moment.strftime("%Z")
        found = {
            "m": f"{moment:%Y-%m-%d %H:%M:%S}.{int(record.msecs):03d} {zone}",
            "t": f"{moment:%Y-%m-%d %H:%M:%S} {zone}",
            "n": f"{record.created:.3f}",
            "p": words.get("p", str(os.getpid())),
            "%": "%",
        }
        stop = self.prefix.split("%q")
        text = self.prefix if words else stop[0]
        return re.sub(r"%(-?\d*)(.)", lambda match: _padded(found.get(match[2], words.get(match[2], "")), match[1]), text.replace("%q", ""))


def _padded(text: str, width: str) -> str:
    if not width.lstrip("-"):
        return text
    return text.ljust(-int(width)) if width.startswith("-") else text.rjust(int(width))


class _Handler(logging.StreamHandler[IO[str]]):
    """Writes to the process's present stderr, which the CLI may have redirected to a log file."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)


def start(settings: Any) -> None:
    """Sends the log of the whole package to stderr in PostgreSQL's format; called again when the settings are reloaded."""
    logger = logging.getLogger("headgate")
    handler = next((found for found in logger.handlers if isinstance(found, _Handler)), None)
    if handler is None:
        handler = _Handler()
        logger.addHandler(handler)
        logger.propagate = False
    handler.setFormatter(PostgresFormatter(settings.text("log_line_prefix"), settings.text("log_timezone")))
    logger.setLevel(min(logging.INFO, _MINIMUM.get(settings.text("log_min_messages"), 30)))


def said(error: PostgresError, statement: str, settings: Any) -> None:
    """Logs an error that a client was told."""
    level = _LEVELS.get(error.severity, 40)
    if level < _server_level(settings.text("log_min_messages")):
        return
    extra = {"severity": str(error.severity), "detail": error.log_detail or error.detail, "hint": error.hint, "context": error.context}
    shown = statement if level >= _server_level(settings.text("log_min_error_statement")) else ""
    extra["statement"] = without_secrets(shown) or None
    position = f" at character {error.position}" if error.position else ""
    logging.getLogger("headgate.server").log(level, "%s%s", error.message, position, extra=extra)


def without_secrets(statement: str) -> str:
    """The statement with everything that follows a word PASSWORD hidden."""
    return _SECRET.sub(r"\1<hidden>", statement)


def _server_level(name: str) -> int:
    """In the server's log LOG stands between ERROR and FATAL."""
    return 45 if name == "log" else _MINIMUM.get(name, 30)
