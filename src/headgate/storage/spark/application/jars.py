"""The jars that Spark needs in addition to its own: Delta Lake, a local file system that forks no process per file, and the object stores'.

The jars of an object store are fetched when data_location first names one, by ``make setup S3=1 GS=1 AZURE=1`` or by
``headgate fetch-jars s3``. `find_jars` is called when Spark is started (`spark_session`), `ensure` before that by the command line,
`resolve` by ``make setup`` (``python -m headgate.storage.spark.application.jars``, with ``s3 gs azure`` for those of these
stores too). Spark's own dependency resolver (Ivy, through ``spark-submit --packages``) fetches them from Maven Central, or from the
repository in ``spark.jars.ivySettings`` of SPARK_CONF_DIR. The files are compared with the digests in jars.csv.

Only these jars go on the class path. Their other dependencies come with Spark, in versions that must not be mixed with others.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from headgate.errors import PostgresError


@dataclass(frozen=True)
class Jar:
    """One jar by its Maven coordinates. `sha256`: the digest of the file; `classifier`: the part of its name after the version."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def coordinate(self) -> str:
        """Return the coordinate in the form of ``spark.jars.packages``."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file(self) -> str:
        """Return the file's name in Maven's repositories and in the node's own folder."""
        return f"{self.artifact}-{self.version}{self.classifier and f'-{self.classifier}'}.jar"

    def places(self, folder: Path) -> Iterator[Path]:
        """Yield the jar's possible paths in the node's own folder, in an Ivy cache's jars, and in a Maven repository."""
        yield folder / self.file
        yield folder / f"{self.group}_{self.file}"
        yield folder.joinpath(*self.group.split("."), self.artifact, self.version, self.file)


_POLL = 0.1
_SPARK = "4.1"
"""The version of Spark that is locked. Its jars are used if there are none for the installed version."""


def _listed(name: str) -> tuple[Jar, ...]:
    """Return the jars in jars.csv for an object store, for Spark, or for one version of Spark ("spark 4.1")."""
    with (resources.files("headgate.storage.spark.application") / "jars.csv").open(encoding="utf-8") as rows:
        return tuple(Jar(**row) for row in csv.DictReader(rows) if row.pop("for") == name)


def _of_installed_spark() -> tuple[Jar, ...]:
    version = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    return _listed(f"spark {version}") or _listed(f"spark {_SPARK}")


JARS = (*_of_installed_spark(), *_listed("spark"))
STORE_JARS = {name: _listed(name) for name in ("s3", "gs", "azure")}
"""The jars by the name of the object store (`object_store.Store`).

For S3 they are Hadoop's S3A and the modules of the AWS SDK that it calls, as the whole SDK has 600 MB. For Google Cloud Storage, they are
its Hadoop connector, with its libraries under relocated names. For Azure, they are Hadoop's client: of its declared dependencies, only its
older client WASB calls those that Spark lacks.
"""
# Dependencies that the jars declare and that Spark already has (Ivy's patterns of group:artifact).
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
# Excluded for Hadoop's clients: their jars are listed completely above.
_ALONE = (
    "com.microsoft.azure:*",
    "commons-*:*",
    "io.netty:*",
    "org.apache.hadoop.thirdparty:*",
    "org.apache.httpcomponents:*",
    "org.eclipse.jetty:*",
    "org.slf4j:*",
    "org.wildfly.openssl:*",
    "software.amazon.s3.*:*",
    "software.amazon.awssdk:bundle",
    "software.amazon.awssdk:netty-nio-client",
)


def own_folder() -> Path:
    """Return the folder for fetched jars: in the Python installation, or in the user's cache if that is not writable."""
    prefix = Path(sys.prefix)
    if os.access(prefix, os.W_OK):
        return prefix / "share" / "headgate" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate" / "jars"


def _folders() -> list[Path]:
    """Return the folders to search. If HEADGATE_JARS is set, it is the only one."""
    folder = os.environ.get("HEADGATE_JARS")
    if folder:
        return [Path(folder)]
    home = Path.home()
    return [Path(sys.prefix) / "share" / "headgate" / "jars", own_folder(), home / ".ivy2.5.2" / "jars", home / ".m2" / "repository"]


def find_jars(jars: Sequence[Jar] = JARS) -> list[Path]:
    """Return the paths of all jars, in the order of the class path. Raise 58P01 for the first that is missing."""
    paths = []
    folders = _folders()
    for jar in jars:
        path = next((place for folder in folders for place in jar.places(folder) if place.is_file()), None)
        if path is None:
            jars_folder = os.environ.get("HEADGATE_JARS")
            raise PostgresError(
                "58P01",
                f'could not find "{jar.file}"',
                detail=f"Looked in {', '.join(str(folder) for folder in dict.fromkeys(folders))}.",
                hint=f"HEADGATE_JARS is set to {jars_folder}; unset it, or put the jar there."
                if jars_folder
                else 'Run "make setup" or "python -m headgate.storage.spark.application.jars" with access to Maven Central, '
                "or set HEADGATE_JARS to a folder that has the jars.",
            )
        paths.append(path)
    return paths


def ensure(jars: Sequence[Jar] = JARS) -> list[Path]:
    """Return the paths of all jars, fetching missing ones. A folder named by HEADGATE_JARS is never written to."""
    try:
        return find_jars(jars)
    except PostgresError:
        if os.environ.get("HEADGATE_JARS"):
            raise
        resolve(jars=jars)
        return find_jars(jars)


def resolve(target: Path | None = None, tell: Callable[[int, int], None] = lambda _done, _all: None, jars: Sequence[Jar] = JARS) -> None:
    """Fetch jars (by default those of a node) into `target` (`own_folder`). Raise 58000 with the resolver's last output on failure.

    `tell` is called every 0.1 s with the number of fetched jars and their total.
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
            *(_with_classifier(folder, jars) or ("--exclude-packages", ",".join(_exclusions(jars)))),
            str(program),
        ]
        # its own home folder: Ivy fails on a partly filled ~/.m2 instead of asking Maven Central
        options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Duser.home={folder}"
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_DRIVER_PYTHON": sys.executable}
        output_file = folder / "said"
        with (
            output_file.open("w") as output,
            subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder) as process,
        ):
            while process.poll() is None:
                tell(sum(1 for _ in (folder / "ivy").glob("cache/**/*.jar")), len(jars))
                time.sleep(_POLL)
        if process.returncode:
            last = "\n".join([line for line in output_file.read_text(errors="replace").splitlines() if line.strip()][-15:])
            raise PostgresError(
                "58000",
                f'could not fetch "{jars[0].file}" from Maven Central',
                detail=last,
                hint="Check the network, or set HEADGATE_JARS to a folder that has the jars.",
            )
        _take(folder / "ivy" / "jars", target, jars)


def _exclusions(jars: Sequence[Jar]) -> tuple[str, ...]:
    """Return the dependencies that are not fetched with these jars. Ivy would exclude a jar itself, too, if its group is among them."""
    return _ALONE if any(jar.group.startswith("org.apache.") for jar in jars) else _WITH_SPARK


def _with_classifier(folder: Path, jars: Sequence[Jar]) -> list[str]:
    """Return options with which Ivy finds jars with a classifier, which Spark's coordinates cannot name, without dependencies.

    They then come from Maven Central, regardless of SPARK_CONF_DIR. If that cannot be reached, use HEADGATE_JARS.
    """
    classifiers = {jar.classifier for jar in jars} - {""}
    if not classifiers:
        return []
    [classifier] = classifiers
    settings = folder / "ivysettings.xml"
    pattern = f"[organisation]/[module]/[revision]/[artifact]-[revision]-{classifier}.[ext]"
    resolver = f'<ibiblio name="central" m2compatible="true" usepoms="false" pattern="{pattern}"/>'
    settings.write_text(
        f'<ivysettings><settings defaultResolver="central"/><resolvers>{resolver}</resolvers></ivysettings>', encoding="utf-8"
    )
    return ["--conf", f"spark.jars.ivySettings={settings}"]


def _take(fetched: Path, target: Path, jars: Sequence[Jar]) -> None:
    """Check each jar's digest and move it to its folder. Raise 58000 if it is missing or differs."""
    target.mkdir(parents=True, exist_ok=True)
    for jar in jars:
        # Ivy stores a jar with a classifier under the name without it
        fetched_as = replace(jar, classifier="")
        path = next((place for place in fetched_as.places(fetched) if place.is_file()), None)
        if path is None:
            raise PostgresError("58000", f'Maven Central gave no "{jar.file}"')
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise PostgresError("58000", f'"{jar.file}" is not the file that was expected', detail=f"Its SHA-256 digest is {digest}.")
        part = target / f"{jar.file}.part"
        shutil.copyfile(path, part)
        part.replace(target / jar.file)


def _spark_home() -> Path:
    """Return the folder of pyspark, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PostgresError("58P01", 'could not find the Python package "pyspark"')
    return Path(os.environ.get("SPARK_HOME") or Path(spec.origin).parent)


def main() -> None:
    """Fetch the jars missing from `own_folder`: ``python -m headgate.storage.spark.application.jars [s3] [gs] [azure]``."""
    try:
        for jars in (JARS, *(STORE_JARS[name] for name in sys.argv[1:])):
            if not all((own_folder() / jar.file).is_file() for jar in jars):
                resolve(jars=jars)
    except PostgresError as error:
        sys.exit("\n".join(line for line in (error.message, error.detail, error.hint) if line))


if __name__ == "__main__":
    main()
