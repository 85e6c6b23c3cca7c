"""A table as its publisher described it, and the function that changes the local table to match (schema_evolution).

`apply.evolution` makes descriptions from Relation messages, and the table sync from the publisher's catalog.
`commands.subscription.schema_evolution` changes the tables. Workers get it as an `Evolve` (`Worker.evolve`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headgate.lsn import INVALID, Lsn
from headgate.pgoutput import message as m
from headgate.walreceiver.definition import Definitions
from headgate.walreceiver.remote import RemoteRelation


@dataclass(frozen=True)
class DescribedTable:
    """A table as the publisher described it, with the (name, type, modifier) of its columns.

    `relation`: the publisher's oid of the table, 0 if it is not known. `numbers`: the attribute numbers of the columns, None if they are
    not known. `altered`: whether columns may have been added, dropped, renamed, or given another type. If not, only NOT NULL, defaults and
    the labels of enums are followed. `nullable`: columns in which the stream has NULL.
    """

    schema: str
    name: str
    columns: tuple[tuple[str, int, int], ...] = ()
    relation: int = 0
    numbers: tuple[int, ...] | None = None
    altered: bool = True
    nullable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Evolved:
    """The result of following the publisher: for each described table, the publisher's attribute numbers of its columns.

    `pending`: tables to check again after the stream has been applied up to `position`, the end of the publisher's log before its
    catalog was read. A column then becomes NOT NULL. `unclear`: the local oids of tables that were left unchanged, because the stream does
    not tell how their columns were altered. They must be synchronized again.
    """

    numbers: tuple[tuple[int | None, ...], ...]
    pending: tuple[DescribedTable, ...] = ()
    position: Lsn = INVALID
    unclear: frozenset[int] = frozenset()

    def with_others(self, others: Sequence[DescribedTable]) -> Evolved | None:
        """Return the result with other pending tables added, or None if no table is pending."""
        pending = (*others, *self.pending)
        return replace(self, pending=pending) if pending else None


class Evolve(Protocol):
    """Changes tables to match their descriptions.

    `catalog`: the publisher's catalog as of the descriptions, if it has been read. Otherwise the current catalog is read.
    """

    def __call__(self, tables: Sequence[DescribedTable], *, catalog: Definitions | None = None) -> Evolved: ...


def of_relation(relation: m.Relation) -> DescribedTable:
    columns = tuple((column.name, column.type_oid, column.typmod) for column in relation.columns)
    return DescribedTable(relation.schema or "pg_catalog", relation.name, columns, relation.relation)


def of_catalog(published: RemoteRelation, catalog: Definitions) -> DescribedTable:
    """Return the description of a table's published columns in the publisher's catalog."""
    columns = {column.attnum: column for column in catalog.tables[published.oid].columns}
    numbers = tuple(column.attnum for column in published.columns)
    described = tuple((columns[number].name, columns[number].type_oid, columns[number].typmod) for number in numbers)
    return DescribedTable(published.schema, published.name, described, published.oid, numbers)
