"""``headgate upgrade``: converts a stopped node's data directory to the format of this version.

Called by `main`. The catalog is upgraded first, step by step (`headgate.catalog.upgrade`). Then HG_VERSION is written. Until then
no node starts there. If the upgrade is interrupted, run it again.
"""

from __future__ import annotations

from pathlib import Path

from headgate.catalog.layout.format import FORMAT
from headgate.cli import control, initdb, pidfile
from headgate.cli.message import fail, out, refusing
from headgate.storage.delta.fsync import sync


def upgrade(data_dir: Path) -> None:
    """Upgrade a directory and print each step."""
    control.check_directory(data_dir)
    if pidfile.alive(data_dir):
        fail(f'node is running in directory "{data_dir}"', "Stop it with the version of headgate that runs it.")
    version = data_dir / initdb.VERSION_FILE
    current = version.read_text().strip()
    if not current.isdigit() or int(current) > FORMAT:
        fail(f'data directory "{data_dir}" has format {current}, which this version does not know', "Use a newer version of headgate.")
    if current == str(FORMAT):
        out(f"data directory has format {FORMAT} already")
        return
    from headgate.catalog import upgrade as steps

    with refusing(), pidfile.occupied(data_dir):
        for reached in steps.upgrade(data_dir / initdb.CATALOG):
            out(f"catalog has format {reached}")
        _write(version)
    out(f"data directory has format {FORMAT}")


def _write(version: Path) -> None:
    """Write the version number atomically, after everything that the upgrade has written is durable."""
    draft = version.with_name(f"{version.name}.tmp")
    draft.write_text(f"{FORMAT}\n")
    draft.chmod(0o600)
    for path, then in ((draft, lambda: draft.replace(version)), (version.parent, lambda: None)):
        sync(path)
        then()
