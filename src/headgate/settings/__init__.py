"""The settings of a node and of its sessions (manual, chapter 20).

`Settings` reads headgate.conf, headgate.auto.conf and the command line; `SessionSettings` is one session's view of it with
SET, SET LOCAL and RESET; `Definition` is one setting's type, bounds and context, `find` gives it by name.
"""

from headgate.settings.definition import Context, Definition, Kind, Value
from headgate.settings.node import AUTO_CONF, CONF, Reload, Settings
from headgate.settings.session import SessionSettings, State
from headgate.settings.table import VERSION, VERSION_NUMBER, definitions, find
from headgate.settings.values import Setting

__all__ = [
    "AUTO_CONF",
    "CONF",
    "VERSION",
    "VERSION_NUMBER",
    "Context",
    "Definition",
    "Kind",
    "Reload",
    "SessionSettings",
    "Setting",
    "Settings",
    "State",
    "Value",
    "definitions",
    "find",
]
