"""Settings as one reads them: a Mapping from name to shown text, and typed values in the unit that the reader wants.

The base of the settings of a node and of a session (`headgate.settings.node`, `.session`), which say where a value
comes from; this says what it is. What must hold: names are matched without regard to case.
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
    """A setting's value and where it comes from (`pg_settings.source`, `sourcefile`, `sourceline`)."""

    definition: SettingDefinition
    value: Value
    source: str = "default"
    file: str | None = None
    line: int | None = None

    @property
    def shown(self) -> str:
        """The value as SHOW prints it."""
        return self.definition.show(self.value)


class Values(Mapping[str, str]):
    """Settings by name; a subclass finds them."""

    @abstractmethod
    def setting(self, name: str) -> Setting:
        """The setting of that name in force; raises 42704."""

    def value(self, name: str) -> Value:
        """The typed value, a number in the setting's own unit; raises 42704, as all below do."""
        return self.setting(name).value

    def text(self, name: str) -> str:
        """The value as SHOW prints it."""
        return self.setting(name).shown

    def integer(self, name: str) -> int:
        """An integer setting's value in its own unit."""
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def real(self, name: str) -> float:
        """A number."""
        value = self.value(name)
        assert isinstance(value, int | float), name
        return float(value)

    def flag(self, name: str) -> bool:
        """A Boolean setting's value."""
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def seconds(self, name: str) -> float:
        """A time setting's value in seconds."""
        return self.real(name) * _SECONDS[self.setting(name).definition.unit]

    def milliseconds(self, name: str) -> int:
        """A time setting's value in milliseconds."""
        return round(self.seconds(name) * 1000)

    def bytes(self, name: str) -> int:
        """A memory setting's value in bytes."""
        return self.integer(name) * _BYTES[self.setting(name).definition.unit]

    def words(self, name: str) -> list[str]:
        """The parts of a setting that is a list, such as `search_path`."""
        return check.split_list(name, str(self.value(name)))

    def places(self, name: str) -> list[str]:
        """The parts of a setting that lists addresses or directories: each as it is written."""
        return check.split_places(name, str(self.value(name)))
