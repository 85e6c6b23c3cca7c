"""The credentials for an object store: the setting `data_location_credentials` names environment variables or a file that hold them.

Its form is ``env:NAME[,NAME…]`` or ``file:/a/file``. Called by the modules of the stores, which define the number of names and the file's
format. Invariant: no error message contains the credentials, not even if they are written into the setting itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from headgate.errors import PostgresError

SETTING = "data_location_credentials"
_OTHERS_MAY = 0o077

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """The source that the setting names: the values of variables, or a file."""

    variables: tuple[str, ...] = field(default=(), repr=False)
    file: Path | None = None


class NoCredentialsError(Exception):
    """A file holds no credentials. The text describes what it should hold."""


def find(settings: Mapping[str, str], hint: str, names: tuple[int, ...]) -> Source | None:
    """Return the source that the setting names, or None if it is empty. `names`: the allowed numbers of variables.

    Raise 22023 if it has another form, or if a variable is not set.
    """
    kind, _, name = settings.get(SETTING, "").partition(":")
    match kind:
        case "":
            return None
        case "env":
            variables = [variable.strip() for variable in name.split(",")]
            if len(variables) in names and all(variables):
                return Source(tuple(_variable(variable) for variable in variables))
        case "file" if name:
            return Source(file=Path(name))
    raise invalid(hint)


def invalid(hint: str) -> PostgresError:
    """Return 22023 without the value, because the setting may contain the credentials themselves."""
    return PostgresError("22023", f'invalid value for parameter "{SETTING}"', hint=hint)


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise PostgresError("22023", f'environment variable "{name}", which parameter "{SETTING}" names, is not set')
    return value


def read(file: Path, parse: Callable[[str], T]) -> T:
    """Parse a file. Raise F0000 if it cannot be read, if group or others have access, or if it holds no credentials."""
    try:
        if file.stat().st_mode & _OTHERS_MAY:
            raise PostgresError(
                "F0000", f'credentials file "{file}" has group or world access', detail="It must have permissions u=rw (0600) or less."
            )
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise PostgresError("F0000", f'could not read credentials file "{file}": {error.strerror}') from error
    except UnicodeDecodeError:
        raise PostgresError("F0000", f'could not read credentials file "{file}": it is not a text file') from None
    try:
        return parse(text)
    except NoCredentialsError as error:
        raise PostgresError("F0000", f'credentials file "{file}" names no credentials', hint=str(error)) from None
