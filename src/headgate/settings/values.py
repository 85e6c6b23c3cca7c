"""Settings for readers: a Mapping from name to shown text, and typed values in the unit that the reader requests.

This is the base of the settings of a node and of a session (`headgate.settings.node`, `.session`), which find the values.
Invariant: names are matched regardless of case.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.settings import check
from headgate.settings.definition import SettingDefinition, Value

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
_BYTES = {"B": 1, "kB": 1024, "8kB": 8192, "MB": 1024**2, "GB": 1024**3}


@dataclass(frozen=True)
class Setting:
    """A setting's value and its origin (`pg_settings.source`, `sourcefile`, `sourceline`)."""

    definition: SettingDefinition
    value: Value
    source: str = "default"
    file: str | None = None
    line: int | None = None

    @property
    def shown(self) -> str:
        return self.definition.show(self.value)


class Values(Mapping[str, str]):
    """Settings by name. A subclass finds them."""

    @abstractmethod
    def setting(self, name: str) -> Setting:
        """Return the setting of that name in force. Raise 42704 if there is none."""

    def value(self, name: str) -> Value:
        """Return the typed value, a number in the setting's own unit. Raise 42704 if there is no such setting, like all methods below."""
        return self.setting(name).value

    def text(self, name: str) -> str:
        return self.setting(name).shown

    def integer(self, name: str) -> int:
        """Return an integer setting's value in its own unit."""
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def real(self, name: str) -> float:
        value = self.value(name)
        assert isinstance(value, int | float), name
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def seconds(self, name: str) -> float:
        return self.real(name) * _SECONDS[self.setting(name).definition.unit]

    def milliseconds(self, name: str) -> int:
        return round(self.seconds(name) * 1000)

    def bytes(self, name: str) -> int:
        return self.integer(name) * _BYTES[self.setting(name).definition.unit]

    def words(self, name: str) -> list[str]:
        """Return the items of a setting that is a list, such as `search_path`."""
        return check.split_list(name, str(self.value(name)))

    def places(self, name: str) -> list[str]:
        """Return the items of a setting that lists addresses or directories, in their original spelling."""
        return check.split_places(name, str(self.value(name)))
