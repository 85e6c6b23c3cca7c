"""Partitions: their bounds, the tree of partitions below a table, and the catalog rows that make a table a partition.

A bound is stored as PostgreSQL prints it (pg_class.relpartbound: ``FOR VALUES IN (1, 2)``), and `read` parses it. Its values are
the texts of PostgreSQL's output functions. `load` returns a table with all partitions below it, by which rows are routed
(`headgate.storage.routing`). Called by the commands on tables, by storage and by the subscriber.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, delete, insert, rows, run, update
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Column, Relation
from headgate.sql.parser import ParseNode, parse, unwrap
from headgate.types import registry


class Strategy(enum.StrEnum):
    """The partitioning strategy of a table (pg_partitioned_table.partstrat)."""

    LIST = "l"
    RANGE = "r"
    HASH = "h"


WORDS = {Strategy.LIST: "list", Strategy.RANGE: "range", Strategy.HASH: "hash"}


@dataclass(frozen=True)
class Edge:
    """One value of a range bound. `infinite` is -1 for MINVALUE, 1 for MAXVALUE, and 0 for the value whose text is `value`."""

    value: str = ""
    infinite: int = 0


@dataclass(frozen=True)
class Bound:
    """FOR VALUES … or DEFAULT: `values` (None: NULL) of a list, `lower` and `upper` of a range, `modulus` and `remainder` of a hash."""

    strategy: Strategy
    default: bool = False
    values: tuple[str | None, ...] = ()
    lower: tuple[Edge, ...] = ()
    upper: tuple[Edge, ...] = ()
    modulus: int = 0
    remainder: int = 0

    def text(self, types: Sequence[int]) -> str:
        """Return the bound as pg_get_expr prints it. `types` are those of the partition key's columns."""
        if self.default:
            return "DEFAULT"
        if self.strategy is Strategy.HASH:
            return f"FOR VALUES WITH (modulus {self.modulus}, remainder {self.remainder})"
        if self.strategy is Strategy.LIST:
            return f"FOR VALUES IN ({', '.join(constant(value, types[0]) for value in self.values)})"
        return f"FOR VALUES FROM {edges(self.lower, types)} TO {edges(self.upper, types)}"


def edges(values: Sequence[Edge], types: Sequence[int]) -> str:
    """Return one end of a range, such as ``(1, MAXVALUE)``."""
    words = {-1: "MINVALUE", 1: "MAXVALUE"}
    return f"({', '.join(words.get(edge.infinite) or constant(edge.value, oid) for edge, oid in zip(values, types, strict=True))})"


def constant(value: str | None, type_oid: int) -> str:
    """Return a constant without its type (get_const_expr with showtype -1)."""
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
    """Return the bound that `Bound.text` wrote. The strategy of a default partition is LIST, because the text does not tell it."""
    spec = parse(f"CREATE TABLE p PARTITION OF r {text}")[0].node.partbound
    if spec.is_default:
        return Bound(Strategy.LIST, default=True)
    strategy = Strategy(spec.strategy)
    if strategy is Strategy.HASH:
        return Bound(strategy, modulus=spec.modulus, remainder=spec.remainder)
    if strategy is Strategy.LIST:
        return Bound(strategy, values=tuple(_value(unwrap(node)) for node in spec.listdatums))
    return Bound(strategy, lower=_edges(spec.lowerdatums), upper=_edges(spec.upperdatums))


def _edges(nodes: Sequence[pb.Node]) -> tuple[Edge, ...]:
    return tuple(Edge(infinite=sign) if (sign := infinite(node)) else Edge(_value(unwrap(node)) or "") for node in nodes)


def infinite(node: ParseNode) -> int:
    """Return -1 for the word MINVALUE, 1 for MAXVALUE, otherwise 0."""
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
    """A table and the partitions below it. `bound` is its own bound in its parent. Children are ordered by oid, the default one last."""

    relation: Relation
    bound: Bound | None = None
    children: tuple[Branch, ...] = ()

    @property
    def strategy(self) -> Strategy:
        assert self.relation.partition_key is not None
        return Strategy(self.relation.partition_key.strategy)

    @property
    def key(self) -> tuple[Column, ...]:
        assert self.relation.partition_key is not None
        return tuple(self.relation.columns_at(self.relation.partition_key.attnums))

    @property
    def default(self) -> Branch | None:
        return next((child for child in self.children if child.bound is not None and child.bound.default), None)

    def leaves(self) -> Iterator[Relation]:
        """Yield the tables that hold rows."""
        if not self.relation.is_partitioned:
            yield self.relation
        for child in self.children:
            yield from child.leaves()

    def walk(self) -> Iterator[Branch]:
        """Yield this branch and all branches below, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def load(cursor: Cursor, database: int, oid: int) -> Branch:
    tables = relations.load_many(cursor, database, [oid, *relations.descendants(cursor, database, oid)])
    return build(tables[0], tables[1:])


def build(root: Relation, below: Sequence[Relation]) -> Branch:
    """Return the tree of a table from all relations below it."""
    by_parent: dict[int, list[Relation]] = {}
    for partition in below:
        by_parent.setdefault(partition.parent, []).append(partition)

    def branch(relation: Relation, bound: Bound | None) -> Branch:
        children = [branch(child, read(child.bound or "DEFAULT")) for child in by_parent.get(relation.oid, ())]
        children.sort(key=lambda child_branch: (child_branch.bound is not None and child_branch.bound.default, child_branch.relation.oid))
        return Branch(relation, bound, tuple(children))

    return branch(root, None)


def above(cursor: Cursor, relation: Relation) -> list[Branch]:
    """Return the partitioned tables above a partition, with their whole trees, nearest first."""
    if not relation.parent:
        return []
    path: list[Branch] = []
    current = load(cursor, relation.database, root_of(cursor, relation))
    path_oids = {relation.oid, *relations.ancestors(cursor, relation.database, relation.oid)}
    while current.relation.oid != relation.oid:
        path.insert(0, current)
        current = next(child for child in current.children if child.relation.oid in path_oids)
    return path


def root_of(cursor: Cursor, relation: Relation) -> int:
    """Return the oid of the topmost table above a relation, or its own."""
    above = relations.ancestors(cursor, relation.database, relation.oid)
    return above[-1] if above else relation.oid


# ---- rows of the catalogs -------------------------------------------------------------------------------------------


def attach(cursor: Cursor, child: Relation, parent: Relation, bound: Bound, text: str) -> None:
    """Make a table a partition of `parent`: write pg_inherits, the bound, and the child's inherited columns and constraints."""
    database = child.database
    insert(cursor, "pg_inherits", dbid=database, inhrelid=child.oid, inhparent=parent.oid, inhseqno=1, inhdetachpending=False)
    update(cursor, "pg_class", {"dbid": database, "oid": child.oid}, relispartition=True, relpartbound=text)
    update(cursor, "pg_class", {"dbid": database, "oid": parent.oid}, relhassubclass=True)
    if bound.default:
        _set_default(cursor, parent, child.oid)
    run(
        cursor,
        "UPDATE hg.pg_attribute SET attislocal = false, attinhcount = 1 WHERE dbid = ? AND attrelid = ? AND attnum > 0"
        " AND NOT attisdropped",
        [database, child.oid],
    )
    inherited = [check.name for check in parent.checks]
    for check in child.checks:
        if check.name in inherited:
            set_inherited(cursor, database, check.oid)
    write_ancestors(cursor, database)


def detach(cursor: Cursor, child: Relation, parent: Relation) -> None:
    """Make a partition a standalone table. Its columns, keys and constraints become its own."""
    database = child.database
    delete(cursor, "pg_inherits", dbid=database, inhrelid=child.oid)
    update(cursor, "pg_class", {"dbid": database, "oid": child.oid}, relispartition=False, relpartbound=None, relpartconstraint=None)
    if read(child.bound or "DEFAULT").default:
        _set_default(cursor, parent, 0)
    run(
        cursor,
        "UPDATE hg.pg_attribute SET attislocal = true, attinhcount = 0 WHERE dbid = ? AND attrelid = ? AND attnum > 0",
        [database, child.oid],
    )
    own = "SELECT oid FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ?"  # their clones for partitions of referenced tables stay clones
    run(
        cursor,
        "UPDATE hg.pg_constraint SET conislocal = true, coninhcount = 0, conparentid = 0 WHERE dbid = ? AND conrelid = ?"
        f" AND conparentid NOT IN ({own})",
        [database, child.oid, database, child.oid],
    )
    for index in child.indexes:
        delete(cursor, "pg_inherits", dbid=database, inhrelid=index.oid)
        update(cursor, "pg_class", {"dbid": database, "oid": index.oid}, relispartition=False)
    write_ancestors(cursor, database)


def attach_index(cursor: Cursor, database: int, child: int, parent: int) -> None:
    """Make a partition's index a partition of the parent's index, and its constraint a child of the parent's."""
    insert(cursor, "pg_inherits", dbid=database, inhrelid=child, inhparent=parent, inhseqno=1, inhdetachpending=False)
    update(cursor, "pg_class", {"dbid": database, "oid": child}, relispartition=True)
    update(cursor, "pg_class", {"dbid": database, "oid": parent}, relhassubclass=True)
    sql = "SELECT conindid, oid FROM hg.pg_constraint WHERE dbid = ? AND conindid IN (?, ?) AND contype IN ('p', 'u')"
    constraints = dict(rows(cursor, sql, [database, child, parent]))
    if child in constraints and parent in constraints:
        update(cursor, "pg_constraint", {"dbid": database, "oid": constraints[child]}, conparentid=constraints[parent], connoinherit=False)
        set_inherited(cursor, database, constraints[child])
    write_ancestors(cursor, database)


def index_parents(cursor: Cursor, database: int) -> dict[int, int]:
    sql = (
        "SELECT i.inhrelid, i.inhparent FROM hg.pg_inherits i JOIN hg.pg_index x ON x.indexrelid = i.inhrelid AND x.dbid = i.dbid"
        " WHERE i.dbid = ?"
    )
    return dict(rows(cursor, sql, [database]))


def inherited_columns(cursor: Cursor, relation: Relation) -> set[int]:
    sql = "SELECT attnum FROM hg.pg_attribute WHERE dbid = ? AND attrelid = ? AND attinhcount > 0"
    return {attnum for (attnum,) in rows(cursor, sql, [relation.database, relation.oid])}


def inherited_constraints(cursor: Cursor, relation: Relation) -> set[str]:
    sql = "SELECT conname FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ? AND coninhcount > 0"
    return {name for (name,) in rows(cursor, sql, [relation.database, relation.oid])}


def set_inherited(cursor: Cursor, database: int, constraint: int) -> None:
    update(cursor, "pg_constraint", {"dbid": database, "oid": constraint}, coninhcount=1, conislocal=False)


def set_column_inherited(cursor: Cursor, relation: Relation, attnum: int) -> None:
    update(cursor, "pg_attribute", {"dbid": relation.database, "attrelid": relation.oid, "attnum": attnum}, attislocal=False, attinhcount=1)


def set_bound(cursor: Cursor, child: Branch, bound: Bound, key: Sequence[Column]) -> None:
    """Write the bound of a partition of a table with a partition key."""
    text = bound.text([column.type_oid for column in key])
    update(cursor, "pg_class", {"dbid": child.relation.database, "oid": child.relation.oid}, relpartbound=text)


def set_constraint_text(cursor: Cursor, relation: Relation, text: str | None) -> None:
    """Set the text that pg_get_partition_constraintdef prints."""
    update(cursor, "pg_class", {"dbid": relation.database, "oid": relation.oid}, relpartconstraint=text)


def _set_default(cursor: Cursor, parent: Relation, oid: int) -> None:
    update(cursor, "pg_partitioned_table", {"dbid": parent.database, "partrelid": parent.oid}, partdefid=oid)


def write_ancestors(cursor: Cursor, database: int) -> None:
    """Rewrite hg.partition_ancestor: each relation that is, has or can have a partition, with itself (depth 0) and all above it.

    Tables that inherit from others (`inheritance`) are not in it.
    """
    delete(cursor, "partition_ancestor", dbid=database)
    run(
        cursor,
        "INSERT INTO hg.partition_ancestor WITH RECURSIVE edge AS (SELECT i.inhrelid, i.inhparent FROM hg.pg_inherits i"
        " JOIN hg.pg_class c ON c.oid = i.inhrelid AND c.dbid = i.dbid WHERE i.dbid = $1 AND c.relispartition),"
        " up(relid, ancestor, depth) AS (SELECT oid, oid, 0 FROM (SELECT inhrelid AS oid FROM edge UNION SELECT inhparent FROM edge"
        " UNION SELECT oid FROM hg.pg_class WHERE dbid = $1 AND relkind IN ('p', 'I'))"
        " UNION ALL SELECT up.relid, edge.inhparent, up.depth + 1 FROM up JOIN edge ON edge.inhrelid = up.ancestor)"
        " SELECT $1, relid, ancestor, depth FROM up",
        [database],
    )
