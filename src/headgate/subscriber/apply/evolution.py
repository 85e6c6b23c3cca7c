"""schema_evolution: what the publisher told of a table's columns, for the commands' floor to have the table here follow it.

`Told` is made by the applier of a relation of the stream, and by the table sync of what its copy found missing. What is done is in
`commands.subscription.schema_evolution`, through what the server gives (`Worker.evolve`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.pgoutput import message as m
from headgate.subscriber.apply.relation_map import MissingColumnsError


@dataclass(frozen=True)
class Told:
    """A table as the stream described it: (name, type, modifier) of its columns. `whole`: false where only these columns are known."""

    schema: str
    name: str
    columns: tuple[tuple[str, int, int], ...]
    whole: bool = True


Evolve = Callable[[Sequence[Told]], None]


def of_relation(relation: m.Relation) -> Told:
    """What a message says."""
    columns = tuple((each.name, each.type_oid, each.typmod) for each in relation.columns)
    return Told(relation.schema or "pg_catalog", relation.name, columns)


def of_copy(error: MissingColumnsError) -> Told:
    """What a copy found missing; the publisher is asked for the types."""
    return Told(error.local.schema, error.local.name, tuple((name, 0, -1) for name in error.names), whole=False)
