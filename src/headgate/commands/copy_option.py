"""The options of COPY (PostgreSQL 15's ProcessCopyOptions)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headgate.errors import PostgresError, not_supported
from headgate.sql.options import Option, unique
from headgate.sql.parser import position


@dataclass(frozen=True)
class CopyOptions:
    """How the data look."""

    format: str = "text"
    null: str = "\\N"
    delimiter: str = "\t"
    quote: str = '"'
    escape: str = '"'
    header: bool = False

    @property
    def binary(self) -> bool:
        """Whether the format is binary."""
        return self.format == "binary"

    @property
    def csv(self) -> bool:
        """Whether the format is CSV."""
        return self.format == "csv"


_UNSUPPORTED = {"force_quote", "force_not_null", "force_null"}


def read(nodes: Iterable[Any], *, from_client: bool) -> CopyOptions:  # noqa: C901, PLR0912 (one case per option)
    """The options; PostgreSQL's errors for those that do not fit together."""
    given = unique(nodes)
    for name, option in given.items():
        if name in _UNSUPPORTED:
            raise not_supported(f'COPY option "{name}" is not supported', position=position(option.location))
        if name not in ("format", "freeze", "delimiter", "null", "header", "quote", "escape", "encoding"):
            raise PostgresError("42601", f'option "{name}" not recognized', position=position(option.location))
    kind = given["format"].text() if "format" in given else "text"
    if kind not in ("text", "csv", "binary"):
        raise PostgresError("22023", f'COPY format "{kind}" not recognized', position=position(given["format"].location))
    for name in ("delimiter", "null"):
        if kind == "binary" and name in given:
            raise PostgresError("42601", f"cannot specify {name.upper()} in BINARY mode")
    if kind == "binary" and "header" in given and _header(given["header"]):
        raise PostgresError("0A000", "cannot specify HEADER in BINARY mode")
    for name in ("quote", "escape"):
        if kind != "csv" and name in given:
            raise PostgresError("0A000", f"COPY {name} available only in CSV mode")
    if "encoding" in given and given["encoding"].text().lower().replace("-", "") not in ("utf8", "unicode"):
        raise not_supported(f'COPY with encoding "{given["encoding"].text()}" is not supported')
    delimiter = given["delimiter"].text() if "delimiter" in given else ("," if kind == "csv" else "\t")
    if len(delimiter.encode()) != 1:
        raise PostgresError("0A000", "COPY delimiter must be a single one-byte character")
    if delimiter in "\r\n":
        raise PostgresError("22023", "COPY delimiter cannot be newline or carriage return")
    if kind == "text" and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise PostgresError("22023", f'COPY delimiter cannot be "{delimiter}"')
    null = given["null"].text() if "null" in given else ("" if kind == "csv" else "\\N")
    if "\r" in null or "\n" in null:
        raise PostgresError("22023", "COPY null representation cannot use newline or carriage return")
    if delimiter in null:
        raise PostgresError("0A000", "COPY delimiter must not appear in the NULL specification")
    quote = given["quote"].text() if "quote" in given else '"'
    if kind == "csv" and len(quote.encode()) != 1:
        raise PostgresError("0A000", "COPY quote must be a single one-byte character")
    if kind == "csv" and delimiter == quote:
        raise PostgresError("22023", "COPY delimiter and quote must be different")
    escape = given["escape"].text() if "escape" in given else quote
    header = "header" in given and _header(given["header"])
    del from_client
    return CopyOptions(kind, null, delimiter, quote, escape, header)


def _header(option: Option) -> bool:
    if option.value is not None and option.value.lower() == "match":
        return True
    return option.boolean()
