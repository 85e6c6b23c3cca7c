"""The changes to a table's definition inside a transaction: they stage the file actions that make its Delta table match the catalog.

Made by `transaction`. The statements about tables (`commands.table`) change the catalog's rows themselves. Each method acquires the table's
write lock. None of them logs change rows.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.storage import write
from headgate.storage.delta import alteration, copy_on_write, delta_log, external_table, file_action
from headgate.storage.delta.file_action import Action
from headgate.storage.location import data_location
from headgate.storage.location.table_folders import Key
from headgate.storage.spark.column_name import quoted
from headgate.storage.transaction.held_tables import HeldTables
from headgate.storage.transaction.staged import StagedTable
from headgate.storage.transaction.staging import Staging
from headgate.storage.transaction.storage import Storage
from headgate.storage.write import stored


class TableDdl:
    """The changes to the definitions of tables in one transaction."""

    def __init__(self, storage: Storage, tables: HeldTables, staging: Staging) -> None:
        self._storage, self._tables, self._staging = storage, tables, staging
        self.has_opened_external = False
        """Whether an existing Delta table has become that of a new relation."""

    def create(self, relation: Relation) -> None:
        """Create the Delta table of a new relation. Raise 0A000 if a name needs column mapping and that is disabled."""
        if not self._may_map(relation) and any(delta_log.needs_mapping(column.name) for column in relation.columns):
            raise alteration.mapping_is_off(relation)
        key = self._tables.lock_new(relation)
        if (location := relation.option("location")) is not None:
            self._open_external(key, relation, location)
            return
        path = self._storage.tables.path(key)
        if self._storage.is_location_gone:
            raise PostgresError("58P01", f'data location "{self._storage.base}" does not hold the tables of this node')
        if delta_log.newest_version(path):
            self._storage.tables.set_aside(key)
        elif data_location.has_any(path):
            self._storage.tables.forget(key)
        self._staging.created.add(key)  # before the folder is made, so that a half-made one is removed too
        schema = stored(relation, as_lists=self._as_lists(relation))
        delta_log.create(path, schema, description=f"{relation.schema}.{relation.name}", vectors=self._may_have_vectors(relation))
        self._staging.tables[key] = StagedTable.of(self._storage.tables[key].state(0))

    def _open_external(self, key: Key, relation: Relation, location: str) -> None:
        """Make an existing Delta table that of a new relation. Only COMMIT writes a version into it. Raises as `external_table.read`."""
        folders = self._storage.folders
        path = folders.located(location)
        state = external_table.read(self._storage.delta, path, relation, as_lists=self._as_lists(relation))
        self.has_opened_external = True
        self._staging.created.add(key)
        with step(Step.STAGED):
            folders.claim(key, path, state.version, self._storage.catalog.system_identifier())
        self._staging.tables[key] = StagedTable.of(state)
        vectors = self._may_have_vectors(relation)
        self._staging.stage(key, external_table.taken_over(state, vectors=vectors))
        if not vectors and (actions := copy_on_write.without_vectors(self._storage.tables[key], state)):
            self._staging.stage(key, actions)

    def drop(self, relation: Relation) -> None:
        self._staging.dropped.add(self._tables.lock(relation, damaged=True))

    def alter(self, old: Relation, new: Relation) -> None:
        """Alter the Delta table of `old` to match `new`: columns added (NULL in existing rows), dropped, renamed."""
        key = self._tables.lock(old)
        self._staging.record_catalog()
        self._staging.stage(key, self._alter(key, old, new))

    def alter_settings(self, relation: Relation) -> None:
        """Apply a table's current options. Its rows stay the same, although files with deleted rows may be rewritten.

        Raise 0A000 if the table has column mapping, which cannot be removed, and its option is off.
        """
        key = self._tables.lock(relation)
        before, vectors = self._staging.base(key), self._may_have_vectors(relation)
        if not relation.is_on("column_mapping", True) and alteration.is_mapped(before):
            raise alteration.has_mapping(relation)
        if before.has_vectors != vectors:
            self._staging.stage(key, alteration.with_vectors(before, on=vectors))
            if actions := copy_on_write.without_vectors(self._storage.tables[key], before):
                self._staging.stage(key, actions)

    def change_type(self, old: Relation, new: Relation, name: str, value: Column) -> None:
        """Change a column's type: `value` computes the new value from the columns of `old`."""
        key = self._tables.lock(old)
        self._staging.record_catalog()
        table, before = self._storage.tables[key], self._staging.base(key)
        values = [value.alias(column.name) if column.name == name else F.col(quoted(column.name)) for column in old.columns]
        rows = table.frame(before).select(*values)
        self._staging.stage(key, self._alter(key, old, new, name))
        actions = table.write(self._staging.base(key), rows)
        added = [{"add": {**action["add"], "dataChange": False}} for action in actions if "add" in action]
        removed = [file_action.removal(add, data_change=False) for add in before.files.values()]
        if removed or added:
            self._staging.stage(key, removed + added)

    def fill(self, relation: Relation, changed: DataFrame | pa.Table) -> int:
        """Rewrite rows as `Transaction.rewrite` does, to fill an added column with its default. Return the number of rows."""
        key = self._tables.lock(relation)
        result = write.rewrite(self._storage.tables[key], relation, self._staging.base(key), changed)
        if result.changes:
            self._staging.stage(key, result.actions)
        return result.changes

    def _alter(self, key: Key, old: Relation, new: Relation, retyped: str | None = None) -> list[Action]:
        staged, may_map, as_lists = self._staging.staged(key), self._may_map(old), self._as_lists(old)
        return alteration.actions(staged.state, staged.base.version + 1, old, new, retyped, may_map=may_map, as_lists=as_lists)

    def _as_lists(self, relation: Relation) -> bool:
        return (relation.option("array_storage") or self._storage.array_storage).lower() == "array"

    def _may_map(self, relation: Relation) -> bool:
        return bool(relation.is_on("column_mapping", self._storage.column_mapping))

    def _may_have_vectors(self, relation: Relation) -> bool:
        return bool(relation.is_on("deletion_vectors", self._storage.deletion_vectors))
