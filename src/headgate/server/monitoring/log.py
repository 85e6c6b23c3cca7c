"""The server log in PostgreSQL's format (manual, 20.8).

All log messages go through Python's logging. `start` installs a handler that writes ``log_line_prefix``, the severity and the message, and
DETAIL, HINT, CONTEXT and STATEMENT lines with the same prefix. `log_sent_error` logs an error that was sent to a client, if
log_min_messages permits it, with its statement if log_min_error_statement does. Passwords never appear in the log: `sql.secret` hides them
in statements and errors.
"""

from __future__ import annotations

import datetime
import logging
import re
import sys
from typing import IO, TYPE_CHECKING

from headgate.errors import PostgresError, Severity
from headgate.server.monitoring.log_line_prefix import ClientSpeaker, current
from headgate.settings import check
from headgate.sql import secret

if TYPE_CHECKING:
    from headgate.settings.node import Settings
    from headgate.settings.session import SessionSettings

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
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""The characters with which a client could forge log lines in its names."""
_ESCAPE = re.compile(r"%(-?\d*)(.)")


class PostgresFormatter(logging.Formatter):
    """Formats log records like PostgreSQL's stderr log."""

    def __init__(self, prefix: str, zone: str) -> None:
        super().__init__()
        self.prefix = prefix
        self.zone = check.zone(zone)

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record: the message, then each field of a PostgresError."""
        number = current().count()
        plain = "LOG" if record.levelno == logging.INFO else _NAMES.get(record.levelno, record.levelname)
        name = getattr(record, "severity", plain)
        lines = [f"{name}:  {record.getMessage()}"]
        for field in ("detail", "hint", "context", "statement"):
            value = getattr(record, field, None)
            if value:
                lines.append(f"{field.upper()}:  {value}")
        if record.exc_info:
            lines.append(f"DETAIL:  {self.formatException(record.exc_info)}")
        prefix = self._prefix(record, number)
        return "\n".join(prefix + line.replace("\n", "\n\t") for line in lines)

    def _prefix(self, record: logging.LogRecord, number: int) -> str:
        speaker = current()
        client = _of_client(speaker) if isinstance(speaker, ClientSpeaker) else {}
        words = self._words(record, number) | {key: _CONTROL.sub("?", word) for key, word in client.items()}
        text = self.prefix if isinstance(speaker, ClientSpeaker) else self.prefix.split("%q", maxsplit=1)[0]
        return _ESCAPE.sub(lambda match: _pad(words.get(match[2], ""), match[1]), text)

    def _words(self, record: logging.LogRecord, number: int) -> dict[str, str]:
        speaker = current()
        return {
            "m": f"{self._moment(record.created)}.{int(record.msecs):03d} {self._zone(record.created)}",
            "t": f"{self._moment(record.created)} {self._zone(record.created)}",
            "s": f"{self._moment(speaker.started)} {self._zone(speaker.started)}",
            "n": f"{record.created:.3f}",
            "p": str(speaker.pid),
            "l": str(number),
            "c": f"{int(speaker.started):x}.{speaker.pid:x}",
            "e": getattr(record, "sqlstate", "00000" if record.levelno < logging.WARNING else "01000"),
            "b": speaker.kind,
            "x": "0",
            "Q": "0",
            "%": "%",
        }

    def _moment(self, seconds: float) -> str:
        return f"{datetime.datetime.fromtimestamp(seconds, self.zone):%Y-%m-%d %H:%M:%S}"

    def _zone(self, seconds: float) -> str:
        return datetime.datetime.fromtimestamp(seconds, self.zone).strftime("%Z")


def _of_client(speaker: ClientSpeaker) -> dict[str, str]:
    xid = speaker.xid()
    return {
        "a": speaker.application_name() or "[unknown]",
        "u": speaker.user or "[unknown]",
        "d": speaker.database or "[unknown]",
        "r": speaker.place,
        "h": speaker.host,
        "i": speaker.tag,
        "v": f"{speaker.pid}/{xid}",
        "x": str(xid),
    }


def _pad(text: str, width: str) -> str:
    if not width.lstrip("-"):
        return text
    return text.ljust(-int(width)) if width.startswith("-") else text.rjust(int(width))


class _Handler(logging.StreamHandler[IO[str]]):
    """Writes to the current stderr of the process, which the CLI may have redirected to a log file."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)


def start(settings: Settings) -> None:
    """Send the package's log to stderr in PostgreSQL's format. It is called again when the settings are reloaded."""
    logger = logging.getLogger("headgate")
    handler = next((existing for existing in logger.handlers if isinstance(existing, _Handler)), None)
    if handler is None:
        handler = _Handler()
        logger.addHandler(handler)
        logger.propagate = False
    handler.setFormatter(PostgresFormatter(settings.text("log_line_prefix"), settings.text("log_timezone")))
    logger.setLevel(min(logging.INFO, _MINIMUM.get(settings.text("log_min_messages"), 30)))


def log_sent_error(error: PostgresError, statement: str, settings: Settings | SessionSettings) -> None:
    level = _LEVELS.get(error.severity, 40)
    if level < _server_level(settings.text("log_min_messages")):
        return
    extra = {
        "severity": str(error.severity),
        "sqlstate": error.sqlstate,
        "detail": error.log_detail or error.detail,
        "hint": error.hint,
        "context": error.context,
    }
    shown = statement if level >= _server_level(settings.text("log_min_error_statement")) else ""
    extra["statement"] = secret.hidden(shown) or None
    message = secret.hidden_error(error.message, statement, error.position)
    position = f" at character {error.position}" if error.position else ""
    logging.getLogger("headgate.server").log(level, "%s%s", message, position, extra=extra)


def _server_level(name: str) -> int:
    """Return the level of a setting. In the server log LOG ranks between ERROR and FATAL."""
    return 45 if name == "log" else _MINIMUM.get(name, 30)
