"""Data that outlives the process is written inside a durable step, so that there are failpoints before and after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from headgate.failpoint import Step

SOURCE = Path(__file__).parents[2] / "src" / "headgate"
DURABLE = {"fsync", "write_whole", "commit_version", "put_copy_data"}
"""Calls, by the name of the called function, that write something durable or report to another server that it is durable."""
INSIDE = {
    "catalog/catalog.py:_sync_folder": "called behind each commit of the catalog",
    "storage/delta/fsync.py:sync": "called by `Transaction._sync` and `Intents._write`, each in the step sync, and by `ForeignWriters.recover`",
    "storage/location/data_location.py:write_whole": "each call of it is looked at",
    "storage/location/data_location.py:write_new": "called by `delta_log.create` in the step staged, by `commit_version`, and by `directory_owner`",
    "storage/location/table_folders.py:claim": "called by `Transaction._open_external`, in the step staged",
    "storage/delta/delta_table.py:undo": "called by `ForeignWriters.recover`, in the step taken back and at a start",
    "storage/delta/checkpoint_file.py:announce": "called by `delta_checkpoint.write`, the step delta checkpoint",
    "storage/log_table.py:_commit": "called by `catch_up` in the step log table, and by `_tidied`, which changes no row",
    "storage/warmup.py:warm_up": "a separate table that only the warm-up uses",
    "storage/cleaning.py:_note_removed": "called by `_clean_table`, the step cleaning",
    "subscriber/apply/prepared.py:_sync": "called by `_write` in the step prepared segment",
}
"""Functions that are called inside a step."""
BEFORE = {
    "cli/initdb.py": "the node does not exist yet",
    "cli/upgrade.py": "no node works while a directory is upgraded, and the command can be given again",
    "storage/location/directory_owner.py": "the first start of a node, before it serves",
    "backup/beside.py": "a copy is valid only after its last file is written",
    "backup/target.py": "a node starts in the folder of a backup only if the backup is complete",
    "catalog/layout/wal.py": "a start that mends the catalog's log before anything reads it",
}
"""Modules that write while no node runs."""


def calls(tree: ast.AST, function: str = "", inside: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Yield each durable call: the function that contains it, the called function, and whether the call is inside a step."""
    for node in ast.iter_child_nodes(tree):
        name, within = function, inside
        if isinstance(node, ast.FunctionDef):
            name, within = node.name, any(map(is_step, node.decorator_list))
        elif isinstance(node, ast.With):
            within = inside or any(is_step(item.context_expr) for item in node.items)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in DURABLE:
            yield function, node.func.attr, inside
        yield from calls(node, name, within)


def is_step(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.func.id == "step"


def test_every_durable_write_has_failpoints() -> None:
    without = [
        f"{path.relative_to(SOURCE)}:{function} calls {called}"
        for path in sorted(SOURCE.rglob("*.py"))
        for function, called, inside in calls(ast.parse(path.read_text()))
        if not inside and str(path.relative_to(SOURCE)) not in BEFORE and f"{path.relative_to(SOURCE)}:{function}" not in INSIDE
    ]
    assert without == []


def test_every_step_is_used() -> None:
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "failpoint.py")
    assert [step for step in Step if f"Step.{step.name}" not in text] == []


def test_functions_listed_as_inside_a_step_exist() -> None:
    for function_path in INSIDE:
        path, function = function_path.split(":")
        assert f"def {function}(" in (SOURCE / path).read_text(), function_path
