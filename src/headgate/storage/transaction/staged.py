"""The staged writes of a transaction to one table: files in the table's folder that no Delta version names yet.

A statement writes files and passes the actions that would add them to the table to `StagedTable.with_actions`. Nothing is committed. The
transaction reads its own writes from `state` (Delta's reader accepts any list of files). ROLLBACK discards it, COMMIT makes one Delta
version of all its actions (`actions`). Used by `uncommitted` and `transaction`; `intent` and `prepared` store the actions across a restart.

Traced: t is at version 7 with file A. `INSERT` writes B: state (A, B), actions: add B. `DELETE` of a row of A and of one of B: state
(A with a vector, B with a vector), change file C; actions: remove A, add A with its vector, add B with its vector, cdc C. As the version
now has a change file, readers of Delta's change feed ignore its other files: the rows of B get a change file too (`whole`).

Instances are immutable: a savepoint keeps the earlier one, and rolling back uses it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.storage.delta.file_action import Action, removal, rows
from headgate.storage.delta.table_state import TableState, same_file
from headgate.storage.transaction.log import WrittenFile

Copy = Callable[[Action, str], Action]
"""A function that writes the rows of an `add` action, also deleted ones for 'insert', to a change file of one kind. Returns `cdc`."""


@dataclass(frozen=True)
class StagedTable:
    """The state of a table with staged writes. `base`: the committed state; `state`: with the writes. `changes`: the `cdc` actions.

    `silent`: paths of `base` files that were replaced without a change of rows. `emptied`: the `add` actions of files that a TRUNCATE
    removed, as they were then.
    """

    base: TableState
    state: TableState
    changes: tuple[Action, ...] = ()
    silent: frozenset[str] = frozenset()
    emptied: tuple[Action, ...] = ()

    @classmethod
    def of(cls, state: TableState) -> StagedTable:
        """Return a table without staged writes."""
        return cls(state, state)

    @property
    def is_changed(self) -> bool:
        return self.state is not self.base

    @property
    def growth(self) -> int:
        """Return by how many rows the table grows, from the statistics of the added and removed files."""
        before, after = self.base.files, self.state.files
        removed = sum(rows(add) for path, add in before.items() if not same_file(add, after.get(path)))
        return sum(rows(add) for path, add in after.items() if not same_file(add, before.get(path))) - removed

    @property
    def is_altered(self) -> bool:
        return self.state.metadata is not self.base.metadata

    def with_actions(self, state: TableState, actions: Sequence[Action]) -> StagedTable:
        """Return the table with one more write; `state`: the table after it."""
        changes = tuple(action for action in actions if "cdc" in action)
        put_back = {action["add"]["path"] for action in actions if "add" in action}
        removed = [(action["remove"]["path"], action["remove"]["dataChange"]) for action in actions if "remove" in action]
        silent = frozenset(path for path, data_change in removed if not data_change)
        # only a TRUNCATE removes files without change files for their rows
        emptied = () if changes else tuple(self.state.files[path] for path, data_change in removed if data_change and path not in put_back)
        return replace(
            self, state=state, changes=self.changes + changes, silent=self.silent | silent, emptied=self.emptied + emptied
        )  # fmt: skip

    def whole(self, writes: Mapping[int, Sequence[WrittenFile]], copy: Copy) -> tuple[StagedTable, dict[int, tuple[WrittenFile, ...]]]:
        """Return the table with change files for all changes if there are any, and the files that keep each write's changes.

        `writes`: the files of each write by its number. The files of a write that only inserted are data files. They suffice if the
        version names them and has no change files.
        """
        if not self.changes and all(file.paired or file.path in self.state.files for files in writes.values() for file in files):
            return self, {number: tuple(files) for number, files in writes.items()}
        copies: list[Action] = []

        def change_file(file: WrittenFile) -> WrittenFile:
            if file.paired:
                return file
            copies.append(copy({"path": file.path}, "insert"))
            return WrittenFile(copies[-1]["cdc"]["path"], copies[-1]["cdc"]["size"], file.rows, paired=True)

        files_of = {number: tuple(change_file(file) for file in files) for number, files in writes.items()}
        copies += [copy(add, "delete") for add in self.emptied]
        return replace(self, changes=self.changes + tuple(copies)), files_of

    def actions(self) -> list[Action]:
        """Return the actions of the one version that takes the table from `base` to `state`."""
        before, after = self.base.files, self.state.files
        actions: list[Action] = []
        if self.is_altered:
            actions += [{"metaData": self.state.metadata}, {"protocol": self.state.protocol}]
        actions += [
            removal(add, data_change=path not in self.silent) for path, add in before.items() if not same_file(add, after.get(path))
        ]
        actions += [{"add": add} for path, add in after.items() if not same_file(add, before.get(path))]
        return actions + list(self.changes)


def repeated(base: TableState, state: TableState, actions: Sequence[Action]) -> StagedTable:
    """Return the staged table as its actions describe it, after a restart."""
    changes = tuple(action for action in actions if "cdc" in action)
    silent = frozenset(action["remove"]["path"] for action in actions if "remove" in action and not action["remove"]["dataChange"])
    return StagedTable(base, state, changes, silent)
