"""schema_evolution: what the publisher told of a table's columns, for the commands' floor to have the table here follow it.

`Told` is made by the applier of a relation of the stream, and by the table sync of what its copy found missing. What is done is in
`commands.subscription.schema_evolution`, through what the server gives (`Worker.evolve`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headgate.lsn import INVALID, Lsn
from headgate.pgoutput import message as m
from headgate.subscriber.apply.relation_map import MissingColumnsError


@dataclass(frozen=True)
class Told:
    """A table as the stream described it: (name, type, modifier) of its columns.

    `whole`: false if only these columns are known; `relation`: the publisher's oid of the table, 0 if it is not known.
    """

    schema: str
    name: str
    columns: tuple[tuple[str, int, int], ...]
    whole: bool = True
    relation: int = 0


@dataclass(frozen=True)
class Evolved:
    """What following found: for each table that was told the publisher's numbers of its columns.

    `pending`: the tables to follow again when the stream has been applied up to `position`, the end of the publisher's log before its
    catalog was read: a column is to be NOT NULL then.
    """

    numbers: tuple[tuple[int | None, ...], ...]
    pending: tuple[Told, ...] = ()
    position: Lsn = INVALID

    def with_others(self, others: Sequence[Told]) -> Evolved | None:
        """With other tables that are pending; None if no table is."""
        pending = (*others, *self.pending)
        return replace(self, pending=pending) if pending else None


class Evolve(Protocol):
    """Has tables follow; `applied`: the stream is as far as the position of what was pending."""

    def __call__(self, told: Sequence[Told], *, applied: bool = False) -> Evolved:
        """See the class."""
        ...


def of_relation(relation: m.Relation) -> Told:
    """What a message says."""
    columns = tuple((each.name, each.type_oid, each.typmod) for each in relation.columns)
    return Told(relation.schema or "pg_catalog", relation.name, columns, relation=relation.relation)


def of_copy(error: MissingColumnsError) -> Told:
    """What a copy found missing; the publisher is asked for the types."""
    return Told(error.local.schema, error.local.name, tuple((name, 0, -1) for name in error.names), whole=False)
