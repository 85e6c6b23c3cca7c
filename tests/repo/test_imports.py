"""No module of the node imports itself through others, imports for type checkers and imports inside functions included."""

from __future__ import annotations

import grimp

APART = {"headgate.storage.transaction.partitioned_table", "headgate.storage.transaction.table_reader"}
"""A partitioned table reads its leaves by the reader, which reads a partitioned table by it."""


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("headgate", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    circular = set(imported)
    # a module that imports nothing circular is not circular
    while free := {module for module in circular if not imported[module] & circular}:
        circular -= free
    # nor is one that nothing circular imports
    while free := circular - {other for module in circular for other in imported[module]}:
        circular -= free
    assert circular == APART
