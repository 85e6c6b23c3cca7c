"""The state of one ALTER TABLE statement on one relation, which its subcommands share.

Created by `alter_table`, by the subcommand itself for a partition, and by `user_type` for columns that are dropped with a type.
"""

from __future__ import annotations

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.relation import inheritance
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.binding.scope import SYSTEM_COLUMNS
from headgate.storage.transaction.transaction import Transaction


class Alteration:
    """One ALTER TABLE statement on one relation."""

    def __init__(self, session: Session, transaction: Transaction, relation: Relation) -> None:
        self.session = session
        self.transaction = transaction
        self.relation = relation
        self.only = False

    @property
    def cursor(self) -> CatalogCursor:
        """The catalog cursor of the transaction, with the transaction's type."""
        return self.transaction.cursor

    def refresh(self) -> None:
        """Read the relation again after a change of the catalog."""
        self.relation = relations.get(self.cursor, self.relation.database, self.relation.oid)

    def column(self, name: str, verb: str = "alter") -> Column:
        """Return the live column with this name. Raise 42703, or 0A000 `cannot drop system column "ctid"`."""
        if name in SYSTEM_COLUMNS:
            raise PostgresError("0A000", f'cannot {verb} system column "{name}"')
        return self.relation.existing_column(name)

    def child(self, relation: Relation) -> Alteration:
        """Return the same statement on a partition or child, with the tables below it."""
        return Alteration(self.session, self.transaction, relation)

    def children(self, *, even_only: bool = False) -> list[Alteration]:
        """Return the same statement on each direct partition or child. With ONLY there are none, unless `even_only`."""
        tables = inheritance.children(self.cursor, self.relation) if even_only or not self.only else ()
        return [self.child(table) for table in tables]

    def below(self) -> list[Alteration]:
        """Return the same statement on each partition or child at any depth. A table with several parents occurs once."""
        return [self.child(table) for table in (() if self.only else inheritance.below(self.cursor, self.relation))]

    def stored_columns_changed(self, old: Relation) -> None:
        """Pass added, dropped or renamed columns to the storage."""
        if self.relation.kind == RelationKind.TABLE:
            self.transaction.ddl.alter(old, self.relation)
