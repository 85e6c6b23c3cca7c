"""The Python packages of a node in two archives, for the executors of a cluster (`spark.archives`): headgate, and its dependencies.

An executor unpacks them once and runs its tasks with them. Made by `spark_session.start` if the master is a cluster, and stored next to the
jars. The archive of the dependencies (some 15 s) is made the first time that their versions are used, the archive of headgate whenever its
source has changed. Invariant: executors have an interpreter of the same minor version of Python, because compiled packages need that.

They contain the dependencies of `headgate` as they are installed here. Of PySpark they contain only the Python part, because an executor
uses the cluster's Java.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import headgate
from headgate.storage.spark.application.jars import own_folder

OWN, PACKAGES = "node", "packages"
"""The folders of the unpacked archives in an executor's working directory."""
PYTHONPATH = f"{OWN}{os.pathsep}{PACKAGES}"
"""The PYTHONPATH of executors."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_JAVA = re.compile(r"pyspark/(bin|data|examples|jars|licenses|python|sbin)/")
_UNUSED = re.compile(r"(^|/)(tests|include|__pycache__)/|\.(a|h|hpp|pyi|pyx|pxd)$|^\.\./")
_log = logging.getLogger("headgate.storage")


def interpreter() -> str:
    """Return the interpreter of executors if `spark.pyspark.python` does not name one."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def make() -> list[str]:
    """Return the archives in the form of `spark.archives`, making those that do not exist."""
    packages = _packages()
    versions = "\n".join([interpreter(), *(f"{package.name} {package.version}" for package in packages)])
    digest = hashlib.sha256()
    for name, file in sorted(_own_files()):
        digest.update(name.encode() + file.read_bytes())
    archives = [
        (OWN, _make_archive(f"headgate-{digest.hexdigest()[:12]}", _own_files)),
        (PACKAGES, _make_archive(f"packages-{hashlib.sha256(versions.encode()).hexdigest()[:12]}", lambda: _files(packages))),
    ]
    return [f"{path}#{folder}" for folder, path in archives]


def _make_archive(name: str, files: Callable[[], Iterable[tuple[str, Path]]]) -> Path:
    target = own_folder().parent / f"executor-{name}.tar.gz"
    if target.is_file():
        return target
    _log.info('making the archive "%s" for Spark\'s executors', target.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
            for path, file in sorted(files()):
                archive.add(file, path, recursive=False)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _packages() -> list[Distribution]:
    """Return the distributions of headgate and its dependencies, sorted by name."""
    packages: dict[str, Distribution] = {}
    pending = ["headgate"]
    while pending:
        name = pending.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # a dependency on other systems
        if package.name not in packages:
            packages[package.name] = package
            pending += [
                match[0] for requirement in package.requires or () if "extra ==" not in requirement and (match := _NAME.match(requirement))
            ]
    return [packages[name] for name in sorted(packages)]


def _own_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of headgate, which may be installed as a link to its source."""
    root = Path(headgate.__path__[0])
    for file in root.rglob("*"):
        name = f"headgate/{file.relative_to(root).as_posix()}"
        if file.is_file() and not _UNUSED.search(name):
            yield name, file


def _files(packages: Iterable[Distribution]) -> Iterator[tuple[str, Path]]:
    """Yield the files of all packages except headgate, with their names in the archive."""
    for package in packages:
        for file in package.files or ():
            name = file.as_posix()
            if package.name == "headgate" or _UNUSED.search(name) or _JAVA.match(name):
                continue
            yield name, Path(str(file.locate()))
