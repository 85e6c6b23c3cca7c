"""The place of an apply error, and conflicts: PostgreSQL's messages and its CONTEXT line.

The applier keeps an `ApplyPlace` up to date. If an error occurs, it becomes the context (apply_error_callback in worker.c).
The failing transaction of a batch is found by halving the batch until one transaction is left. The transactions before it are applied.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.sql.names import quote_ident
from headgate.storage.routing import cut
from headgate.types import buffers
from headgate.types.text.text import write_text

MESSAGES = {"I": "INSERT", "U": "UPDATE", "D": "DELETE", "T": "TRUNCATE"}


@dataclass
class ApplyPlace:
    """The message, relation and column that are being applied."""

    message: str = "INSERT"
    relation: str | None = None
    column: str | None = None


def context(origin: str, place: ApplyPlace, xid: int | None, finish: Lsn | None) -> str:
    """Return the CONTEXT line of an apply error. `finish` is the transaction's commit LSN, for ALTER SUBSCRIPTION … SKIP."""
    text = f'processing remote data for replication origin "{origin}" during message type "{place.message}"'
    if place.relation is not None:
        text += f' for replication target relation "{place.relation}"'
        if place.column is not None:
            text += f' column "{place.column}"'
    if xid is not None:
        text += f" in transaction {xid}"
        if finish is not None:
            text += f", finished at {finish}"
    return text


def duplicate_key(relation: Relation, attnums: tuple[int, ...], key: pa.Table) -> PostgresError:
    """Return the 23505 error for a row whose key already exists. `key` has one row, columns by name."""
    index = next((i for i in relation.indexes if i.unique and i.plain and set(i.attnums) == set(attnums)), None)
    name = index.name if index is not None else f"{relation.name}_pkey"
    columns = [column for attnum in (attnums if index is None else index.attnums) for column in relation.columns if column.attnum == attnum]
    texts = [write_text(buffers.whole(key[column.name]), column.type_oid)[0].as_py() for column in columns]
    shown = ["null" if text is None else text for text in texts]
    return PostgresError(
        "23505",
        f'duplicate key value violates unique constraint "{name}"',
        detail=f"Key ({', '.join(quote_ident(column.name) for column in columns)})=({', '.join(shown)}) already exists.",
        schema=relation.schema,
        table=relation.name,
        constraint=name,
    )


def not_null(relation: Relation, column: str, row: list[str | None]) -> PostgresError:
    """Return the 23502 error with the failing row."""
    return PostgresError(
        "23502",
        f'null value in column "{column}" of relation "{relation.name}" violates not-null constraint',
        detail=f"Failing row contains ({', '.join('null' if value is None else cut(value) for value in row)}).",
        schema=relation.schema,
        table=relation.name,
        column=column,
    )
