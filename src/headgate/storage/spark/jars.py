"""The jars that Spark needs beside its own: Delta Lake, and a local file system that starts no process for each file.

`find_jars` is called when Spark is started (`spark_session`), `ensure` before that by the command line, `resolve` by ``make setup``
(``python -m headgate.storage.spark.jars``). Spark's own dependency resolver (Ivy, through ``spark-submit --packages``) fetches them from
Maven Central, or from wherever ``spark.jars.ivySettings`` of SPARK_CONF_DIR points to; what it finds is compared with the
digests below.

Only these seven go on the class path: what else they name comes with Spark already, in versions that must not be mixed with others.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import PostgresError


@dataclass(frozen=True)
class Jar:
    """One jar by its Maven coordinates; `sha256` is the digest of the file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """As ``spark.jars.packages`` has it."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file(self) -> str:
        """The file's name in Maven's repositories and in our folder."""
        return f"{self.artifact}-{self.version}.jar"

    def places(self, folder: Path) -> Iterator[Path]:
        """Where the jar is in a folder of ours, in an Ivy cache's jars, in a Maven repository."""
        yield folder / self.file
        yield folder / f"{self.group}_{self.file}"
        yield folder.joinpath(*self.group.split("."), self.artifact, self.version, self.file)


_POLL = 0.1
DELTA = "4.4.0"
JARS = (
    Jar("io.delta", "delta-spark_4.1_2.13", DELTA, "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"),
    Jar("io.delta", "delta-storage", DELTA, "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar("io.delta", "delta-kernel-api", DELTA, "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"),
    Jar("io.delta", "delta-kernel-defaults", DELTA, "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"),
    Jar("io.delta", "delta-kernel-unitycatalog", DELTA, "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa"),
    Jar("io.unitycatalog", "unitycatalog-client", "0.6.0", "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19"),
    Jar("com.globalmentor", "hadoop-bare-naked-local-fs", "0.1.0", "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62"),
)
# What the jars' own descriptions ask for and Spark has already (Ivy's patterns of group:artifact).
_WITH_SPARK = (
    "com.fasterxml.*:*",
    "com.google.*:*",
    "jakarta.*:*",
    "org.antlr:*",
    "org.apache.*:*",
    "org.openapitools:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
)


def own_folder() -> Path:
    """Where `resolve` puts the jars: in the Python installation, or in the user's cache where that cannot be written."""
    prefix = Path(sys.prefix)
    if os.access(prefix, os.W_OK):
        return prefix / "share" / "headgate" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate" / "jars"


def _folders() -> list[Path]:
    """Where to look, first of all in HEADGATE_JARS; if that is set, nowhere else."""
    given = os.environ.get("HEADGATE_JARS")
    if given:
        return [Path(given)]
    home = Path.home()
    return [Path(sys.prefix) / "share" / "headgate" / "jars", own_folder(), home / ".ivy2.5.2" / "jars", home / ".m2" / "repository"]


def find_jars() -> list[Path]:
    """The paths of all jars, in the order of the class path; raises 58P01 naming the first that is missing."""
    found = []
    folders = _folders()
    for jar in JARS:
        path = next((place for folder in folders for place in jar.places(folder) if place.is_file()), None)
        if path is None:
            given = os.environ.get("HEADGATE_JARS")
            raise PostgresError(
                "58P01",
                f'could not find "{jar.file}"',
                detail=f"Looked in {', '.join(str(folder) for folder in dict.fromkeys(folders))}.",
                hint=f"HEADGATE_JARS is set to {given}; unset it, or put the jar there."
                if given
                else 'Run "make setup" or "python -m headgate.storage.spark.jars" with access to Maven Central, '
                "or set HEADGATE_JARS to a folder that has the jars.",
            )
        found.append(path)
    return found


def ensure() -> list[Path]:
    """`find_jars`, fetching what is missing; a folder named by HEADGATE_JARS is never written to."""
    try:
        return find_jars()
    except PostgresError:
        if os.environ.get("HEADGATE_JARS"):
            raise
        resolve()
        return find_jars()


def resolve(target: Path | None = None, tell: Callable[[int, int], None] = lambda _done, _all: None, jars: Sequence[Jar] = JARS) -> None:
    """Fetches jars (those of a node) into `target` (`own_folder`); raises 58000 with the resolver's last words when that fails.

    `tell` hears now and then how many of how many have been fetched.
    """
    target = target or own_folder()
    with tempfile.TemporaryDirectory(prefix="headgate-jars-") as scratch:
        folder = Path(scratch)
        program = folder / "nothing.py"
        program.write_text("")
        command = [
            str(_spark_home() / "bin" / "spark-submit"),
            "--master",
            "local[1]",
            "--conf",
            f"spark.jars.ivy={folder / 'ivy'}",
            "--packages",
            ",".join(jar.coordinate for jar in jars),
            "--exclude-packages",
            ",".join(_WITH_SPARK),
            str(program),
        ]
        # a home of its own: a half-filled ~/.m2 makes Ivy fail rather than ask Maven Central
        options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Duser.home={folder}"
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_DRIVER_PYTHON": sys.executable}
        said = folder / "said"
        with said.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder) as running:
            while running.poll() is None:
                tell(sum(1 for _ in (folder / "ivy").glob("cache/**/*.jar")), len(jars))
                time.sleep(_POLL)
        if running.returncode:
            last = "\n".join([line for line in said.read_text(errors="replace").splitlines() if line.strip()][-15:])
            raise PostgresError(
                "58000",
                f'could not fetch "{jars[0].file}" from Maven Central',
                detail=last,
                hint="Check the network, or set HEADGATE_JARS to a folder that has the jars.",
            )
        _take(folder / "ivy" / "jars", target, jars)


def _take(fetched: Path, target: Path, jars: Sequence[Jar]) -> None:
    """Checks each jar's digest and moves it to its place."""
    target.mkdir(parents=True, exist_ok=True)
    for jar in jars:
        path = next((place for place in jar.places(fetched) if place.is_file()), None)
        if path is None:
            raise PostgresError("58000", f'Maven Central gave no "{jar.file}"')
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise PostgresError("58000", f'"{jar.file}" is not the file that was expected', detail=f"Its SHA-256 digest is {digest}.")
        part = target / f"{jar.file}.part"
        shutil.copyfile(path, part)
        part.replace(target / jar.file)


def _spark_home() -> Path:
    """The folder of pyspark, found without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise PostgresError("58P01", 'could not find the Python package "pyspark"')
    return Path(os.environ.get("SPARK_HOME") or Path(found.origin).parent)


def main() -> None:
    """``python -m headgate.storage.spark.jars``: fetches what is not in `own_folder` yet; says why it cannot."""
    if all((own_folder() / jar.file).is_file() for jar in JARS):
        return
    try:
        resolve()
    except PostgresError as error:
        sys.exit("\n".join(line for line in (error.message, error.detail, error.hint) if line))


if __name__ == "__main__":
    main()
