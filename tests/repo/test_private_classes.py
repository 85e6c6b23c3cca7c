"""Private classes of Spark, PySpark, Py4J and Delta are used behind `storage.spark.internals` and `storage.delta.internals` only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headgate"
FACADES = (SOURCE / "storage/spark/internals", SOURCE / "storage/delta/internals")
PRIVATE_ATTRIBUTE = re.compile(
    r"_(gateway|jvm|jc|jdf|jsc|jconf|jsparkSession|jschema|jrdd|jreader|jwrite|ensure_initialized|stackTrace|sc)\Z"
)
"""Attributes of PySpark's objects that lead to Java's."""
PRIVATE_MODULE = re.compile(
    r"(pyspark\._|pyspark\.(java_gateway|daemon|worker)|pyspark\.sql\.(classic|connect|pandas)|pyspark\.errors\.exceptions|py4j)\b"
)
PUBLIC_NAMES = {"py4j.protocol": {"Py4JError", "Py4JJavaError", "Py4JNetworkError"}, "py4j.java_gateway": {"JavaGateway", "JavaObject"}}
"""The errors that PySpark's public methods raise, Py4J's own way to start Java, and the type of the objects that it returns."""
PRIVATE_CLASS = re.compile(r"org\.apache\.spark\.sql\.(catalyst|execution|internal|classic)\.[\w.$]+\Z")

MAY_BE_PRIVATE = re.compile(r"\._(gateway|jvm|j[a-z]|sc|ensure|stack)|_gateway|pyspark\.|py4j|org\.apache\.spark")


def uses(text: str) -> Iterator[str]:
    """Yield the private names that a module uses."""
    if not MAY_BE_PRIVATE.search(text):  # parsing all modules takes seconds
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name) if PRIVATE_ATTRIBUTE.match(name):
                yield name
            case ast.Import(names=names):
                yield from (alias.name for alias in names if PRIVATE_MODULE.match(alias.name))
            case ast.ImportFrom(module=str(module), names=names) if module in PUBLIC_NAMES:
                yield from (f"{module}.{alias.name}" for alias in names if alias.name not in PUBLIC_NAMES[module])
            case ast.ImportFrom(module=str(module)) if PRIVATE_MODULE.match(module):
                yield module
            case ast.Constant(value=str(value)) if PRIVATE_CLASS.match(value) or (
                PRIVATE_MODULE.match(value) and re.fullmatch(r"\w+(\.\w+)+", value)
            ):
                yield value


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("frame._jdf.queryExecution()", "_jdf"),
        ("spark._jvm.System.gc()", "_jvm"),
        ("getattr(context._gateway, 'proc')", "_gateway"),
        ("from pyspark.sql.pandas.types import to_arrow_type", "pyspark.sql.pandas.types"),
        ("from py4j.finalizer import ThreadSafeFinalizer", "py4j.finalizer"),
        ("from py4j.java_gateway import JavaGateway, launch_gateway", "py4j.java_gateway.launch_gateway"),
        ("import_module('pyspark.daemon')", "pyspark.daemon"),
        (
            "RULE = 'org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator'",
            "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
        ),
    ],
)
def test_a_private_use_is_recognized(line: str, name: str) -> None:
    assert list(uses(line)) == [name]


def test_own_attributes_and_public_errors_are_not_private_uses() -> None:
    assert (
        list(
            uses(
                "self._jvm_watch = self._join()\nlogging.getLogger('py4j')\nfrom py4j.protocol import Py4JJavaError\nfrom pyspark.sql import functions"
            )
        )
        == []
    )


def test_private_classes_are_used_behind_their_facades_only() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if not any(path.is_relative_to(facade) for facade in FACADES)]
    uses_by_module = {str(path.relative_to(SOURCE)): sorted(set(uses(path.read_text()))) for path in modules}
    assert {path: names for path, names in uses_by_module.items() if names} == {}


def functions(facade: Path) -> Iterator[str]:
    """Yield the public functions, classes and constants of a façade, as ``module.name``."""
    for path in sorted(facade.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names = [name]
                case ast.Assign(targets=[ast.Name(id=name)]):
                    names = [name]
                case _:
                    names = []
            yield from (f"{path.stem}.{name}" for name in names if not name.startswith("_"))


PAGE = "docs/architecture.md"
SECTION = "Private classes"


def listed() -> set[str]:
    """Return the names in the second column of the page's tables."""
    section = re.split(r"^## ", (ROOT / PAGE).read_text().partition(f"## {SECTION}\n")[2], flags=re.M)[0]
    cells = [row.split("|")[2] for row in section.splitlines() if row.startswith("| ") and not row.startswith("| private")]
    return {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}


def test_the_page_lists_every_function_of_the_facades() -> None:
    helpers = {"log_cache.LOOK_SECONDS"}
    present = {name for facade in FACADES for name in functions(facade)} - helpers
    assert listed() == present
