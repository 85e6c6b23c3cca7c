"""Partitions: what a bound says, the tree of partitions below a table, and the rows that make a table a partition.

A bound is kept as PostgreSQL prints it (pg_class.relpartbound: ``FOR VALUES IN (1, 2)``) and read back from there by `read`; values
are the texts of PostgreSQL's output functions. `load` gives a table with all below it, which is what rows are routed by
(`headgate.storage.routing`). Called by the commands on tables, by storage and by the subscriber.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, insert, rows, run
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Column, Relation
from headgate.sql.parser import ParseNode, parse, unwrap
from headgate.types import registry


class Strategy(enum.StrEnum):
    """How a table is partitioned (pg_partitioned_table.partstrat)."""

    LIST = "l"
    RANGE = "r"
    HASH = "h"


WORDS = {Strategy.LIST: "list", Strategy.RANGE: "range", Strategy.HASH: "hash"}


@dataclass(frozen=True)
class Edge:
    """One value of a range bound: `infinite` -1 is MINVALUE, 1 MAXVALUE, 0 the value whose text is `value`."""

    value: str = ""
    infinite: int = 0


@dataclass(frozen=True)
class Bound:
    """FOR VALUES … or DEFAULT. `values` (None: NULL) of a list, `lower` and `upper` of a range, `modulus` and `remainder` of a hash."""

    strategy: Strategy
    default: bool = False
    values: tuple[str | None, ...] = ()
    lower: tuple[Edge, ...] = ()
    upper: tuple[Edge, ...] = ()
    modulus: int = 0
    remainder: int = 0

    def text(self, types: Sequence[int]) -> str:
        """The bound as pg_get_expr prints it; `types` of the partition key's columns."""
        if self.default:
            return "DEFAULT"
        if self.strategy is Strategy.HASH:
            return f"FOR VALUES WITH (modulus {self.modulus}, remainder {self.remainder})"
        if self.strategy is Strategy.LIST:
            return f"FOR VALUES IN ({', '.join(constant(value, types[0]) for value in self.values)})"
        return f"FOR VALUES FROM {edges(self.lower, types)} TO {edges(self.upper, types)}"


def edges(found: Sequence[Edge], types: Sequence[int]) -> str:
    """One end of a range: ``(1, MAXVALUE)``."""
    words = {-1: "MINVALUE", 1: "MAXVALUE"}
    return f"({', '.join(words.get(e.infinite) or constant(e.value, oid) for e, oid in zip(found, types, strict=True))})"


def constant(value: str | None, type_oid: int) -> str:
    """A constant without its type (get_const_expr with showtype -1)."""
    if value is None:
        return "NULL"
    if type_oid == registry.INT4 and not value.startswith("-"):
        return value
    if type_oid == registry.NUMERIC and value[:1].isdigit() and "." in value:
        return value
    if type_oid == registry.BOOL:
        return "true" if value == "t" else "false"
    return "'" + value.replace("'", "''") + "'"


@functools.lru_cache(maxsize=4096)
def read(text: str) -> Bound:
    """The bound that `Bound.text` wrote. A default's strategy is LIST: it has none of its own."""
    spec = parse(f"CREATE TABLE p PARTITION OF r {text}")[0].node.partbound
    if spec.is_default:
        return Bound(Strategy.LIST, default=True)
    strategy = Strategy(spec.strategy)
    if strategy is Strategy.HASH:
        return Bound(strategy, modulus=spec.modulus, remainder=spec.remainder)
    if strategy is Strategy.LIST:
        return Bound(strategy, values=tuple(_value(unwrap(each)) for each in spec.listdatums))
    return Bound(strategy, lower=_edges(spec.lowerdatums), upper=_edges(spec.upperdatums))


def _edges(nodes: Sequence[pb.Node]) -> tuple[Edge, ...]:
    return tuple(Edge(infinite=place) if (place := infinite(each)) else Edge(_value(unwrap(each)) or "") for each in nodes)


def infinite(node: ParseNode) -> int:
    """-1 for the word MINVALUE, 1 for MAXVALUE, else 0."""
    inner = unwrap(node)
    if inner.DESCRIPTOR.name != "ColumnRef" or len(inner.fields) != 1:
        return 0
    word = unwrap(inner.fields[0])
    return {"minvalue": -1, "maxvalue": 1}.get(word.sval, 0) if word.DESCRIPTOR.name == "String" else 0


def _value(node: pb.A_Const) -> str | None:
    which = node.WhichOneof("val")
    if node.isnull:
        return None
    if which == "ival":
        return str(node.ival.ival)
    if which == "boolval":
        return "t" if node.boolval.boolval else "f"
    return str(node.fval.fval if which == "fval" else node.sval.sval)


# ---- the tree -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Branch:
    """A table and the partitions below it; `bound` is its own in its parent. Children of a range or list are in the order of bounds."""

    relation: Relation
    bound: Bound | None = None
    children: tuple[Branch, ...] = ()

    @property
    def strategy(self) -> Strategy:
        """How the table is partitioned."""
        assert self.relation.partition_key is not None
        return Strategy(self.relation.partition_key.strategy)

    @property
    def key(self) -> tuple[Column, ...]:
        """The columns of the partition key."""
        assert self.relation.partition_key is not None
        found = [self.relation.numbered(attnum) for attnum in self.relation.partition_key.attnums]
        return tuple(column for column in found if column is not None)

    @property
    def default(self) -> Branch | None:
        """The default partition."""
        return next((each for each in self.children if each.bound is not None and each.bound.default), None)

    def leaves(self) -> Iterator[Relation]:
        """The tables that hold rows."""
        if not self.relation.is_partitioned:
            yield self.relation
        for child in self.children:
            yield from child.leaves()

    def walk(self) -> Iterator[Branch]:
        """This branch and all below, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def load(cursor: Cursor, database: int, oid: int) -> Branch:
    """A table with all partitions below it."""
    found = relations.load_many(cursor, database, [oid, *relations.descendants(cursor, database, oid)])
    return build(found[0], found[1:])


def build(root: Relation, below: Sequence[Relation]) -> Branch:
    """The tree of a table, given all relations below it."""
    by_parent: dict[int, list[Relation]] = {}
    for each in below:
        by_parent.setdefault(each.parent, []).append(each)

    def branch(relation: Relation, bound: Bound | None) -> Branch:
        children = [branch(each, read(each.bound or "DEFAULT")) for each in by_parent.get(relation.oid, ())]
        children.sort(key=lambda each: (each.bound is not None and each.bound.default, each.relation.oid))
        return Branch(relation, bound, tuple(children))

    return branch(root, None)


def above(cursor: Cursor, relation: Relation) -> list[Branch]:
    """The partitioned tables above a partition with all that is below them, nearest first."""
    if not relation.parent:
        return []
    path: list[Branch] = []
    at = load(cursor, relation.database, root_of(cursor, relation))
    wanted = {relation.oid, *relations.ancestors(cursor, relation.database, relation.oid)}
    while at.relation.oid != relation.oid:
        path.insert(0, at)
        at = next(child for child in at.children if child.relation.oid in wanted)
    return path


def root_of(cursor: Cursor, relation: Relation) -> int:
    """The oid of the topmost table above a relation, or its own."""
    above = relations.ancestors(cursor, relation.database, relation.oid)
    return above[-1] if above else relation.oid


# ---- rows of the catalogs -------------------------------------------------------------------------------------------


def attach(cursor: Cursor, child: Relation, parent: Relation, bound: Bound, text: str) -> None:
    """Makes a table a partition of `parent`: pg_inherits, the bound, and inherited columns and constraints of the child."""
    database = child.database
    insert(cursor, "pg_inherits", dbid=database, inhrelid=child.oid, inhparent=parent.oid, inhseqno=1, inhdetachpending=False)
    run(
        cursor, "UPDATE hg.pg_class SET relispartition = true, relpartbound = ? WHERE dbid = ? AND oid = ?", [text, database, child.oid]
    )  # fmt: skip
    run(cursor, "UPDATE hg.pg_class SET relhassubclass = true WHERE dbid = ? AND oid = ?", [database, parent.oid])
    if bound.default:
        _set_default(cursor, parent, child.oid)
    run(
        cursor,
        "UPDATE hg.pg_attribute SET attislocal = false, attinhcount = 1 WHERE dbid = ? AND attrelid = ? AND attnum > 0"
        " AND NOT attisdropped",
        [database, child.oid],
    )
    inherited = [each.name for each in parent.checks]
    for each in child.checks:
        if each.name in inherited:
            set_inherited(cursor, database, each.oid, 1, local=False)
    write_ancestors(cursor, database)


def detach(cursor: Cursor, child: Relation, parent: Relation) -> None:
    """Makes a partition a table of its own; its columns, keys and constraints stay, as its own."""
    database = child.database
    run(cursor, "DELETE FROM hg.pg_inherits WHERE dbid = ? AND inhrelid = ?", [database, child.oid])
    run(
        cursor,
        "UPDATE hg.pg_class SET relispartition = false, relpartbound = NULL, relpartconstraint = NULL WHERE dbid = ? AND oid = ?",
        [database, child.oid],
    )
    if read(child.bound or "DEFAULT").default:
        _set_default(cursor, parent, 0)
    run(
        cursor,
        "UPDATE hg.pg_attribute SET attislocal = true, attinhcount = 0 WHERE dbid = ? AND attrelid = ? AND attnum > 0",
        [database, child.oid],
    )
    run(
        cursor,
        "UPDATE hg.pg_constraint SET conislocal = true, coninhcount = 0, conparentid = 0 WHERE dbid = ? AND conrelid = ?",
        [database, child.oid],
    )
    for index in child.indexes:
        run(cursor, "DELETE FROM hg.pg_inherits WHERE dbid = ? AND inhrelid = ?", [database, index.oid])
        run(cursor, "UPDATE hg.pg_class SET relispartition = false WHERE dbid = ? AND oid = ?", [database, index.oid])
    write_ancestors(cursor, database)


def attach_index(cursor: Cursor, database: int, child: int, parent: int) -> None:
    """Makes an index of a partition a partition of the parent's index; their constraints follow."""
    insert(cursor, "pg_inherits", dbid=database, inhrelid=child, inhparent=parent, inhseqno=1, inhdetachpending=False)
    run(cursor, "UPDATE hg.pg_class SET relispartition = true WHERE dbid = ? AND oid = ?", [database, child])
    run(cursor, "UPDATE hg.pg_class SET relhassubclass = true WHERE dbid = ? AND oid = ?", [database, parent])
    found = dict(
        rows(cursor, "SELECT conindid, oid FROM hg.pg_constraint WHERE dbid = ? AND conindid IN (?, ?)", [database, child, parent])
    )
    if child in found and parent in found:
        sql = "UPDATE hg.pg_constraint SET conparentid = ?, connoinherit = false WHERE dbid = ? AND oid = ?"
        run(cursor, sql, [found[parent], database, found[child]])
        set_inherited(cursor, database, found[child], 1, local=False)
    write_ancestors(cursor, database)


def index_parents(cursor: Cursor, database: int) -> dict[int, int]:
    """Of each index that is a partition of another, that other."""
    sql = (
        "SELECT i.inhrelid, i.inhparent FROM hg.pg_inherits i JOIN hg.pg_index x ON x.indexrelid = i.inhrelid AND x.dbid = i.dbid"
        " WHERE i.dbid = ?"
    )
    return dict(rows(cursor, sql, [database]))


def inherited_columns(cursor: Cursor, relation: Relation) -> set[int]:
    """attnums of the columns that a table has from its parent."""
    sql = "SELECT attnum FROM hg.pg_attribute WHERE dbid = ? AND attrelid = ? AND attinhcount > 0"
    return {attnum for (attnum,) in rows(cursor, sql, [relation.database, relation.oid])}


def inherited_constraints(cursor: Cursor, relation: Relation) -> set[str]:
    """Names of the constraints that a table has from its parent."""
    sql = "SELECT conname FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ? AND coninhcount > 0"
    return {name for (name,) in rows(cursor, sql, [relation.database, relation.oid])}


def set_inherited(cursor: Cursor, database: int, constraint: int, count: int, *, local: bool) -> None:
    """coninhcount and conislocal of a constraint."""
    sql = "UPDATE hg.pg_constraint SET coninhcount = ?, conislocal = ? WHERE dbid = ? AND oid = ?"
    run(cursor, sql, [count, local, database, constraint])


def set_column_inherited(cursor: Cursor, relation: Relation, attnum: int) -> None:
    """Marks a column as one that the parent has."""
    sql = "UPDATE hg.pg_attribute SET attislocal = false, attinhcount = 1 WHERE dbid = ? AND attrelid = ? AND attnum = ?"
    run(cursor, sql, [relation.database, relation.oid, attnum])


def set_constraint_text(cursor: Cursor, relation: Relation, text: str | None) -> None:
    """What pg_get_partition_constraintdef prints."""
    sql = "UPDATE hg.pg_class SET relpartconstraint = ? WHERE dbid = ? AND oid = ?"
    run(cursor, sql, [text, relation.database, relation.oid])


def _set_default(cursor: Cursor, parent: Relation, oid: int) -> None:
    sql = "UPDATE hg.pg_partitioned_table SET partdefid = ? WHERE dbid = ? AND partrelid = ?"
    run(cursor, sql, [oid, parent.database, parent.oid])


def write_ancestors(cursor: Cursor, database: int) -> None:
    """Writes hg.partition_ancestor afresh: each relation that is, has or can have a partition, itself (depth 0) and all above it."""
    run(cursor, "DELETE FROM hg.partition_ancestor WHERE dbid = ?", [database])
    run(
        cursor,
        "INSERT INTO hg.partition_ancestor WITH RECURSIVE edge AS (SELECT inhrelid, inhparent FROM hg.pg_inherits WHERE dbid = $1),"
        " up(relid, ancestor, depth) AS (SELECT oid, oid, 0 FROM (SELECT inhrelid AS oid FROM edge UNION SELECT inhparent FROM edge"
        " UNION SELECT oid FROM hg.pg_class WHERE dbid = $1 AND relkind IN ('p', 'I'))"
        " UNION ALL SELECT up.relid, edge.inhparent, up.depth + 1 FROM up JOIN edge ON edge.inhrelid = up.ancestor)"
        " SELECT $1, relid, ancestor, depth FROM up",
        [database],
    )
