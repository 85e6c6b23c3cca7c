"""Puts the node's pgoutput decoder into the wheel, so that the package does not depend on the node.

In the repository, `pyspark_headgate` imports the decoder from ``headgate``. The wheel gets the modules of ``headgate`` that it imports,
directly or through each other, as ``pyspark_headgate._node``, and all imports are rewritten to that name. Called by hatchling.
docs/decisions/0022-one-decoder.md has the reasons.
"""

from __future__ import annotations

import ast
import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "pyspark_headgate"
COPY = f"{PACKAGE}._node"
_IMPORT = re.compile(r"^(\s*from )headgate(?=[. ])", re.MULTILINE)


class DecoderHook(BuildHookInterface[Any]):
    """See the module."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the modules to the wheel. An editable installation keeps the repository's."""
        if version == "editable":
            return
        own, node = Path(self.root, "src", PACKAGE), Path(self.root).parent / "src"
        self._copies = tempfile.TemporaryDirectory(prefix="pyspark-headgate-")
        target = Path(self._copies.name)
        importers = [path for path in sorted(own.glob("*.py")) if _imports(path, node)]
        modules = _reached(importers, node)
        packages = {node / "headgate" / "__init__.py"} | {
            folder / "__init__.py" for path in modules for folder in path.parents if (node / "headgate") in folder.parents
        }
        for path in [*importers, *sorted(modules | packages)]:
            within = Path(PACKAGE, path.name) if path in importers else Path(*COPY.split(".")) / path.relative_to(node / "headgate")
            copy = target / within
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(_IMPORT.sub(rf"\1{COPY}", path.read_text()))
            build_data["force_include"][str(copy)] = str(within)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copies from which the wheel was made."""
        if version != "editable":
            self._copies.cleanup()


def _reached(importers: list[Path], node: Path) -> set[Path]:
    """Return the modules of the node that these modules import, directly or through each other."""
    modules: set[Path] = set()
    pending = list(importers)
    while pending:
        new = _imports(pending.pop(), node) - modules
        modules |= new
        pending += new
    return modules


def _imports(path: Path, node: Path) -> set[Path]:
    """Return the modules of the node that a module imports."""
    modules = set()
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.split(".")[0] == "headgate":
            for name in statement.names:
                module = node.joinpath(*statement.module.split("."))
                inner = module / f"{name.name}.py"
                modules.add(inner if inner.is_file() else module.with_suffix(".py"))
    return modules
