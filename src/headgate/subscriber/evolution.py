"""schema_evolution = add_columns: which columns a table lacks that its publisher sends, with the types to give them.

Called by the applier for a relation of the stream, and by the table sync, which asks the publisher, for the copy. The columns are
added by the commands' floor, through what the server gives (`Worker.evolve`).
"""

from __future__ import annotations

from headgate.pgoutput import message as m
from headgate.sql.names import qualified
from headgate.subscriber.relation import MissingColumnsError
from headgate.types import registry
from headgate.walreceiver.connection import Connection, literal

Column = tuple[str, str]
"""A name, and a type as SQL text."""


def missing_columns(error: MissingColumnsError, types: dict[int, m.Type]) -> list[Column]:
    """The missing columns of a relation that the stream described; raises the error where a type is not known."""
    assert error.remote is not None
    wanted = {column.name: column for column in error.remote.columns}
    found = []
    for name in error.names:
        column = wanted[name]
        named = types.get(column.type_oid)
        if named is not None:
            found.append((name, qualified(named.schema or "pg_catalog", named.name)))
        elif registry.builtin().find(column.type_oid) is not None:
            found.append((name, registry.format_type(column.type_oid, column.typmod)))
        else:
            raise error
    return found


def published_columns(connection: Connection, error: MissingColumnsError) -> list[Column]:
    """The missing columns of a table as the publisher has them."""
    local = error.local
    rows = connection.query(
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a"
        " JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {literal(local.schema)} AND c.relname = {literal(local.name)} AND a.attnum > 0 AND NOT a.attisdropped",
        2,
    )
    return [(str(name), str(kind)) for name, kind in rows if name in error.names]
