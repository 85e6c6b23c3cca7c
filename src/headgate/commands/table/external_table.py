"""CREATE TABLE … WITH (location = …): an existing Delta table becomes a table of the node, without a copy of its rows.

Called by `table`. `storage.delta.external_table` compares the columns, `storage.location.table_folders` checks and claims the folder.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.commands import privilege, temporary_schema
from headgate.commands.session import Session
from headgate.commands.table import rewrite_table
from headgate.commands.table.storage_parameter import LOCATION
from headgate.errors import PostgresError, not_supported
from headgate.storage.transaction.transaction import Transaction

_GROUPS = ("pg_read_server_files", "pg_write_server_files")


def check(node: pb.CreateStmt, options: Sequence[str], session: Session) -> None:
    """Raise 42501 unless the role may name a location, 0A000 for a kind of table that cannot have one."""
    if not any(option.startswith(f"{LOCATION}=") for option in options):
        return
    cursor, user = session.begin_statement().cursor, session.context.user
    if not all(privilege.is_member(cursor, user, group) for group in _GROUPS):
        message = f"must be superuser or have privileges of the {_GROUPS[0]} and {_GROUPS[1]} roles to name the location of a table"
        raise PostgresError("42501", message)
    if node.HasField("partbound"):
        raise not_supported("a partition cannot have a location", hint="Create the table, then use ALTER TABLE ... ATTACH PARTITION.")
    if temporary_schema.wanted(node.relation) or node.relation.relpersistence == "u":
        raise not_supported("only a permanent table can have a location")


def check_rows(session: Session, transaction: Transaction, relation: Relation) -> None:
    """Raise 23502 or 23514 if an existing row violates NOT NULL or a CHECK constraint. Keys are checked when they are added."""
    for column in relation.columns:
        if column.not_null:
            rewrite_table.check_no_nulls(transaction, relation, column)
    for constraint in relation.checks:
        rewrite_table.check_rows(session, transaction, relation, constraint)
