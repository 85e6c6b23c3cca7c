"""schema_evolution: what the publisher told of a table's columns, for the commands' floor to have the table here follow it.

`Told` is made of a relation of the stream by the applier, and of the publisher's catalog by the table sync. What is done is in
`commands.subscription.schema_evolution`, through what the server gives (`Worker.evolve`).
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
class Told:
    """A table as the publisher described it: (name, type, modifier) of its columns.

    `relation`: the publisher's oid of the table, 0 if it is not known; `numbers`: the attribute numbers of the columns, None if they are
    not known. `altered`: whether columns may have been added, dropped, renamed, or given another type; if not, only NOT NULL, defaults and
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
    """What following found: for each table that was told the publisher's numbers of its columns.

    `pending`: the tables to look at again when the stream has been applied up to `position`, the end of the publisher's log before its
    catalog was read: a column is to be NOT NULL then. `unclear`: the tables (their oids here) that were left as they are, because which
    columns were altered how cannot be told from the stream: they are to be synchronized again.
    """

    numbers: tuple[tuple[int | None, ...], ...]
    pending: tuple[Told, ...] = ()
    position: Lsn = INVALID
    unclear: frozenset[int] = frozenset()

    def with_others(self, others: Sequence[Told]) -> Evolved | None:
        """With other tables that are pending; None if no table is."""
        pending = (*others, *self.pending)
        return replace(self, pending=pending) if pending else None


class Evolve(Protocol):
    """Has tables follow; `catalog`: the publisher's catalog at the place of what was told, if it was read there, else it is read now."""

    def __call__(self, told: Sequence[Told], *, catalog: Definitions | None = None) -> Evolved:
        """See the class."""
        ...


def of_relation(relation: m.Relation) -> Told:
    """What a message says."""
    columns = tuple((each.name, each.type_oid, each.typmod) for each in relation.columns)
    return Told(relation.schema or "pg_catalog", relation.name, columns, relation.relation)


def of_catalog(published: RemoteRelation, catalog: Definitions) -> Told:
    """Return the published columns of a table, as the catalog has them."""
    columns = {column.attnum: column for column in catalog.tables[published.oid].columns}
    numbers = tuple(column.attnum for column in published.columns)
    described = tuple((columns[number].name, columns[number].type_oid, columns[number].typmod) for number in numbers)
    return Told(published.schema, published.name, described, published.oid, numbers)
