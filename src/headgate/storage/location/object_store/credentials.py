"""Where the credentials for an object store are: the setting `data_location_credentials` names environment variables or a file.

``env:NAME[,NAME…]`` or ``file:/a/file``; called by the modules of the stores, which say how many names there are and what a file holds.
What must hold: nothing of what was found there, or written into the setting in its place, gets into an error.
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
    """What the setting names: the values of variables, or a file."""

    variables: tuple[str, ...] = field(default=(), repr=False)
    file: Path | None = None


class NoCredentialsError(Exception):
    """A file holds no credentials; the text says what it should hold."""


def find(settings: Mapping[str, str], hint: str, names: tuple[int, ...]) -> Source | None:
    """What the setting names, None: nothing. `names`: how many variables may be named.

    22023 where it is something else, or a variable is not set.
    """
    kind, _, name = settings.get(SETTING, "").partition(":")
    match kind:
        case "":
            return None
        case "env":
            wanted = [each.strip() for each in name.split(",")]
            if len(wanted) in names and all(wanted):
                return Source(tuple(_variable(each) for each in wanted))
        case "file" if name:
            return Source(file=Path(name))
    raise invalid(hint)


def invalid(hint: str) -> PostgresError:
    """Whoever has written the credentials themselves into the setting sees them nowhere."""
    return PostgresError("22023", f'invalid value for parameter "{SETTING}"', hint=hint)


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise PostgresError("22023", f'environment variable "{name}", which parameter "{SETTING}" names, is not set')
    return value


def read(file: Path, parse: Callable[[str], T]) -> T:
    """What `parse` makes of a file's text. F0000 where it cannot be read, others than the owner can read it, or it holds no credentials."""
    try:
        if file.stat().st_mode & _OTHERS_MAY:
            raise PostgresError(
                "F0000", f'credentials file "{file}" has group or world access', detail="It must have permissions u=rw (0600) or less."
            )
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise PostgresError("F0000", f'could not read credentials file "{file}": {error.strerror}') from error
    except UnicodeDecodeError:
        raise PostgresError("F0000", f'could not read credentials file "{file}": it is no text') from None
    try:
        return parse(text)
    except NoCredentialsError as error:
        raise PostgresError("F0000", f'credentials file "{file}" names no credentials', hint=str(error)) from None
