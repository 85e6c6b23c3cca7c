"""DDL that replication does by itself: tables of `create_tables`, columns of `schema_evolution` (neither is on by default).

`table_definition` and `column_addition` give the statements; `run` runs statements in a transaction of their own as a subscription's
owner. The subscriber is a floor below: the server hands `add_columns` to it. A column that the publisher added is added in its own
transaction before the batch that needs it, so it is NULL in the rows that are there already.

What the publisher says is data: names are quoted, types are taken apart and written anew (`sql/type_name`). A statement has the rights of
the subscription's owner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.catalog.relation import Relation
from headgate.catalog.subscription import Subscription
from headgate.commands.applied_rows import WorkerSession, owners_context
from headgate.commands.execute import execute
from headgate.sql.names import qualified, quote_ident
from headgate.sql.parser import parse
from headgate.sql.type_name import rewritten
from headgate.storage.transaction import Transaction
from headgate.walreceiver import answer
from headgate.walreceiver.connection import Connection, literal
from headgate.walreceiver.remote import PublishedTable


@dataclass
class _OwnerSession(WorkerSession):
    """A session that runs DDL inside a given transaction; what it would do after the commit is kept."""

    committed: list[Callable[[], None]] = field(default_factory=list)

    def prevent_in_block(self, command: str) -> None:
        """Never in a block."""

    def check_cancel(self) -> None:
        """Nobody cancels."""

    def after_commit(self, action: Callable[[], None]) -> None:
        """Kept for `run`."""
        self.committed.append(action)

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Nothing to undo."""


def run(node: Any, subscription: Subscription, text: str) -> None:
    """Runs statements as the subscription's owner, in a transaction of their own."""
    transaction: Transaction = node.engine.begin(subscription.database)
    try:
        session = _OwnerSession(node, owners_context(node, transaction.cursor, subscription), transaction, settings=node.settings)
        for statement in parse(text):
            execute(statement.node, text, session)  # type: ignore[arg-type]
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise
    for action in session.committed:
        action()


def add_columns(node: Any, subscription: Subscription, relation: Relation, columns: Sequence[tuple[str, str]]) -> None:
    """Adds columns (name, type as the publisher says it) to a table; 08P01 for what is no type."""
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {quote_ident(name)} {rewritten(kind)}" for name, kind in columns)
    run(node, subscription, f"ALTER TABLE {qualified(relation.schema, relation.name)} {added}")


def table_definition(connection: Connection, table: PublishedTable) -> str:
    """CREATE TABLE as the publisher has it: the published columns with type and NOT NULL, and the replica identity as primary key.

    The key is the replica identity's index, else the primary key, if all its columns are published. A partitioned table of the
    publisher becomes a plain one. 08P01 where the publisher says what is no type.
    """
    where = f"n.nspname = {literal(table.schema)} AND c.relname = {literal(table.name)}"
    rows = connection.query(
        "SELECT c.oid, a.attnum, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid"
        f" WHERE {where} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
        5,
    )
    published = [row for row in rows if table.columns is None or row[2] in table.columns]
    names = {answer.attnum(row[1]): quote_ident(str(row[2])) for row in published}
    parts = [f"{quote_ident(str(row[2]))} {rewritten(str(row[3]))}{' NOT NULL' if row[4] == 't' else ''}" for row in published]
    key = _key(connection, answer.number(rows[0][0])) if rows else ()
    if key and set(key) <= set(names):
        parts.append(f"PRIMARY KEY ({', '.join(names[attnum] for attnum in key)})")
    return f"CREATE TABLE {qualified(table.schema, table.name)} ({', '.join(parts)})"


def _key(connection: Connection, oid: int) -> tuple[int, ...]:
    """The attnums of the columns that name a row."""
    found = connection.query(
        "SELECT i.indkey, i.indisprimary, i.indisreplident FROM pg_catalog.pg_index i"
        f" WHERE i.indrelid = {oid} AND (i.indisprimary OR i.indisreplident) ORDER BY i.indisreplident DESC",
        3,
    )
    return tuple(answer.attnum(number) for number in re.findall(r"\d+", found[0][0] or "")) if found else ()
