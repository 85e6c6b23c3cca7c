"""PostgreSQL's own tests: the source package of the installed PostgreSQL, fetched by Debian's package manager when a test needs it.

`fetch_source()` returns the folder of the unpacked test files. They stay below `.setup/source`, which git ignores: nothing of PostgreSQL's
source is committed. `unprivileged()` returns the start of a command line that runs a program as a user who is not root, because the TAP
tests start PostgreSQL, which refuses root. Each function skips the test, with the reason, if the machine does not have what it needs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest
from tests.conftest import PG_BIN

ROOT = Path(__file__).parents[2]
HEADGATE = Path(sys.executable).with_name("headgate")
FOLDERS = ("src/test/subscription/t", "src/test/perl", "src/test/regress/sql", "src/test/regress/expected", "src/test/isolation")
PG_REGRESS = PG_BIN.parent / "lib/pgxs/src/test/regress/pg_regress"


def _run(*words: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


@cache
def fetch_source() -> Path:
    """Return the folder with the test files of exactly the PostgreSQL that is installed."""
    if shutil.which("dpkg-query") is None or shutil.which("apt-get") is None:
        pytest.skip("PostgreSQL's source package needs Debian's package manager")
    package = _run("dpkg-query", "-S", PG_BIN / "postgres").stdout.partition(":")[0]
    if not package:
        pytest.skip(f"{PG_BIN / 'postgres'} is not of a Debian package")
    name, version = _run("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package).stdout.split()
    folder = ROOT / ".setup" / "source" / f"{name}_{version}"
    if not _is_whole(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            unpacked = _unpack(_download(name, version, Path(scratch)), Path(scratch))
            if not _is_whole(folder):  # otherwise another process of this run was faster
                shutil.rmtree(folder, ignore_errors=True)
                unpacked.rename(folder)
    return folder


def _is_whole(folder: Path) -> bool:
    """Return whether a folder has all files that the tests need. An earlier version of the tests may have unpacked fewer."""
    return all((folder / part).exists() for part in FOLDERS)


def _download(name: str, version: str, scratch: Path) -> Path:
    """Download a source package and return its archive of PostgreSQL's own files."""
    options = _apt_options(scratch)
    updated = _run("apt-get", *options, "update")
    completed = _run("apt-get", *options, "source", "--download-only", f"{name}={version}", folder=scratch)
    if completed.returncode:
        pytest.skip(f"could not download the source package {name} {version}: {updated.stderr}{completed.stderr}")
    [archive] = scratch.glob(f"{name}_*.orig.tar.*")
    return archive


def _apt_options(scratch: Path) -> list[str]:
    """Return the options with which apt-get reads source packages from the origins that the machine's own lists name.

    The machine's lists usually name binary packages only. Their copies in the scratch folder name source packages of the same origins.
    """
    sources, lists = scratch / "sources", scratch / "lists"
    (lists / "partial").mkdir(parents=True)
    sources.mkdir()
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")]:
        if path.exists():
            lines = re.sub(r"^deb(?=[ \t])", "deb-src", path.read_text(), flags=re.MULTILINE)
            (sources / path.name).with_suffix(".list").write_text(lines)
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        (sources / path.name).write_text(re.sub(r"^Types:.*$", "Types: deb-src", path.read_text(), flags=re.MULTILINE))
    settings = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": sources,
        "Dir::State::lists": lists,
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "root",
    }
    return ["-q", *(word for option, value in settings.items() for word in ("-o", f"{option}={value}"))]


def _unpack(archive: Path, scratch: Path) -> Path:
    """Unpack the folders of tests, readable for every user, and return their root."""
    target = scratch / "unpacked"
    with tarfile.open(archive) as files:
        members = [member for member in files if member.name.partition("/")[2].startswith(FOLDERS)]
        files.extractall(target, members, filter="data")
    [root] = target.iterdir()
    return root


@cache
def require_ipc_run() -> None:
    """Install Perl's IPC::Run, which PostgreSQL's test modules need, if it is missing."""
    test = ("perl", "-MIPC::Run", "-MTest::More", "-e", "1")
    if _run(*test).returncode == 0:
        return
    install = ("apt-get", "-y", "-q", "install", "--no-install-recommends", "libipc-run-perl")
    if os.geteuid() == 0 and _run(*install).returncode:
        _run("apt-get", "-q", "update")
        _run(*install)
    if _run(*test).returncode:
        pytest.skip("Perl's IPC::Run is missing and could not be installed (Debian: libipc-run-perl)")


@cache
def unprivileged() -> tuple[str, ...]:
    """Return the words before a command that run it as a user who is not root and who may run `headgate`.

    The checkout or its Python may lie in a folder that only root may read. The capability dac_read_search lets the user `postgres` read it.
    """
    if os.geteuid():
        return ()
    as_postgres = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups")
    capability = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    for words in (as_postgres, (*as_postgres, *capability)):
        # setpriv still has root's capabilities when it starts a program; the programs which that one starts do not
        if shutil.which("setpriv") and _run(*words, "env", HEADGATE, "--version", folder=Path("/")).returncode == 0:
            return words
    pytest.skip(f"the user postgres cannot run {HEADGATE}")
