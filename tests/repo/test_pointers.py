"""Docs, docstrings and comments name only modules, files, documents and settings that exist in the repository."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.repo.page import ROOT

from headgate.settings.table import find

SOURCE = ROOT / "src" / "headgate"
DOCUMENTS = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
MODULES = [path for folder in ("src", "tests", "bench", "tools") for path in (ROOT / folder).rglob("*.py")]
FLOORS = {path.name for path in SOURCE.iterdir() if path.is_dir()}
FILES = {"duckdb", "sql", "wal"}
"""Endings of file names that begin like a package: ``catalog.duckdb.wal``, ``plpgsql.sql``."""
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


def is_below(folder: Path, parts: list[str]) -> bool:
    """Return whether a dotted name leads from a folder to a module, or to a name in one."""
    for number, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
            continue
        module = folder / f"{part}.py"
        word, text = (parts[number + 1 :] or [""], text_of(module)) if module.exists() else ([part], text_of(folder / "__init__.py"))
        return re.search(rf"\b{word[0]}\b", text) is not None
    return True


def test_cited_documents_exist() -> None:
    documents = {path.name for path in DOCUMENTS}
    assert [shown(path, name) for path, name in named(r"\b([\w-]+\.md)\b") if name not in documents] == []
    sections = named(r"\b([a-z]+(?:-[a-z]+)+) §")
    assert [shown(path, name) for path, name in sections if f"{name}.md" not in documents] == []


def is_setting(name: str) -> bool:
    """Return whether a module of the package has the setting of this name, as in ``plpgsql.extra_errors``."""
    return any(f'"{name}"' in text_of(path) for path in (SOURCE / name.partition(".")[0]).rglob("*.py"))


def test_modules_named_by_their_package_exist() -> None:
    missing = []
    for path, name in named(r"`(?:headgate\.)?([a-z_]+(?:\.\w+)+)[`(]"):
        own = list(path.parent.relative_to(SOURCE).parts) if path.is_relative_to(SOURCE) else []
        parts = name.split(".")
        is_ours = parts[0] in FLOORS and parts[-1] not in FILES and not is_setting(name)
        if is_ours and not any(is_below(SOURCE, [*prefix, *parts]) for prefix in ([], own[:1], own)):
            missing.append(shown(path, name))
    assert missing == []


def test_names_after_a_module_exist_in_a_module_of_that_name() -> None:
    modules = defaultdict(list)
    for path in MODULES:
        modules[path.parent.name if path.stem == "__init__" else path.stem].append(path)
    missing = []
    for path, name in named(r"`([a-z_]+(?:\.\w+)+)[`(]"):
        first, second, *_ = name.split(".")
        if first in modules and first not in FLOORS | {"headgate", "spark"} and second not in ("py", "sh", "sql"):
            places = modules[first]
            is_inside = any((module_path.parent / second).with_suffix(suffix).exists() for module_path in places for suffix in ("", ".py"))
            if not is_inside and not any(re.search(rf"\b{second}\b", text_of(module_path)) for module_path in places):
                missing.append(shown(path, name))
    assert missing == []


def test_named_files_of_the_repository_exist() -> None:
    names = {path.name for path in (*MODULES, *(ROOT / "pyspark-headgate").rglob("*.py"))}
    python = [shown(path, name) for path, name in named(r"`(\w+\.py)\b") if name not in names]
    assert python == []
    missing = []
    for path, name in named(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|sh|toml|txt|csv))`"):
        if f"ave this as `{name}`" in prose_of(path):  # a page of the guide tells its reader to write the file
            continue
        if not any((folder / name).exists() for folder in (*WORK_FOLDERS, path.parent)) and not name.startswith(("_delta_log/", "share/")):
            missing.append(shown(path, name))
    assert missing == []


def test_headgates_own_settings_and_files_exist() -> None:
    used = {name for path in SOURCE.rglob("*.py") for name in re.findall(r"(?<!`)headgate\.([a-z_]+)\b", text_of(path))}
    missing = []
    for path, name in named(r"`headgate\.([a-z_]+)\b"):
        is_module = (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()
        if not is_module and find(f"headgate.{name}") is None and name not in used:
            missing.append(shown(path, f"headgate.{name}"))
    assert missing == []
