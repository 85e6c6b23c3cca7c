"""Docs, docstrings and comments name only modules, files, documents and settings that are in the repository."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.repo.page import ROOT

from headgate.settings import find

SOURCE = ROOT / "src" / "headgate"
DOCUMENTS = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
MODULES = [path for folder in ("src", "tests", "bench", "tools") for path in (ROOT / folder).rglob("*.py")]
FLOORS = {path.name for path in SOURCE.iterdir() if path.is_dir()}
FILES = {"duckdb", "wal"}
"""Endings of files that a floor has its name from: ``catalog.duckdb.wal``."""
WORK_FOLDERS = (ROOT, ROOT / "src", SOURCE)
"""Folders to which a path in a document may be relative."""


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text()


@functools.cache
def prose_of(path: Path) -> str:
    """Return a document, or the long strings and comments of a module: not its code, in which the same words are variables."""
    if path.suffix == ".md":
        return text_of(path)
    return "\n".join(re.findall(r'"""(?:.*?)"""|#[^\n]*', text_of(path), re.S))


def named(pattern: str) -> Iterator[tuple[Path, str]]:
    """Return each name that the pattern finds in documents, docstrings and comments, with the file that has it."""
    for path in (*DOCUMENTS, *MODULES):
        for name in re.findall(pattern, prose_of(path)):
            yield path, name


def shown(path: Path, name: str) -> str:
    return f"{path.relative_to(ROOT)}: {name}"


def is_below(place: Path, parts: list[str]) -> bool:
    """Whether a dotted name leads from a folder to a module, or to a word in one."""
    for number, part in enumerate(parts):
        if (place / part).is_dir():
            place /= part
            continue
        module = place / f"{part}.py"
        word, text = (parts[number + 1 :] or [""], text_of(module)) if module.exists() else ([part], text_of(place / "__init__.py"))
        return re.search(rf"\b{word[0]}\b", text) is not None
    return True


def test_documents_that_are_cited_are_in_the_repository() -> None:
    known = {path.name for path in DOCUMENTS}
    assert [shown(path, name) for path, name in named(r"\b([\w-]+\.md)\b") if name not in known] == []
    sections = named(r"\b([a-z]+(?:-[a-z]+)+) §")
    assert [shown(path, name) for path, name in sections if f"{name}.md" not in known] == []


def test_modules_that_are_named_from_a_floor_exist() -> None:
    gone = []
    for path, name in named(r"`(?:headgate\.)?([a-z_]+(?:\.\w+)+)[`(]"):
        own = list(path.parent.relative_to(SOURCE).parts) if path.is_relative_to(SOURCE) else []
        parts = name.split(".")
        is_ours = parts[0] in FLOORS and parts[-1] not in FILES
        if is_ours and not any(is_below(SOURCE, [*before, *parts]) for before in ([], own[:1], own)):
            gone.append(shown(path, name))
    assert gone == []


def test_what_is_named_after_its_module_is_in_a_module_of_that_name() -> None:
    modules = defaultdict(list)
    for path in MODULES:
        modules[path.parent.name if path.stem == "__init__" else path.stem].append(path)
    gone = []
    for path, name in named(r"`([a-z_]+(?:\.\w+)+)[`(]"):
        first, second, *_ = name.split(".")
        if first in modules and first not in FLOORS | {"headgate", "spark"} and second not in ("py", "sh", "sql"):
            places = modules[first]
            is_inside = any((place.parent / second).with_suffix(suffix).exists() for place in places for suffix in ("", ".py"))
            if not is_inside and not any(re.search(rf"\b{second}\b", text_of(place)) for place in places):
                gone.append(shown(path, name))
    assert gone == []


def test_files_of_the_repository_that_are_named_exist() -> None:
    names = {path.name for path in MODULES}
    python = [shown(path, name) for path, name in named(r"`(\w+\.py)\b") if name not in names]
    assert python == []
    gone = []
    for path, name in named(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|sh|toml|txt|csv))`"):
        if not any((place / name).exists() for place in (*WORK_FOLDERS, path.parent)) and not name.startswith(("_delta_log/", "share/")):
            gone.append(shown(path, name))
    assert gone == []


def test_settings_and_files_of_headgates_own_exist() -> None:
    used = {name for path in SOURCE.rglob("*.py") for name in re.findall(r"(?<!`)headgate\.([a-z_]+)\b", text_of(path))}
    gone = []
    for path, name in named(r"`headgate\.([a-z_]+)\b"):
        is_module = (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()
        if not is_module and find(f"headgate.{name}") is None and name not in used:
            gone.append(shown(path, f"headgate.{name}"))
    assert gone == []
