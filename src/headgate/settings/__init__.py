"""The settings of a node and of its sessions (manual, chapter 20).

`Settings` reads headgate.conf, headgate.auto.conf and the command line; `SessionSettings` is one session's view of it with
SET, SET LOCAL and RESET; `SettingDefinition` is one setting's type, bounds and context, `find` gives it by name.
"""

from headgate.settings.definition import SettingContext, SettingDefinition, SettingKind, Value
from headgate.settings.node import AUTO_CONF, CONF, Reload, Settings
from headgate.settings.session import SessionSettings, SettingValues
from headgate.settings.table import VERSION, VERSION_NUMBER, definitions, find
from headgate.settings.values import Setting

__all__ = [
    "AUTO_CONF",
    "CONF",
    "VERSION",
    "VERSION_NUMBER",
    "Reload",
    "SessionSettings",
    "Setting",
    "SettingContext",
    "SettingDefinition",
    "SettingKind",
    "SettingValues",
    "Settings",
    "Value",
    "definitions",
    "find",
]
