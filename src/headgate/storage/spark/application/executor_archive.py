"""The Python packages of a node in two archives, for the executors of a cluster (`spark.archives`): headgate itself, and what it asks for.

An executor unpacks them once and runs its tasks with them. Made by `spark_session.start` where the master is a cluster, the one of the
packages (some 15 s) the first time that these versions of them are used, that of headgate whenever its text has changed; kept beside the
jars. What must hold: executors have an interpreter of the same minor version of Python, as compiled packages are of one.

In them is what `headgate` itself asks for, as it is installed here; of PySpark only the Python, since the Java of an executor is the
cluster's.
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
"""The names that the unpacked archives have in an executor's working directory."""
PYTHONPATH = f"{OWN}{os.pathsep}{PACKAGES}"
"""Where executors find them."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_JAVA = re.compile(r"pyspark/(bin|data|examples|jars|licenses|python|sbin)/")
_UNUSED = re.compile(r"(^|/)(tests|include|__pycache__)/|\.(a|h|hpp|pyi|pyx|pxd)$|^\.\./")
_log = logging.getLogger("headgate.storage")


def interpreter() -> str:
    """The interpreter of executors where `spark.pyspark.python` names none."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def make() -> list[str]:
    """The archives as `spark.archives` names them: those that are there, or new ones."""
    packages = _packages()
    versions = "\n".join([interpreter(), *(f"{each.name} {each.version}" for each in packages)])
    own = hashlib.sha256()
    for name, file in sorted(_own()):
        own.update(name.encode() + file.read_bytes())
    found = [
        (OWN, _made(f"headgate-{own.hexdigest()[:12]}", _own)),
        (PACKAGES, _made(f"packages-{hashlib.sha256(versions.encode()).hexdigest()[:12]}", lambda: _files(packages))),
    ]
    return [f"{path}#{folder}" for folder, path in found]


def _made(name: str, files: Callable[[], Iterable[tuple[str, Path]]]) -> Path:
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


def _own() -> Iterator[tuple[str, Path]]:
    """The files of this package, which may be installed as a link to its source."""
    place = Path(headgate.__path__[0])
    for file in place.rglob("*"):
        name = f"headgate/{file.relative_to(place).as_posix()}"
        if file.is_file() and not _UNUSED.search(name):
            yield name, file


def _files(packages: Iterable[Distribution]) -> Iterator[tuple[str, Path]]:
    """The files of the packages but headgate's, with their names in the archive."""
    for package in packages:
        for each in package.files or ():
            name = each.as_posix()
            if package.name == "headgate" or _UNUSED.search(name) or _JAVA.match(name):
                continue
            yield name, Path(str(each.locate()))
