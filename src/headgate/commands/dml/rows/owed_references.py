"""Check the foreign keys of rows that a statement writes in parts after all are written, as PostgreSQL's triggers do.

Called by `new_rows` (INSERT, COPY FROM) and `on_conflict`. Until then, the key columns are stored, in a file if there are many.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headgate.catalog.relation.relation import Relation
from headgate.commands.constraint import referential_action
from headgate.commands.constraint.reference_key import Rows
from headgate.commands.dml.rows import many_rows
from headgate.commands.query import rendering
from headgate.commands.query.planner import Planner
from headgate.storage import row_store
from headgate.storage.row_store import RowStore
from headgate.types import buffers


class OwedReferences:
    """The pending foreign key checks of one table's rows."""

    def __init__(self, planner: Planner, relation: Relation) -> None:
        self._planner, self._relation = planner, relation
        self._added: RowStore | None = None
        self._changed: RowStore | None = None

    def add(self, rows: pa.Table) -> None:
        """Record added rows."""
        if not self._relation.foreign_keys:
            return
        keys = rows.select(self._names(naming=True))
        if keys.num_rows > many_rows.most(self._planner.session):
            keys = keys.group_by(keys.column_names, use_threads=False).aggregate([])  # keeps the order of first occurrence
        self._added = self._kept(self._added, keys)

    def change(self, changed: Rows) -> None:
        """Record changed rows (`old`, `new`) that fit in the driver."""
        if not self._relation.foreign_keys and not self._relation.referenced:
            return
        sides = changed if isinstance(changed, pa.Table) else changed.select("old", "new").toArrow()
        names = self._names(naming=True, named=True)
        keys = [buffers.whole(sides[side]) for side in ("old", "new")]
        structs = [pa.StructArray.from_arrays([side_rows.field(name) for name in names], names=names) for side_rows in keys]
        self._changed = self._kept(self._changed, pa.table(structs, names=["old", "new"]))

    def check(self) -> None:
        """Raise 23503 unless the referenced rows exist. Rows that reference changed keys raise the error too, or change by their action."""
        from headgate.commands.dml import assignment

        added, changed, self._added, self._changed = self._added, self._changed, None, None
        for rows in self._parts(added):
            referential_action.inserted(self._planner.session, self._planner.transaction, self._relation, rows)
        for rows in self._parts(changed):
            assignment.check_references(self._planner, self._relation, rows)

    def _names(self, *, naming: bool, named: bool = False) -> list[str]:
        """Return the columns by which the rows reference others (`naming`), and those by which others reference them (`named`)."""
        used = {attnum for key in self._relation.foreign_keys for attnum in key.columns if naming}
        used |= {attnum for key in self._relation.referenced for attnum in key.target_columns if named}
        return [column.name for column in self._relation.columns if column.attnum in used]

    def _kept(self, store: RowStore | None, rows: pa.Table) -> RowStore:
        store = store or rendering.kept(self._planner.session)
        store.extend(rows.to_batches())
        return store

    def _parts(self, store: RowStore | None) -> Iterator[pa.Table]:
        if store is None:
            return iter(())
        most = many_rows.chunk_rows(self._relation, self._planner.session, self._planner.transaction)
        return row_store.tables(store.part(0, store.rows), most, many_rows.CHUNK_BYTES)
