"""The foreign keys of rows that a statement writes part by part: looked at when all are written, as PostgreSQL's triggers do.

Called by `new_rows` (INSERT, COPY FROM) and `on_conflict`. What is kept until then are the columns of keys, in a file where they are many.
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
    """Those of the rows of one table."""

    def __init__(self, planner: Planner, relation: Relation) -> None:
        self._planner, self._relation = planner, relation
        self._added: RowStore | None = None
        self._changed: RowStore | None = None

    def add(self, rows: pa.Table) -> None:
        """Rows were added."""
        if not self._relation.foreign_keys:
            return
        keys = rows.select(self._names(naming=True))
        if keys.num_rows > many_rows.most(self._planner.session):
            keys = keys.group_by(keys.column_names, use_threads=False).aggregate([])  # in the order in which each comes first
        self._added = self._kept(self._added, keys)

    def change(self, changed: Rows) -> None:
        """Rows were changed (`old`, `new`), as many as the driver may hold."""
        if not self._relation.foreign_keys and not self._relation.referenced:
            return
        sides = changed if isinstance(changed, pa.Table) else changed.select("old", "new").toArrow()
        names = self._names(naming=True, named=True)
        keys = [buffers.whole(sides[side]) for side in ("old", "new")]
        structs = [pa.StructArray.from_arrays([each.field(name) for name in names], names=names) for each in keys]
        self._changed = self._kept(self._changed, pa.table(structs, names=["old", "new"]))

    def check(self) -> None:
        """23503 unless what the rows name is there; what names them and has gone is refused, or changes too."""
        from headgate.commands.dml import assignment

        added, changed, self._added, self._changed = self._added, self._changed, None, None
        for rows in self._parts(added):
            referential_action.inserted(self._planner.session, self._planner.transaction, self._relation, rows)
        for rows in self._parts(changed):
            assignment.check_references(self._planner, self._relation, rows)

    def _names(self, *, naming: bool, named: bool = False) -> list[str]:
        """The columns by which the rows name others, and those by which others name them."""
        used = {attnum for key in self._relation.foreign_keys for attnum in key.columns if naming}
        used |= {attnum for key in self._relation.referenced for attnum in key.target_columns if named}
        return [each.name for each in self._relation.columns if each.attnum in used]

    def _kept(self, store: RowStore | None, rows: pa.Table) -> RowStore:
        store = store or rendering.kept(self._planner.session)
        store.extend(rows.to_batches())
        return store

    def _parts(self, store: RowStore | None) -> Iterator[pa.Table]:
        if store is None:
            return iter(())
        most = many_rows.chunk_rows(self._relation, self._planner.session, self._planner.transaction)
        return row_store.tables(store.part(0, store.rows), most, many_rows.CHUNK_BYTES)
