"""``headgate initdb``: creates a node's data directory, with the messages of initdb.

Called by `main`. Invariant: a directory that was not empty is not changed, and if any step fails, everything that was created is
removed again.
"""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from headgate.catalog.layout.format import FORMAT
from headgate.cli.message import Failed, err, out
from headgate.errors import PostgresError
from headgate.settings import file as conf_file
from headgate.settings.node import AUTO_CONF, CONF
from headgate.storage.delta.fsync import sync

VERSION_FILE = "HG_VERSION"
CATALOG = "catalog.duckdb"
TABLES = "base"
METHODS = ("trust", "reject", "scram-sha-256", "md5", "password")
_BY_PASSWORD = {"scram-sha-256", "md5", "password"}

_CAUTION = """
# CAUTION: Configuring the system for local "trust" authentication allows any local user to connect as any user, including the
# superuser. If you do not trust all your local users, use another authentication method.

"""


@dataclass(frozen=True)
class InitdbOptions:
    """The arguments of initdb."""

    data_dir: Path
    superuser: str | None = None
    auth: str | None = None
    auth_local: str | None = None
    auth_host: str | None = None
    password_file: Path | None = None
    prompt: bool = False
    settings: tuple[tuple[str, str], ...] = ()


def _sample(name: str) -> str:
    return (resources.files("headgate.cli") / f"{name}.sample").read_text("utf-8")


def initdb(options: InitdbOptions) -> None:
    """Create the data directory and print the steps. Raise Failed with initdb's text."""
    local, host = _methods(options)
    superuser = options.superuser or getpass.getuser()
    if superuser.startswith("pg_"):
        raise Failed(f'initdb: error: superuser name "{superuser}" is disallowed; role names cannot begin with "pg_"')
    password = _password(options, {local, host})
    owner = getpass.getuser()
    out(f'The files belonging to this node will be owned by user "{owner}".\nThis user must also own the node process.\n')
    out('The default database encoding has accordingly been set to "UTF8".\n')
    with _fresh(options.data_dir):
        _fill(options, local, host, superuser, password)
    if options.auth is None and "trust" in {local, host}:
        err('initdb: warning: enabling "trust" authentication for local connections')
        err(
            "initdb: hint: You can change this by editing pg_hba.conf or using the option -A, or --auth-local and --auth-host, "
            "the next time you run initdb."
        )
    out(f"\nSuccess. You can now start the node using:\n\n    headgate start -D {options.data_dir} -l logfile\n")


def _methods(options: InitdbOptions) -> tuple[str, str]:
    methods = []
    for own_method, kind in ((options.auth_local, "local"), (options.auth_host, "host")):
        method = own_method or options.auth or "trust"
        if method not in METHODS:
            raise Failed(f'initdb: error: invalid authentication method "{method}" for "{kind}" connections')
        methods.append(method)
    return methods[0], methods[1]


def _password(options: InitdbOptions, methods: set[str]) -> str | None:
    if options.password_file is not None:
        try:
            first = options.password_file.read_text().split("\n", 1)[0].rstrip("\r")
        except OSError as error:
            raise Failed(f'initdb: error: could not open file "{options.password_file}" for reading: {error.strerror}') from error
        if not first:
            raise Failed(f'initdb: error: password file "{options.password_file}" is empty')
        return first
    if options.prompt:
        first, again = (getpass.getpass(text) for text in ("Enter new superuser password: ", "Enter it again: "))
        if first != again:
            raise Failed("Passwords didn't match.")
        return first
    if methods & _BY_PASSWORD:
        raise Failed("initdb: error: must specify a password for the superuser to enable password authentication")
    return None


@contextmanager
def _step(description: str) -> Iterator[None]:
    out(f"{description} ... ", end="")
    yield
    out("ok")


@contextmanager
def _fresh(data_dir: Path) -> Iterator[None]:
    """Create the directory, or use an empty one. On any failure, remove what was created."""
    existed = data_dir.exists()
    if existed and not data_dir.is_dir():
        raise Failed(f'initdb: error: could not access directory "{data_dir}": Not a directory')
    if existed and any(data_dir.iterdir()):
        raise Failed(
            f'initdb: error: directory "{data_dir}" exists but is not empty',
            "initdb: hint: If you want to create a new node, either remove or empty the directory "
            f'"{data_dir}" or run initdb with an argument other than "{data_dir}".',
        )
    try:
        with _step(f"fixing permissions on existing directory {data_dir}" if existed else f"creating directory {data_dir}"):
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            data_dir.chmod(0o700)
        yield
    except BaseException as error:
        _sweep(data_dir, existed=existed)
        if isinstance(error, OSError):
            raise Failed(f'initdb: error: could not create "{error.filename}": {error.strerror}') from error
        if isinstance(error, PostgresError):
            raise Failed(f"initdb: error: {error.message}") from error
        raise


def _sweep(data_dir: Path, *, existed: bool) -> None:
    if not data_dir.exists():
        return
    err(f'initdb: removing {"contents of data directory" if existed else "data directory"} "{data_dir}"')
    for entry in data_dir.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if not existed:
        data_dir.rmdir()


def _fill(options: InitdbOptions, local: str, host: str, superuser: str, password: str | None) -> None:
    data_dir = options.data_dir
    with _step("creating subdirectories"):
        for name in (TABLES,):
            (data_dir / name).mkdir(mode=0o700)
    with _step("creating configuration files"):
        caution = _CAUTION if "trust" in {local, host} else "\n"
        _write(data_dir / CONF, conf_file.default_text(options.settings))
        _write(data_dir / AUTO_CONF, conf_file.write_auto({}))
        _write(data_dir / "pg_ident.conf", _sample("pg_ident.conf"))
        _write(data_dir / "pg_hba.conf", _sample("pg_hba.conf").format(caution=caution, local=local, host=host))
    with _step("creating the catalog"):
        from headgate.catalog.catalog import Catalog

        Catalog.create(data_dir / CATALOG, superuser=superuser, password_verifier=_verifier(password, superuser)).close()
        (data_dir / CATALOG).chmod(0o600)
    with _step("syncing data to disk"):
        # the last file: a directory that has it is complete
        _write(data_dir / VERSION_FILE, f"{FORMAT}\n")
        for path in [*data_dir.iterdir(), data_dir]:
            sync(path)


def _verifier(password: str | None, superuser: str) -> str | None:
    if password is None:
        return None
    from headgate.catalog.security import password as passwords

    return passwords.stored(password, superuser)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
