"""The Python packages of a node in one archive, for the executors of a cluster (`spark.archives`).

An executor unpacks it once and runs its tasks with it. Made by `spark_session.start` where the master is a cluster, the first time that
these versions of the packages are used (some 15 s), and kept beside the jars. What must hold: executors have an interpreter of the same
minor version of Python, as compiled packages are of one.

In it is what `headgate` itself asks for, as it is installed here; of PySpark only the Python, since the Java of an executor is the
cluster's.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import headgate
from headgate.storage.spark.jars import own_folder

FOLDER = "packages"
"""The name that the unpacked archive has in an executor's working directory."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_JAVA = re.compile(r"pyspark/(bin|data|examples|jars|licenses|python|sbin)/")
_UNUSED = re.compile(r"(^|/)(tests|include|__pycache__)/|\.(a|h|hpp|pyi|pyx|pxd)$|^\.\./")
_log = logging.getLogger("headgate.storage")


def interpreter() -> str:
    """The interpreter of executors where `spark.pyspark.python` names none."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def make() -> Path:
    """The archive of the packages as they are installed: the one that is there, or a new one."""
    packages = _packages()
    target = own_folder().parent / f"executor-{_digest(packages)}.tar.gz"
    if target.is_file():
        return target
    _log.info("making the archive of Python packages for Spark's executors")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
            for name, file in sorted(_files(packages)):
                archive.add(file, name, recursive=False)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _packages() -> list[Distribution]:
    """What headgate asks for, and what that asks for, in the order of their names."""
    found: dict[str, Distribution] = {}
    wanted = ["headgate"]
    while wanted:
        name = wanted.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # it is asked for on other systems
        if package.name not in found:
            found[package.name] = package
            wanted += [match[0] for each in package.requires or () if "extra ==" not in each and (match := _NAME.match(each))]
    return [found[name] for name in sorted(found)]


def _digest(packages: Iterable[Distribution]) -> str:
    """Names what the archive holds: the versions of the packages, and headgate's own text, which may change without one."""
    found = hashlib.sha256("\n".join(f"{each.name} {each.version}" for each in packages).encode())
    for name, file in sorted(_own()):
        found.update(name.encode() + file.read_bytes())
    return found.hexdigest()[:12]


def _own() -> Iterator[tuple[str, Path]]:
    """The files of this package, which may be installed as a link to its source."""
    place = Path(headgate.__path__[0])
    for file in place.rglob("*"):
        name = f"headgate/{file.relative_to(place).as_posix()}"
        if file.is_file() and not _UNUSED.search(name):
            yield name, file


def _files(packages: Iterable[Distribution]) -> Iterator[tuple[str, Path]]:
    """The files of all packages, with their names in the archive."""
    yield from _own()
    for package in packages:
        for each in package.files or ():
            name = each.as_posix()
            if package.name == "headgate" or _UNUSED.search(name) or _JAVA.match(name):
                continue
            yield name, Path(str(each.locate()))
