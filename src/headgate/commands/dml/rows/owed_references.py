"""Check the foreign keys of rows that a statement writes in parts after all are written, as PostgreSQL's triggers do.

Called by `new_rows` for added rows (INSERT, COPY FROM) and by `on_conflict` for changed rows. Until then, the key columns are stored, in a
file if there are many. Those of a frame stay with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from headgate.catalog.relation.relation import Relation
from headgate.commands.dml.rows import many_rows
from headgate.commands.query import rendering
from headgate.commands.query.planner import Planner
from headgate.storage import row_store
from headgate.storage.row_set import Rows
from headgate.storage.row_store import RowStore
from headgate.types import buffers


class OwedReferences:
    """The rows of one table whose foreign keys are checked at the end of the statement, by a function that gets them in parts."""

    def __init__(self, planner: Planner, relation: Relation, check_part: Callable[[Rows], None]) -> None:
        self._planner, self._relation, self._check_part = planner, relation, check_part
        self._store: RowStore | None = None
        self._frames: list[Rows] = []

    def add(self, rows: Rows) -> None:
        """Record added rows. A frame must be persisted until `check`."""
        if not self._relation.foreign_keys:
            return
        if not isinstance(rows, pa.Table):
            self._frames.append(rows)
            return
        keys = rows.select(self._names(named=False))
        if keys.num_rows > many_rows.most(self._planner.session):
            keys = keys.group_by(keys.column_names, use_threads=False).aggregate([])  # keeps the order of first occurrence
        self._keep(keys)

    def change(self, changed: Rows) -> None:
        """Record changed rows (`old`, `new`) that fit in the driver."""
        if not self._relation.foreign_keys and not self._relation.referenced:
            return
        sides = changed if isinstance(changed, pa.Table) else changed.select("old", "new").toArrow()
        names = self._names(named=True)
        keys = [buffers.whole(sides[side]) for side in ("old", "new")]
        structs = [pa.StructArray.from_arrays([side_rows.field(name) for name in names], names=names) for side_rows in keys]
        self._keep(pa.table(structs, names=["old", "new"]))

    def check(self) -> None:
        """Check the recorded rows, and forget them."""
        store, frames, self._store, self._frames = self._store, self._frames, None, []
        for rows in (*frames, *self._parts(store)):
            self._check_part(rows)

    def _names(self, *, named: bool) -> list[str]:
        """Return the columns by which the rows reference others, and with `named` those by which others reference them."""
        used = {attnum for key in self._relation.foreign_keys for attnum in key.columns}
        used |= {attnum for key in self._relation.referenced for attnum in key.target_columns if named}
        return [column.name for column in self._relation.columns if column.attnum in used]

    def _keep(self, rows: pa.Table) -> None:
        self._store = self._store or rendering.kept(self._planner.session)
        self._store.extend(rows.to_batches())

    def _parts(self, store: RowStore | None) -> Iterator[pa.Table]:
        if store is None:
            return iter(())
        most = many_rows.chunk_rows(self._relation, self._planner.session, self._planner.transaction)
        return row_store.tables(store.part(0, store.rows), most, many_rows.CHUNK_BYTES)
