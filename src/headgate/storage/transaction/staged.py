"""What a transaction has staged for one table: files that lie in the table's folder and that no Delta version names yet.

A statement that writes makes files and hands the actions that would put them into the table to `StagedTable.with_actions`; nothing is
committed. The transaction reads its own writes from `state` (Delta's reader takes any list of files); ROLLBACK forgets it, COMMIT makes one
Delta version of all of it (`actions`). Used by `uncommitted` and `transaction`; `intent` and
`prepared` keep the actions over a restart.

Traced: t is at version 7 with file A. `INSERT` writes B: state (A, B), actions: add B. `DELETE` of a row of A and of one of B: state
(A with a vector, B with a vector), change file C; actions: remove A, add A with its vector, add B with its vector, cdc C. As the version
has a change file now, readers of Delta's change feed look at nothing else: the rows that B brought get a change file too (`whole`).

Never changed: a savepoint keeps the one that was, and going back is taking that again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.storage.delta.file_action import Action, removal, rows
from headgate.storage.delta.table_state import TableState, same_file
from headgate.storage.transaction.log import WrittenFile

Copy = Callable[[Action, str], Action]
"""Writes the rows of an `add` action as a change file, all of one kind ('insert': also those that its vector deletes); the `cdc` action."""


@dataclass(frozen=True)
class StagedTable:
    """`base`: the committed state; `state`: that with what is staged. `changes`: the `cdc` actions.

    `silent`: paths of files of `base` that were replaced without a change of rows; `emptied`: the `add` actions of files that a
    TRUNCATE took out, as they were then.
    """

    base: TableState
    state: TableState
    changes: tuple[Action, ...] = ()
    silent: frozenset[str] = frozenset()
    emptied: tuple[Action, ...] = ()

    @classmethod
    def of(cls, state: TableState) -> StagedTable:
        """A table to which nothing has been written yet."""
        return cls(state, state)

    @property
    def is_changed(self) -> bool:
        """Whether there is something to commit."""
        return self.state is not self.base

    @property
    def growth(self) -> int:
        """How many rows more than before there are, from the statistics of the files that come and go."""
        before, after = self.base.files, self.state.files
        gone = sum(rows(add) for path, add in before.items() if not same_file(add, after.get(path)))
        return sum(rows(add) for path, add in after.items() if not same_file(add, before.get(path))) - gone

    @property
    def is_altered(self) -> bool:
        """Whether the columns are other ones."""
        return self.state.metadata is not self.base.metadata

    def with_actions(self, state: TableState, actions: Sequence[Action]) -> StagedTable:
        """With one more write; `state`: the table after it."""
        changes = tuple(a for a in actions if "cdc" in a)
        put_back = {a["add"]["path"] for a in actions if "add" in a}
        removed = [(a["remove"]["path"], a["remove"]["dataChange"]) for a in actions if "remove" in a]
        silent = frozenset(path for path, changed in removed if not changed)
        # only a TRUNCATE takes files out without saying in change files which rows went
        whole = () if changes else tuple(self.state.files[path] for path, changed in removed if changed and path not in put_back)
        return replace(
            self, state=state, changes=self.changes + changes, silent=self.silent | silent, emptied=self.emptied + whole
        )  # fmt: skip

    def whole(self, written: Mapping[int, Sequence[WrittenFile]], copy: Copy) -> tuple[StagedTable, dict[int, tuple[WrittenFile, ...]]]:
        """With change files for all changes where there are some, and the files in which each write's changes stay.

        `written`: the files of each write by its number. Those of a write that only inserted are data files; they do where the version
        names them and has no change files.
        """
        if not self.changes and all(each.paired or each.path in self.state.files for files in written.values() for each in files):
            return self, {number: tuple(files) for number, files in written.items()}
        made: list[Action] = []

        def kept(each: WrittenFile) -> WrittenFile:
            if each.paired:
                return each
            made.append(copy({"path": each.path}, "insert"))
            return WrittenFile(made[-1]["cdc"]["path"], made[-1]["cdc"]["size"], each.rows, paired=True)

        found = {number: tuple(kept(each) for each in files) for number, files in written.items()}
        made += [copy(add, "delete") for add in self.emptied]
        return replace(self, changes=self.changes + tuple(made)), found

    def actions(self) -> list[Action]:
        """The actions of the one version that takes the table from `base` to `state`."""
        before, after = self.base.files, self.state.files
        found: list[Action] = []
        if self.is_altered:
            found += [{"metaData": self.state.metadata}, {"protocol": self.state.protocol}]
        found += [removal(add, data_change=path not in self.silent) for path, add in before.items() if not same_file(add, after.get(path))]
        found += [{"add": add} for path, add in after.items() if not same_file(add, before.get(path))]
        return found + list(self.changes)


def repeated(base: TableState, state: TableState, actions: Sequence[Action]) -> StagedTable:
    """What was staged, from its actions: after a restart."""
    changes = tuple(a for a in actions if "cdc" in a)
    silent = frozenset(a["remove"]["path"] for a in actions if "remove" in a and not a["remove"]["dataChange"])
    return StagedTable(base, state, changes, silent)
