"""Access to the node: certificates, pg_hba.conf and pg_ident.conf as they were last read without an error.

Created by the node, which calls `load` at startup and `reload` at SIGHUP. New connections read `tls` and `hba`. Invariants: an error at
startup is fatal, except in pg_ident.conf, without which no user is mapped. A file with an error at reload leaves the previous one in force.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from headgate.errors import PostgresError, Severity
from headgate.server.authentication.hba import HbaFile
from headgate.server.authentication.ident_map import IdentMap
from headgate.server.protocol.tls import Tls
from headgate.settings.node import Settings

_log = logging.getLogger("headgate.server")


class Access:
    """The TLS configuration and the parsed authentication files of a node."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.tls: Tls | None = None
        self.hba = HbaFile((), (), usable=False)

    def load(self) -> None:
        """Read all files at startup. Raise FATAL F0000 for an error."""
        self.tls = self._read_tls()
        hba = self._read_hba()
        if not hba.usable:
            raise PostgresError("F0000", "could not load pg_hba.conf", severity=Severity.FATAL)
        maps = self._read_maps()
        self.hba = hba if maps.complaints else replace(hba, maps=maps)

    def reload(self) -> None:
        """Reload all files, and use each one that has no error."""
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
        hba = HbaFile.read(Path(self._settings.text("hba_file")), tls=self._settings.flag("ssl"))
        _complain(hba.complaints)
        return hba

    def _read_maps(self) -> IdentMap:
        maps = IdentMap.read(Path(self._settings.text("ident_file")))
        _complain(maps.complaints)
        return maps


def _complain(errors: Iterable[PostgresError]) -> None:
    for error in errors:
        _log.info("%s", error.message, extra={"hint": error.hint, "context": error.context, "sqlstate": error.sqlstate})
