"""PostgreSQL's check hooks for single settings: a value is rejected, or converted to its canonical form.

`node` and `session` call them after `SettingDefinition.read`. `canonical` returns the value to store.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import re
import zoneinfo
from collections.abc import Callable
from pathlib import Path

import headgate
from headgate.errors import PostgresError, not_supported
from headgate.settings import encoding, posix_zone
from headgate.settings.definition import SettingDefinition, SettingKind, Value, invalid

_STYLES = {"iso": "ISO", "sql": "SQL", "postgres": "Postgres", "german": "German"}
_ORDERS = {
    "mdy": "MDY",
    "us": "MDY",
    "noneuro": "MDY",
    "dmy": "DMY",
    "euro": "DMY",
    "ymd": "YMD",
}
_SHORTENED = ("postgres", "euro", "noneuro")
"""Words of DateStyle that may have any ending (European, PostgreSQL)."""
DATE_STYLE = "ISO, MDY"
_UNQUOTED = frozenset({"DateStyle", "listen_addresses", "synchronous_standby_names"})
"""Lists whose words are not identifiers. One word may be a list itself: SET DateStyle TO 'ISO, DMY'."""


_OWN_NAME = f"(headgate {headgate.__version__})"
_WITHOUT_EFFECT = frozenset(
    "log_lock_waits log_temp_files log_transaction_sample_rate log_error_verbosity log_parser_stats log_planner_stats"
    " log_executor_stats log_statement_stats".split()
)
"""Settings that users would rely on. They are rejected until they have an effect."""

_RULES = "posixrules"
_HOURS = re.compile(r"\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|0x[0-9a-f.]+(p[+-]?[0-9]+)?|inf|infinity|nan)\Z", re.IGNORECASE)
"""The numbers that strtod accepts."""


def canonical(setting: SettingDefinition, value: Value, held: Callable[[str], str] | None = None) -> Value:
    """Return the value in canonical form. Raise 22023 if the setting does not accept it.

    `held` returns the text of a setting that is in force. DateStyle keeps the parts of it that the new value leaves open.
    """
    if setting.name in _WITHOUT_EFFECT and value != setting.default:
        raise not_supported(f'setting "{setting.name}" is not supported', detail="A node would accept it and do nothing.")
    if setting.name == "standard_conforming_strings" and value is False:
        # the grammar has only `on`: with backslashes before quotes, parts of strings would run as statements
        raise PostgresError(
            "0A000",
            "standard_conforming_strings = off is not supported",
            hint="Use the escape string syntax for backslashes, e.g., E'\\\\'.",
        )
    if setting.name == "default_with_oids" and value is True:
        raise PostgresError("0A000", "tables declared WITH OIDS are not supported")
    if setting.kind is not SettingKind.STRING or not isinstance(value, str):
        return value
    match setting.name:
        case "TimeZone" | "log_timezone":
            return _timezone(setting.name, value)
        case "DateStyle":
            return _datestyle(value, DATE_STYLE if held is None else held(setting.name))
        case "client_encoding":
            return _client_encoding(value)
        case "server_version":
            return _announced_version(value)
        case "search_path" | "temp_tablespaces":
            split_list(setting.name, value)
        case "log_destination" if [word.lower() for word in split_list(setting.name, value)] != ["stderr"]:
            raise not_supported('"log_destination" other than stderr is not supported', hint="Redirect the node's stderr to a program.")
        case "ssl_passphrase_command" if value:
            raise not_supported(f'setting "{setting.name}" is not supported', hint="Store the private key without a passphrase.")
        case "application_name" | "cluster_name":
            return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in value.encode()[:63])
        case _:
            return value
    return value


def _client_encoding(text: str) -> str:
    """Return PostgreSQL's name of an encoding. Raise 0A000 if a node does not convert it."""
    name = encoding.canonical_name(text)
    if name is None:
        raise invalid("client_encoding", text)
    if encoding.find(name) is None:
        error = invalid("client_encoding", text, detail=f"Conversion between {name} and UTF8 is not supported.")
        raise dataclasses.replace(error, sqlstate="0A000")
    return name


def version_number(text: str) -> int:
    """Return the server_version_num of a server_version."""
    major, _, minor = text.split(maxsplit=1)[0].partition(".")
    return int(major) * 10000 + int(minor or 0)


def _announced_version(text: str) -> str:
    """Return a release of PostgreSQL 15 to 18, followed by headgate's name and version, by which nodes recognize each other."""
    release, _, own = text.partition(" ")
    if not re.fullmatch(r"1[5-8](\.\d{1,4})?", release) or own not in ("", _OWN_NAME):
        raise invalid("server_version", text, hint="A node can speak as PostgreSQL 15, 16, 17 or 18, such as 18.1.")
    return f"{release} {_OWN_NAME}"


@functools.cache
def zone_names() -> dict[str, str]:
    """Return the zones of the time zone database by lower-case name: its files without the copies in posix/ and right/."""
    names = {name.lower(): name for name in zoneinfo.available_timezones()}
    if any(Path(folder, _RULES).is_file() for folder in zoneinfo.TZPATH):
        names[_RULES] = _RULES  # Python leaves it out
    return names


def _timezone(name: str, text: str) -> str:
    """Return the canonical name of a time zone.

    It is a zone of the time zone database in its own spelling, or an offset in hours as a POSIX zone, or a POSIX zone in capitals.
    """
    lower = text.lower()
    known = zone_names().get(lower.removeprefix("posix/"))
    if known:
        return "posix/" + known if lower.startswith("posix/") else known
    if lower.startswith("right/") and lower.removeprefix("right/") in zone_names():
        detail = "PostgreSQL does not support leap seconds."
        raise PostgresError("22023", f'time zone "{text}" appears to use leap seconds', detail=detail)
    if _HOURS.match(text):
        return _hours_east(name, text)
    described = posix_zone.read(text)
    if described is None:
        raise invalid(name, text)
    return described.name


def _hours_east(name: str, text: str) -> str:
    """Return hours as SQL counts them, east of Greenwich, as the POSIX zone of that offset."""
    try:
        hours = float.fromhex(text) if "x" in text.lower() else float(text)
    except OverflowError:
        hours = math.inf
    if not -168 < hours < 168:  # the range of a POSIX zone
        raise invalid(name, text, detail="UTC timezone offset is out of range.")
    seconds = int(hours * 3600)
    east, west = ("-", "+") if seconds < 0 else ("+", "-")
    return f"<{_offset(seconds, east)}>{_offset(seconds, west)}"


def _offset(seconds: int, sign: str) -> str:
    hours, rest = divmod(abs(seconds), 3600)
    minutes, left = divmod(rest, 60)
    text = f"{sign}{hours:02d}"
    if minutes or left:
        text += f":{minutes:02d}"
    return text + (f":{left:02d}" if left else "")


def zone(name: str) -> datetime.tzinfo:
    """Return the time zone of a value of `TimeZone`: a name of the time zone database, or a POSIX zone."""
    if name.lower().removeprefix("posix/") in zone_names():
        return zoneinfo.ZoneInfo(name)
    described = posix_zone.read(name)
    return zoneinfo.ZoneInfo(name) if described is None else described


def _datestyle(text: str, held: str) -> str:
    """Return a style and an order, each from `text`, else from `held`.

    German implies DMY, and DEFAULT sets each part that is not given.
    """
    style, _, order = held.partition(", ")
    styles, orders = set[str](), set[str]()
    for key in split_list("DateStyle", text, keep_case=False):
        word = next((prefix for prefix in _SHORTENED if key.startswith(prefix)), key)
        if word in _STYLES:
            style = _STYLES[word]
            styles.add(style)
            order = "DMY" if word == "german" and not orders else order
        elif word in _ORDERS:
            order = _ORDERS[word]
            orders.add(order)
        elif word == "default":
            default_style, _, default_order = DATE_STYLE.partition(", ")
            style, order = style if styles else default_style, order if orders else default_order
        else:
            raise invalid("DateStyle", text, detail=f'Unrecognized key word: "{key}".')
        if len(styles) > 1 or len(orders) > 1:
            raise invalid("DateStyle", text, detail='Conflicting "datestyle" specifications.')
    return f"{style}, {order}"


def split_list(name: str, text: str, *, keep_case: bool = True) -> list[str]:
    """Split a list of identifiers like SplitIdentifierString: quoted parts are unchanged, others are converted to lower case.

    Raises 22023 with the DETAIL ``List syntax is invalid.`` An empty text is an empty list.
    """
    parts = _split(r'"((?:[^"]|"")*)"|([^\s,"]+)', text)
    if parts is None:
        raise invalid(name, text, detail="List syntax is invalid.")
    words = [bare.lower() if quoted is None else quoted for quoted, bare in parts]
    return words if keep_case else [word.lower() for word in words]


def split_places(name: str, text: str) -> list[str]:
    """Split addresses or directories like SplitDirectoriesString: case and inner blanks are kept, quotes protect commas.

    Raises 22023. An empty text is an empty list.
    """
    parts = _split(r'"((?:[^"]|"")+)"|([^\s,"](?:[^,"]*[^\s,"])?)', text)
    if parts is None:
        raise PostgresError("22023", f'invalid list syntax in parameter "{name}"')
    return [bare if quoted is None else quoted for quoted, bare in parts]


def _split(part: str, text: str) -> list[tuple[str | None, str]] | None:
    """Return (quoted text, bare text) of each part, one of which is None or empty. Return None if commas do not separate the parts."""
    parts: list[tuple[str | None, str]] = []
    rest = text
    while rest.strip() or parts:
        match = re.match(rf"\s*(?:{part})\s*(,|\Z)", rest)
        if match is None:
            return None
        parts.append((None if match[1] is None else match[1].replace('""', '"'), match[2]))
        if not match[3]:
            return parts
        rest = rest[match.end() :]
    return parts


def join_list(name: str, words: list[str]) -> str:
    """Return the text of ``SET x TO a, "B"``: each word quoted if an identifier must be, or unchanged (flatten_set_variable_args)."""
    if name in _UNQUOTED:
        return ", ".join(words)
    return ", ".join(word if re.fullmatch(r"[a-z_][a-z0-9_]*", word) else '"' + word.replace('"', '""') + '"' for word in words)


def placeholder(name: str) -> bool:
    """Return whether the name may be that of an application's own setting: identifiers with dots between them."""
    if "." not in name:
        return False
    return name.lower().startswith("spark.") or bool(
        re.fullmatch(r"[A-Za-z_\x80-\U0010ffff][\w$]*(\.[A-Za-z_\x80-\U0010ffff][\w$]*)+", name)
    )


def unrecognized(name: str) -> PostgresError:
    """Return the error for a name that is neither a setting nor a possible placeholder."""
    return PostgresError("42704", f'unrecognized configuration parameter "{name}"')


def check_placeholder(name: str) -> None:
    """Raise 42704 or 42602 if there cannot be a setting of that name."""
    if "." not in name:
        raise unrecognized(name)
    if not placeholder(name):
        raise PostgresError(
            "42602",
            f'invalid configuration parameter name "{name}"',
            detail="Custom parameter names must be two or more simple identifiers separated by dots.",
        )
