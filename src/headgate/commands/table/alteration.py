"""One ALTER TABLE statement on one relation: what its subcommands are given.

Made by `alter_table`, for a partition by the subcommand itself, and by `user_type` for the columns that go with a type.
"""

from __future__ import annotations

from typing import Any

from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands.partition import partition_index
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.binding.scope import SYSTEM_COLUMNS
from headgate.storage.transaction.transaction import Transaction


class Alteration:
    """One ALTER TABLE statement on one relation."""

    def __init__(self, session: Session, transaction: Transaction, relation: Relation, *, inherited: bool = False) -> None:
        """`inherited`: it comes from the table above, so what a partition may not do by itself is not refused."""
        self.session = session
        self.transaction = transaction
        self.relation = relation
        self.inherited = inherited
        self.only = False

    @property
    def cursor(self) -> Any:
        """The catalog cursor of the transaction, typed as there."""
        return self.transaction.cursor

    def refresh(self) -> None:
        """Reads the relation anew after a change of the catalog."""
        self.relation = relations.get(self.cursor, self.relation.database, self.relation.oid)

    def column(self, name: str, verb: str = "alter") -> Column:
        """The live column of this name; 42703, and 0A000 `cannot drop system column "ctid"`."""
        found = self.relation.column(name)
        if found is None:
            if name in SYSTEM_COLUMNS:
                raise PostgresError("0A000", f'cannot {verb} system column "{name}"')
            raise PostgresError("42703", f'column "{name}" of relation "{self.relation.name}" does not exist')
        return found

    def child(self, relation: Relation) -> Alteration:
        """The same statement on a partition."""
        return Alteration(self.session, self.transaction, relation, inherited=True)

    def children(self) -> list[Alteration]:
        """The same statement on each partition directly below."""
        return [self.child(each) for each in partition_index.children(self.cursor, self.relation)] if self.relation.is_partitioned else []

    def stored_columns_changed(self, old: Relation) -> None:
        """Tells the storage of added, dropped or renamed columns."""
        if self.relation.kind == RelationKind.TABLE:
            self.transaction.alter_table(old, self.relation)
