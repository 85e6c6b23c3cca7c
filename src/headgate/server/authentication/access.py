"""Who gets in, and how: certificates, pg_hba.conf and pg_ident.conf as they were last read without an error.

Made by the node; `load` at the start, `reload` at SIGHUP; connections read `tls` and `hba` when they begin. What must hold: what is wrong
at the start ends it, but for pg_ident.conf, without which nobody is mapped; what is wrong later leaves what was in force.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from headgate.errors import PostgresError, Severity
from headgate.server.authentication.hba import HbaFile
from headgate.server.authentication.ident_map import IdentMap
from headgate.server.authentication.tls import Tls
from headgate.settings import Settings

_log = logging.getLogger("headgate.server")


class Access:
    """See the module."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.tls: Tls | None = None
        self.hba = HbaFile((), (), usable=False)

    def load(self) -> None:
        """Reads everything; FATAL F0000."""
        self.tls = self._read_tls()
        hba = self._read_hba()
        if not hba.usable:
            raise PostgresError("F0000", "could not load pg_hba.conf", severity=Severity.FATAL)
        maps = self._read_maps()
        self.hba = hba if maps.complaints else replace(hba, maps=maps)

    def reload(self) -> None:
        """Takes up each file with which nothing is wrong."""
        try:
            self.tls = self._read_tls()
        except PostgresError as error:
            _log.info("%s", error.message, extra={"detail": error.detail, "sqlstate": error.sqlstate})
            _log.info("SSL configuration was not reloaded")
        maps = self._read_maps()
        if maps.complaints:
            _log.info("pg_ident.conf was not reloaded")
            maps = self.hba.maps
        hba = self._read_hba()
        if not hba.usable:
            _log.info("pg_hba.conf was not reloaded")
            hba = self.hba
        self.hba = replace(hba, maps=maps)

    def _read_tls(self) -> Tls | None:
        return Tls.load(self._settings, self._folder) if self._settings.flag("ssl") else None

    def _read_hba(self) -> HbaFile:
        found = HbaFile.read(Path(self._settings.text("hba_file")), tls=self._settings.flag("ssl"))
        _complain(found.complaints)
        return found

    def _read_maps(self) -> IdentMap:
        found = IdentMap.read(Path(self._settings.text("ident_file")))
        _complain(found.complaints)
        return found


def _complain(errors: Iterable[PostgresError]) -> None:
    for error in errors:
        _log.info("%s", error.message, extra={"hint": error.hint, "context": error.context, "sqlstate": error.sqlstate})
