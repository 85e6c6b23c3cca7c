"""One setting: its type, bounds, unit and context, and how its value is read and shown.

Used by `table` (all definitions), `node` and `session` (the values). The rules are those of PostgreSQL's guc.c (manual,
20.1.1 Parameter Names and Values): Booleans may be shortened to an unambiguous beginning, numbers may carry a unit or a
fraction that is rounded to the setting's own unit, enums are compared without case. Invariant:
``read(show(value)) == value`` for every value.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field

from headgate.errors import PostgresError

Value = bool | int | float | str


class SettingKind(enum.StrEnum):
    """`pg_settings.vartype`."""

    BOOL = "bool"
    INTEGER = "integer"
    REAL = "real"
    STRING = "string"
    ENUM = "enum"


class SettingContext(enum.StrEnum):
    """`pg_settings.context`: who may change a setting, and when (manual, 54.24)."""

    INTERNAL = "internal"
    POSTMASTER = "postmaster"
    SIGHUP = "sighup"
    SUPERUSER_BACKEND = "superuser-backend"
    BACKEND = "backend"
    SUPERUSER = "superuser"
    USER = "user"


# Each unit in terms of the smallest of its family; the order is that of guc.c, largest first (SHOW takes the first that divides).
_MEMORY = {"TB": 1024**4, "GB": 1024**3, "MB": 1024**2, "kB": 1024, "B": 1}
_TIME = {"d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}
_MEMORY_HINT = 'Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".'
_TIME_HINT = 'Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".'
# The prefixes of a text that C's strtol(…, 0) and strtod() read.
_WHOLE = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))")
_REAL = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE)
_BOOLS = {"true": True, "false": False, "yes": True, "no": False}
_OTHER_BOOLS = {"on": True, "off": False, "of": False, "1": True, "0": False}
# Spellings that PostgreSQL accepts but does not list in pg_settings.enumvals.
_HIDDEN = {
    "client_min_messages": {"debug": "debug2", "info": "info"},
    "log_min_messages": {"debug": "debug2"},
    "log_min_error_statement": {"debug": "debug2"},
    "backslash_quote": {"true": "on", "false": "off", "yes": "on", "no": "off", "1": "on", "0": "off"},
    "constraint_exclusion": {"true": "on", "false": "off", "yes": "on", "no": "off", "1": "on", "0": "off"},
    "compute_query_id": {"true": "on", "false": "off", "yes": "on", "no": "off", "1": "on", "0": "off"},
    "synchronous_commit": {"true": "on", "false": "off", "yes": "on", "no": "off", "1": "on", "0": "off"},
    "password_encryption": {},
    "wal_level": {"archive": "replica", "hot_standby": "replica"},
    "wal_compression": {"true": "on", "false": "off", "yes": "on", "no": "off", "1": "on", "0": "off"},
}


def invalid(name: str, text: str, *, detail: str | None = None, hint: str | None = None) -> PostgresError:
    return PostgresError("22023", f'invalid value for parameter "{name}": "{text}"', detail=detail, hint=hint)


def read_bool(text: str) -> bool | None:
    """Read a Boolean like PostgreSQL's parse_bool. Return None if the text is not a Boolean."""
    word = text.lower()
    if word in _OTHER_BOOLS:
        return _OTHER_BOOLS[word]
    return next((value for name, value in _BOOLS.items() if word and name.startswith(word)), None)


def _scale(unit: str) -> tuple[dict[str, int], int, str] | None:
    """Return the family of a base unit such as ``kB``, ``8kB`` or ``ms``: units, the size of the base unit, the hint."""
    match = re.fullmatch(r"(\d*)([A-Za-z]+)", unit)
    if not match:
        return None
    count = int(match[1] or 1)
    if match[2] in _MEMORY:
        return _MEMORY, count * _MEMORY[match[2]], _MEMORY_HINT
    return _TIME, count * _TIME[match[2]], _TIME_HINT


def _whole(text: str) -> tuple[int | float | None, str]:
    """Return the number at the beginning of a text, like parse_int, and the rest. It may be hexadecimal, octal, or have a fraction."""
    match = _WHOLE.match(text)
    rest = text[match.end() :] if match else text
    if match is None or rest[:1] in {".", "e", "E"}:
        return _real(text) if rest[:1] in {".", "e", "E"} or text[:2] in {"+.", "-."} else (None, text)
    sign, hexadecimal, octal, decimal = match.groups()
    number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return (-number if sign == "-" else number), rest


def _real(text: str) -> tuple[float | None, str]:
    """Return the number at the beginning of a text, like strtod, and the rest."""
    match = _REAL.match(text)
    if match is None:
        return None, text
    number = float(match[0])
    if math.isinf(number) and "inf" not in match[0].lower():
        return None, text  # ERANGE
    return number, text[match.end() :]


_GUARDED = frozenset({
    "config_file", "data_directory", "data_location", "data_location_credentials", "data_location_endpoint",
    "dynamic_library_path", "extension_destdir", "external_pid_file", "hba_file",
    "ident_file", "jit_provider", "krb_server_keyfile", "log_directory", "log_filename", "primary_conninfo",
    "session_preload_libraries", "shared_preload_libraries", "ssl_ciphers", "ssl_dh_params_file", "ssl_ecdh_curve",
    "ssl_max_protocol_version", "ssl_min_protocol_version", "ssl_passphrase_command", "unix_socket_directories",
})  # fmt: skip


def is_guarded(name: str) -> bool:
    """Return `SettingDefinition.guarded` of the setting of this name."""
    return name.lower() in _GUARDED or name.lower().startswith("spark.")


def guarded(name: str) -> PostgresError:
    """Return the 42501 error for a setting that not every role may see."""
    return PostgresError("42501", f'must be superuser or have privileges of pg_read_all_settings to examine "{name}"')


@dataclass(frozen=True)
class SettingDefinition:
    """The definition of a setting. The fields are those of `pg_settings`. `default` is in base units.

    `settings` of kind STRING are checked by `checks.check` as PostgreSQL's check hooks do.
    """

    name: str
    kind: SettingKind
    default: Value
    context: SettingContext
    category: str
    description: str
    extra: str = ""
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    flags: frozenset[str] = field(default_factory=frozenset)
    report: bool = False
    is_list: bool = False

    @property
    def guarded(self) -> bool:
        """Whether only roles with the rights of pg_read_all_settings may see it (GUC_SUPERUSER_ONLY).

        This holds for paths, and for Spark's settings, which may contain keys.
        """
        return is_guarded(self.name)

    def read(self, text: str) -> Value:
        """Read a value's text. Raise 22023 with PostgreSQL's message if it is malformed or out of range."""
        if self.kind is SettingKind.BOOL:
            value = read_bool(text)
            if value is None:
                raise PostgresError("22023", f'parameter "{self.name}" requires a Boolean value')
            return value
        if self.kind is SettingKind.ENUM:
            return self._choice(text)
        if self.kind is SettingKind.STRING:
            return text
        return self._number(text)

    def show(self, value: Value) -> str:
        """Return the value as SHOW prints it: numbers in the largest unit that divides them."""
        if isinstance(value, bool):
            return "on" if value else "off"
        if isinstance(value, str):
            return value
        if self.name == "data_directory_mode" or self.name.endswith(("_permissions", "_file_mode")):
            return f"{value:04o}" if isinstance(value, int) else str(value)
        scale = _scale(self.unit) if self.unit and value > 0 else None
        if scale is None:
            return _digits(value)
        units, base, _ = scale
        for unit, size in units.items():
            amount = value * base / size
            if isinstance(value, int) and value * base % size == 0:
                return f"{value * base // size}{unit}"
            if isinstance(value, float) and abs(round(amount) / amount - 1) <= 1e-8:  # guc.c: whole but for rounding
                return f"{_digits(amount)}{unit}"
        smallest, size = list(units.items())[-1]
        return f"{_digits(value * base / size)}{smallest}"

    def plain(self, value: Value) -> str:
        """Return the value as in `pg_settings.setting`: numbers in the base unit, without the unit."""
        if isinstance(value, bool | str):
            return self.show(value)
        return _digits(value)

    def _choice(self, text: str) -> str:
        word = text.lower()
        for choice in self.choices:
            if choice.lower() == word:
                return choice
        hidden = _HIDDEN.get(self.name, {}).get(word)
        if hidden is not None:
            return hidden
        raise invalid(self.name, text, hint=f"Available values: {', '.join(self.choices)}.")

    def _number(self, text: str) -> int | float:
        scale = _scale(self.unit) if self.unit else None
        begin = text.lstrip()
        number, rest = _whole(begin) if self.kind is SettingKind.INTEGER else _real(begin)
        if number is None or math.isnan(number):
            raise invalid(self.name, text)
        unit = rest.strip()
        if unit:
            if scale is None:
                raise invalid(self.name, text)
            if unit not in scale[0]:
                raise invalid(self.name, text, hint=scale[2])
            number = _round_to_smaller_unit(number * scale[0][unit] / scale[1], unit, scale)
        if self.kind is SettingKind.INTEGER:
            if not -(2**31) - 0.5 < number < 2**31 - 0.5:
                raise invalid(self.name, text, hint="Value exceeds integer range.")
            number = round(number)  # halves go to the even number, as rint() does
        self._within(number)
        return number

    def _within(self, number: float) -> None:
        low, high = self.minimum, self.maximum
        if (low is None or number >= low) and (high is None or number <= high):
            return
        unit = f" {self.unit}" if self.unit else ""
        raise PostgresError(
            "22023",
            f"{_digits(number)}{unit} is outside the valid range for parameter "
            f'"{self.name}" ({_digits(low if low is not None else -math.inf)} .. {_digits(high if high is not None else math.inf)})',
        )


def _round_to_smaller_unit(amount: float, unit: str, scale: tuple[dict[str, int], int, str]) -> float:
    """Return the amount as a multiple of the next smaller unit, if there is one: 0.1d is 2h (convert_to_base_unit in guc.c)."""
    smaller = next((size for size in scale[0].values() if size < scale[0][unit]), None)
    if smaller is None:
        return amount
    step = smaller / scale[1]
    # rint() keeps the sign of a zero
    return math.copysign(round(abs(amount) / step) * step, amount) if math.isfinite(amount) else amount


def _digits(number: float) -> str:
    """Return an integer's digits, or a real number in C's %g."""
    return str(number) if isinstance(number, int) else f"{number:g}"
