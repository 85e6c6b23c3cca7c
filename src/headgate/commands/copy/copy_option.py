"""The options of COPY (PostgreSQL 15's ProcessCopyOptions).

FREEZE is accepted and has no effect: headgate's files need no freezing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError, not_supported
from headgate.settings import encoding as encodings
from headgate.settings.encoding import UTF8, Encoding
from headgate.sql import names
from headgate.sql.options import Option, unique


class Header(enum.Enum):
    """The kind of the first line."""

    NONE = "none"
    NAMES = "names"
    MATCH = "match"
    """Names that must match those of the columns."""

    def __bool__(self) -> bool:
        return self is not Header.NONE


@dataclass(frozen=True)
class CopyOptions:
    """The format of the data. `force_…`: names of columns, None for all of them (``*``)."""

    format: str = "text"
    null: str = "\\N"
    delimiter: str = "\t"
    quote: str = '"'
    escape: str = '"'
    header: Header = Header.NONE
    force_quote: tuple[str, ...] | None = ()
    force_not_null: tuple[str, ...] = ()
    force_null: tuple[str, ...] = ()
    encoding: Encoding = UTF8

    @property
    def binary(self) -> bool:
        return self.format == "binary"

    @property
    def arrow(self) -> bool:
        """Whether the format is Arrow, which PostgreSQL does not have."""
        return self.format == "arrow"

    @property
    def csv(self) -> bool:
        return self.format == "csv"


_KNOWN = frozenset("format freeze delimiter null header quote escape force_quote force_not_null force_null encoding".split())


def read(nodes: Iterable[pb.Node], client: Encoding, *, from_client: bool) -> CopyOptions:
    """Read the options. Raise PostgreSQL's errors for invalid combinations. The default encoding is that of the `client`."""
    options = unique(nodes)
    for name, option in options.items():
        if name not in _KNOWN:
            raise PostgresError("42601", f'option "{name}" not recognized', location=option.location)
    kind = _format(options["format"], from_client=from_client) if "format" in options else "text"
    typed = kind in ("binary", "arrow")
    for name in ("delimiter", "null"):
        if typed and name in options:
            raise PostgresError("42601", f"cannot specify {name.upper()} in {kind.upper()} mode")
    header = _header(options["header"], from_client=from_client) if "header" in options else Header.NONE
    if typed and header:
        raise PostgresError("0A000", f"cannot specify HEADER in {kind.upper()} mode")
    for name in ("quote", "escape"):
        if kind != "csv" and name in options:
            raise PostgresError("0A000", f"COPY {name} available only in CSV mode")
    delimiter = options["delimiter"].text() if "delimiter" in options else ("," if kind == "csv" else "\t")
    if len(delimiter.encode()) != 1:
        raise PostgresError("0A000", "COPY delimiter must be a single one-byte character")
    if delimiter in "\r\n":
        raise PostgresError("22023", "COPY delimiter cannot be newline or carriage return")
    if kind == "text" and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise PostgresError("22023", f'COPY delimiter cannot be "{delimiter}"')
    null = options["null"].text() if "null" in options else ("" if kind == "csv" else "\\N")
    if "\r" in null or "\n" in null:
        raise PostgresError("22023", "COPY null representation cannot use newline or carriage return")
    if delimiter in null:
        raise PostgresError("0A000", "COPY delimiter must not appear in the NULL specification")
    quote = options["quote"].text() if "quote" in options else '"'
    _check_one_byte(kind, "quote", quote)
    if kind == "csv" and delimiter == quote:
        raise PostgresError("22023", "COPY delimiter and quote must be different")
    escape = options["escape"].text() if "escape" in options else quote
    _check_one_byte(kind, "escape", escape)
    forced = {name: _read_force(options[name], kind, from_client=from_client) for name in _FORCES if name in options}
    encoding = _encoding(options["encoding"]) if "encoding" in options else client
    encoding = client if typed else encoding  # binary values are in the client encoding, as in the send and receive functions
    return CopyOptions(
        kind, null, delimiter, quote, escape, header, forced.get("force_quote", ()), forced.get("force_not_null") or (),
        forced.get("force_null") or (), encoding,
    )  # fmt: skip


def _format(option: Option, *, from_client: bool) -> str:
    kind = option.text()
    if kind not in ("text", "csv", "binary", "arrow"):
        raise PostgresError("22023", f'COPY format "{kind}" not recognized', location=option.location)
    if kind == "arrow" and from_client:
        raise not_supported("COPY FROM in format arrow is not supported", location=option.location)
    return kind


def _check_one_byte(kind: str, name: str, text: str) -> None:
    if kind == "csv" and len(text.encode()) != 1:
        raise PostgresError("0A000", f"COPY {name} must be a single one-byte character")


def _header(option: Option, *, from_client: bool) -> Header:
    if option.value is not None and option.value.lower() == "match":
        if not from_client:
            raise PostgresError("0A000", 'cannot use "match" with HEADER in COPY TO')
        return Header.MATCH
    try:
        return Header.NAMES if option.boolean() else Header.NONE
    except PostgresError as error:
        raise PostgresError("42601", 'header requires a Boolean value or "match"') from error


_FORCES = {"force_quote": "TO", "force_not_null": "FROM", "force_null": "FROM"}


def _read_force(option: Option, kind: str, *, from_client: bool) -> tuple[str, ...] | None:
    """Return the columns of FORCE_QUOTE, FORCE_NOT_NULL or FORCE_NULL, or None for all."""
    if option.node is not None and option.node.DESCRIPTOR.name == "A_Star" and option.name == "force_quote":
        columns = None
    elif option.node is not None and option.node.DESCRIPTOR.name == "List":
        columns = tuple(names.strings(option.node.items))
    else:
        message = f'argument to option "{option.name}" must be a list of column names'
        raise PostgresError("22023", message, location=option.location)
    word = option.name.replace("_", " ")
    if kind != "csv":
        raise PostgresError("0A000", f"COPY {word} available only in CSV mode")
    if from_client != (_FORCES[option.name] == "FROM"):
        raise PostgresError("0A000", f"COPY {word} only available using COPY {_FORCES[option.name]}")
    return columns


def _encoding(option: Option) -> Encoding:
    name = encodings.canonical_name(option.text())
    if name is None:
        message = 'argument to option "encoding" must be a valid encoding name'
        raise PostgresError("22023", message, location=option.location)
    encoding = encodings.find(name)
    if encoding is None:
        raise not_supported(f"conversion between {name} and UTF8 is not supported", location=option.location)
    return encoding


def check_forced(options: CopyOptions, columns: Iterable[str], relation: Relation | None = None) -> None:
    """Raise 42703 for a column of FORCE_… that does not exist in the query or `relation`, and 42P10 for one that is not copied."""
    known = set(columns)
    for word in _FORCES:
        for name in getattr(options, word) or ():
            if name not in known and (relation is None or relation.column(name) is None):
                of = "" if relation is None else f' of relation "{relation.name}"'
                raise PostgresError("42703", f'column "{name}"{of} does not exist')
            if name not in known:
                raise PostgresError("42P10", f'{word.upper()} column "{name}" not referenced by COPY')
