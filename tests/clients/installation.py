"""The installation of the client programs. A program is installed next to the Delta jars when a test first needs it.

Every package comes from a lock file with hashes, and is installed once for each lock file and machine:

- Python: ``requirements-clients.txt`` (drivers) and ``requirements-programs.txt`` (dbt, Debezium's engine).
- npm: ``programs/node/package-lock.json``. Go: ``programs/go/go.sum``.
- Java: the digests of pgjdbc and of a compiler, for machines without a JDK.

Node and Go themselves are not installed. If one of them is missing or too old, its tests are skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.storage.spark.application import jars
from headgate.storage.spark.application.jars import Jar

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
PGJDBC = Jar("org.postgresql", "postgresql", "42.7.14", "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c")
COMPILER = Jar("org.eclipse.jdt", "ecj", "3.33.0", "f7686c4960cf70c2ebc5c500a73a8cfc04541b730c18f1c5c21329889b137f45")


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a client: without PYTHONPATH, which has the modules of the tests, and with the time zone UTC."""
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, "TZ": "UTC", **more}


def printed(*arguments: str | Path) -> str:
    """Run a program and return its output."""
    return subprocess.run(arguments, check=True, capture_output=True, text=True, env=environment()).stdout.strip()


def run(*arguments: str | Path, folder: Path | None = None, **more: str) -> None:
    """Run an installer. Raise AssertionError with its output if it fails."""
    completed = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, env=environment(**more))
    assert completed.returncode == 0, (
        f"{' '.join(map(str, arguments))}: exit code {completed.returncode}\n{completed.stdout[-2000:]}{completed.stderr[-4000:]}"
    )


def once(name: str, sources: list[Path], make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` fills from these files. It is filled once per machine, under a lock between processes."""
    all_of_them = jars.own_folder().parent / "clients"
    all_of_them.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(b"\0".join([sys.version.encode(), *(source.read_bytes() for source in sources)])).hexdigest()
    folder = all_of_them / f"{name}-{digest[:12]}"
    with (all_of_them / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            for older in all_of_them.glob(f"{name}-*"):
                shutil.rmtree(older)
            folder.mkdir()
            make(folder)
            (folder / "complete").touch()
    return folder


def python(lock: str) -> Path:
    """Return the Python of a virtual environment with the packages of ``requirements-LOCK.txt``."""
    source = ROOT / f"requirements-{lock}.txt"

    def make(folder: Path) -> None:
        run(sys.executable, "-m", "venv", folder)
        pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        run(*pip, "--require-hashes", "-r", source)

    return once(lock, [source], make) / "bin" / "python"


def node() -> list[str | Path]:
    """Return the command of the JavaScript program."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are not installed (Debian's packages nodejs and npm)")
    sources = [PROGRAMS / "node" / name for name in ("package.json", "package-lock.json", "client.js")]

    def make(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)

    return ["node", "--throw-deprecation", once("node", sources, make) / "client.js"]


def without_go(module: Path) -> str | None:
    """Return the reason for which this machine cannot build a Go module, or None if it can."""
    [version_needed] = [line.split()[1] for line in (module / "go.mod").read_text().splitlines() if line.startswith("go ")]
    go_program = shutil.which("go")
    if not go_program:
        return f"go is not installed ({version_needed} or newer)"
    version = subprocess.run(
        [go_program, "env", "GOVERSION"], capture_output=True, text=True, cwd=ROOT, check=True, env=environment(GOTOOLCHAIN="local")
    )
    if [int(word) for word in version.stdout.strip().removeprefix("go").split(".")[:2]] < [
        int(word) for word in version_needed.split(".")[:2]
    ]:
        return f"go is older than {version_needed}"
    return None


def built_by_go(name: str, module: Path, package: str = ".") -> Path:
    """Build a package of a Go module, or of a module that its go.mod names. Return the program."""
    settings = {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    sources = [module / "go.mod", module / "go.sum", *sorted(module.glob("*.go"))]
    return once(name, sources, lambda folder: run("go", "build", "-o", folder / name, package, folder=module, **settings)) / name


def go() -> list[str | Path]:
    """Return the command of the Go program."""
    reason = without_go(PROGRAMS / "go")
    if reason is not None:
        pytest.skip(reason)
    return [built_by_go("pgx", PROGRAMS / "go")]


def java() -> list[str | Path]:
    """Return the command of the Java program. `make setup` installs only a Java runtime, so the compiler is a jar."""
    source = PROGRAMS / "java" / "Client.java"
    home = os.environ.get("JAVA_HOME")
    machine = Path(home) / "bin" / "java" if home else "java"

    def fetch(folder: Path) -> None:
        jars.resolve(folder, jars=(PGJDBC, COMPILER))

    libraries = once("jdbc", [Path(__file__)], fetch)

    def make(folder: Path) -> None:
        run(
            machine,
            "-jar",
            libraries / COMPILER.file,
            "-17",
            "-encoding",
            "UTF-8",
            "-nowarn",
            "-cp",
            libraries / PGJDBC.file,
            "-d",
            folder,
            source,
        )

    classes = once("java", [source], make)
    # the fast compiler suits a short program, and the serial collector leaves the other core to the tests
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Dfile.encoding=UTF-8", "-Duser.timezone=UTC")
    return [machine, *options, "-cp", f"{libraries / PGJDBC.file}{os.pathsep}{classes}", "Client"]
