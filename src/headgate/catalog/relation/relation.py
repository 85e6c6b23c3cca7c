"""Relations as the node sees them: pg_class with its columns, indexes, constraints and partition data in one value.

`get` and `lookup` read; `definition` creates, `pg_class`, `attribute`, `index` and `constraint` change, `removal` drops. A `Relation` is
immutable and can be pickled and written as JSON (`dump`, `load`): the catalog's history keeps relations so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from headgate.catalog.physical import Cursor, one, rows
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.errors import PostgresError
from headgate.settings.definition import read_bool

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """A column (pg_attribute).

    `default` and `generated` are SQL texts as pg_get_expr prints them (pg_attrdef), at most one set.
    `identity`: '' | 'a' always | 'd' by default. `collation`: pg_collation oid, 0 for types without one. `dimensions`: attndims, how many
    pairs of brackets an array was declared with, which binds no value.
    """

    attnum: int
    name: str
    type_oid: int
    typmod: int = -1
    not_null: bool = False
    default: str | None = None
    generated: str | None = None
    identity: str = ""
    dropped: bool = False
    collation: int = 0
    dimensions: int = 0


@dataclass(frozen=True)
class Index:
    """An index (pg_index). `constraint` is the oid of its PRIMARY KEY or UNIQUE constraint, or 0.

    `attnums` are the key's columns, 0 where the key has an expression: their texts are `expressions`, in order. `included`: attnums
    behind INCLUDE; `predicate`: the text of a partial index's WHERE. Both texts as pg_get_expr prints them.
    """

    name: str
    oid: int
    attnums: tuple[int, ...]
    unique: bool = False
    primary: bool = False
    replident: bool = False
    constraint: int = 0
    immediate: bool = True
    deferrable: bool = False
    included: tuple[int, ...] = ()
    expressions: tuple[str, ...] = ()
    predicate: str | None = None
    nulls_not_distinct: bool = False
    deferred: bool = False

    @property
    def plain(self) -> bool:
        """Whether the index is a list of columns over all rows, in which NULLs differ: all that a look-up of keys knows."""
        return not self.expressions and self.predicate is None and not self.nulls_not_distinct


@dataclass(frozen=True)
class Check:
    """A CHECK constraint; `expression` as pg_get_expr prints it, without the outer CHECK; not `validated`: NOT VALID."""

    name: str
    oid: int
    expression: str
    validated: bool = True


@dataclass(frozen=True)
class ForeignKey:
    """A FOREIGN KEY constraint: `columns` of `relation` (oid) name a row of `target` (oid) by its `target_columns`.

    `on_update` and `on_delete`: 'a' NO ACTION, 'r' RESTRICT, 'c' CASCADE, 'n' SET NULL, 'd' SET DEFAULT; `match`: 's' SIMPLE, 'f' FULL;
    `set_columns`: the columns that ON DELETE SET … (a, b) names, none: all. `index`: the unique index of the target.
    """

    name: str
    oid: int
    relation: int
    columns: tuple[int, ...]
    target: int
    target_columns: tuple[int, ...]
    on_update: str = "a"
    on_delete: str = "a"
    match: str = "s"
    set_columns: tuple[int, ...] = ()
    index: int = 0
    deferrable: bool = False
    deferred: bool = False
    validated: bool = True


@dataclass(frozen=True)
class PartitionKey:
    """How a partitioned table is divided: `strategy` 'r' | 'l' | 'h', the key as pg_get_partkeydef prints it.

    `attnums` has 0 for an expression; `expressions` are those in their order, as pg_get_expr prints them. `classes`: operator classes.
    """

    strategy: str
    attnums: tuple[int, ...]
    text: str
    expressions: tuple[str, ...] = ()
    classes: tuple[int, ...] = ()
    collations: tuple[int, ...] = ()

    @classmethod
    def load(cls, value: dict[str, Any]) -> PartitionKey:
        """The key that `asdict` wrote."""
        lists = {name: tuple(each) for name, each in value.items() if name not in ("strategy", "text")}
        return cls(value["strategy"], text=value["text"], **lists)


@dataclass(frozen=True)
class Relation:
    """A table, partitioned table, view, index or sequence of one database.

    `kind`: pg_class.relkind. `columns`: live columns by attnum; `all_columns` has the dropped ones too. `primary_key` and
    `identity_index`: attnums (identity_index: the index chosen by REPLICA IDENTITY USING INDEX). `parent`: oid of the
    partitioned table or 0; `bound`: FOR VALUES … `foreign_keys` are its own, `referenced` those of any table that name its rows.
    """

    oid: int
    database: int
    namespace_oid: int
    schema: str
    name: str
    kind: RelationKind
    all_columns: tuple[Column, ...]
    owner: int = 10
    persistence: str = "p"
    replica_identity: ReplicaIdentity = ReplicaIdentity.DEFAULT
    indexes: tuple[Index, ...] = ()
    checks: tuple[Check, ...] = ()
    parent: int = 0
    bound: str | None = None
    partition_key: PartitionKey | None = None
    foreign_keys: tuple[ForeignKey, ...] = ()
    referenced: tuple[ForeignKey, ...] = ()
    row_security: bool = False
    force_row_security: bool = False
    options: tuple[str, ...] = ()
    """pg_class.reloptions: ``name=value``."""
    has_triggers: bool = False
    """Whether it may have triggers, or takes part in a foreign key."""

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows are in partitions, none in itself."""
        return self.kind == RelationKind.PARTITIONED_TABLE

    @property
    def columns(self) -> tuple[Column, ...]:
        """The live columns in order."""
        return tuple(column for column in self.all_columns if not column.dropped)

    @property
    def primary_key(self) -> tuple[int, ...]:
        """attnums of the primary key in its order; () without one."""
        return next((index.attnums for index in self.indexes if index.primary), ())

    @property
    def unique_indexes(self) -> list[Index]:
        """The unique indexes, the primary key first."""
        return sorted((each for each in self.indexes if each.unique), key=lambda each: not each.primary)

    @property
    def identity_index(self) -> tuple[int, ...] | None:
        """attnums of the index that REPLICA IDENTITY USING INDEX names, None if it names none."""
        return next((index.attnums for index in self.indexes if index.replident), None)

    def identity_key(self) -> tuple[int, ...] | None:
        """attnums of the replica identity's key; None with FULL, NOTHING, or no key to use (RelationGetReplicaIndex)."""
        if self.replica_identity == ReplicaIdentity.DEFAULT:
            primary = next((index for index in self.indexes if index.primary), None)
            return primary.attnums if primary is not None and primary.immediate else None
        if self.replica_identity == ReplicaIdentity.INDEX:
            return self.identity_index
        return None

    def column(self, name: str) -> Column | None:
        """The live column of this name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    def numbered(self, attnum: int) -> Column | None:
        """The live column of this number, or None."""
        return next((column for column in self.columns if column.attnum == attnum), None)

    def is_on(self, option: str, otherwise: bool) -> bool:
        """What WITH (…) says of something that is on or off; `otherwise` where it says nothing."""
        value = self.option(option)
        return otherwise if value is None else read_bool(value) is True

    def option(self, name: str) -> str | None:
        """What WITH (…) says of it, None where it says nothing."""
        return dict(each.split("=", 1) for each in self.options).get(name)

    def dump(self) -> dict[str, Any]:
        """A value for JSON that `load` reads back."""
        return asdict(self)

    @classmethod
    def load(cls, value: dict[str, Any]) -> Relation:
        """The relation that `dump` wrote."""
        read = {**value, "kind": RelationKind(value["kind"]), "replica_identity": ReplicaIdentity(value["replica_identity"])}
        read["all_columns"] = tuple(Column(**each) for each in value["all_columns"])
        read["indexes"] = tuple(_tupled(Index, each) for each in value["indexes"])
        for field in ("foreign_keys", "referenced"):
            read[field] = tuple(_tupled(ForeignKey, each) for each in value.get(field, ()))
        read["options"] = tuple(value.get("options", ()))
        read["checks"] = tuple(Check(**each) for each in value["checks"])
        key = value["partition_key"]
        read["partition_key"] = None if key is None else PartitionKey.load(key)
        return cls(**read)


def _tupled(kind: type[T], value: dict[str, Any]) -> T:
    """A dataclass from JSON, whose lists were tuples."""
    return kind(**{name: tuple(each) if isinstance(each, list) else each for name, each in value.items()})


def find(cursor: Cursor, database: int, oid: int) -> Relation | None:
    """The relation with this oid, or None."""
    found = load_many(cursor, database, [oid])
    return found[0] if found else None


def get(cursor: Cursor, database: int, oid: int) -> Relation:
    """The relation with this oid; XX000 if it is gone, as PostgreSQL's relation_open."""
    found = find(cursor, database, oid)
    if found is None:
        raise PostgresError("XX000", f"could not open relation with OID {oid}")
    return found


def find_oid(cursor: Cursor, database: int, schema: str | None, name: str, search_path: Iterable[str] = ()) -> int | None:
    """The oid that a name stands for. Without a schema the first match along `search_path` (pg_catalog first unless it is listed)."""
    found = rows(
        cursor,
        "SELECT n.nspname, c.oid FROM hg.pg_class c JOIN hg.pg_namespace n ON n.oid = c.relnamespace AND n.dbid IN (0, ?)"
        " WHERE c.dbid IN (0, ?) AND c.relname = ?",
        [database, database, name],
    )
    by_schema = dict(found)
    if schema is not None:
        return by_schema.get(schema)
    path = list(search_path)
    if "pg_catalog" not in path:
        path.insert(0, "pg_catalog")
    return next((by_schema[each] for each in path if each in by_schema), None)


def lookup(cursor: Cursor, database: int, schema: str | None, name: str, search_path: Iterable[str] = ()) -> Relation | None:
    """The relation that a name stands for (see `find_oid`), or None."""
    oid = find_oid(cursor, database, schema, name, search_path)
    return None if oid is None else find(cursor, database, oid)


def in_schema(cursor: Cursor, database: int, namespace: int, kinds: AbstractSet[RelationKind] = TABLE_KINDS) -> list[Relation]:
    """The relations of a schema, by name."""
    found = rows(cursor, "SELECT oid, relkind FROM hg.pg_class WHERE dbid = ? AND relnamespace = ? ORDER BY relname", [database, namespace])
    return load_many(cursor, database, [oid for oid, kind in found if kind in kinds])


def all_tables(cursor: Cursor, database: int, kinds: AbstractSet[RelationKind] = TABLE_KINDS) -> list[Relation]:
    """All user relations of a database, by oid."""
    found = rows(cursor, "SELECT oid, relkind FROM hg.pg_class WHERE dbid = ? ORDER BY oid", [database])
    return load_many(cursor, database, [oid for oid, kind in found if kind in kinds])


def ancestors(cursor: Cursor, database: int, oid: int) -> list[int]:
    """oids of the partitioned tables above a partition, nearest first."""
    sql = "SELECT ancestor FROM hg.partition_ancestor WHERE dbid = ? AND relid = ? AND ancestor <> relid ORDER BY depth"
    return [found for (found,) in rows(cursor, sql, [database, oid])]


def descendants(cursor: Cursor, database: int, oid: int) -> list[int]:
    """oids of all partitions below a partitioned table, at any depth."""
    sql = "SELECT relid FROM hg.partition_ancestor WHERE dbid = ? AND ancestor = ? AND ancestor <> relid ORDER BY depth, relid"
    return [found for (found,) in rows(cursor, sql, [database, oid])]


def load_many(cursor: Cursor, database: int, oids: Sequence[int]) -> list[Relation]:
    """The relations with these oids that exist, in the order of `oids`: four queries however many they are."""
    if not oids:
        return []
    scope = f"IN ({', '.join(str(int(oid)) for oid in oids)})"
    dbid = f"dbid IN (0, {int(database)})"
    classes = rows(
        cursor,
        f"SELECT c.oid, c.relnamespace, n.nspname, c.relname, c.relkind, c.relowner, c.relpersistence, c.relreplident, c.relpartbound,"
        f" i.inhparent, c.relrowsecurity, c.relforcerowsecurity, c.reloptions, c.relhastriggers, p.partstrat, p.partattrs, p.partkeydef,"
        f" p.partexprs, p.partclass, p.partcollation"
        f" FROM hg.pg_class c JOIN hg.pg_namespace n ON n.oid = c.relnamespace"
        f" AND n.{dbid} LEFT JOIN hg.pg_inherits i ON i.inhrelid = c.oid AND i.{dbid} LEFT JOIN hg.pg_partitioned_table p"
        f" ON p.partrelid = c.oid AND p.{dbid} WHERE c.oid {scope} AND c.{dbid}",
    )
    columns = _columns(cursor, scope, dbid)
    indexes = _indexes(cursor, scope, dbid)
    checks, foreign_keys = _constraints(cursor, scope, dbid)
    own: dict[int, list[ForeignKey]] = {}
    referenced: dict[int, list[ForeignKey]] = {}
    for each in foreign_keys:
        own.setdefault(each.relation, []).append(each)
        referenced.setdefault(each.target, []).append(each)
    found = {}
    for (
        oid,
        namespace,
        schema,
        name,
        kind,
        owner,
        persistence,
        identity,
        bound,
        parent,
        secured,
        forced,
        options,
        triggers,
        *key,
    ) in classes:
        found[oid] = Relation(
            oid, database, namespace, schema, name, RelationKind(kind), tuple(columns.get(oid, ())), owner, persistence,
            ReplicaIdentity(identity), tuple(indexes.get(oid, ())), tuple(checks.get(oid, ())), parent or 0, bound,
            _partition_key(*key) if key[0] else None,
            tuple(own.get(oid, ())), tuple(sorted(referenced.get(oid, ()), key=lambda each: each.oid)), secured, forced,
            tuple(options or ()), triggers,
        )  # fmt: skip
    return [found[oid] for oid in oids if oid in found]


def _partition_key(
    strategy: str,
    attnums: Sequence[int],
    text: str,
    expressions: str | None,
    classes: Sequence[int] | None,
    collations: Sequence[int] | None,
) -> PartitionKey:
    written = tuple(json.loads(expressions)) if expressions else ()
    return PartitionKey(strategy, tuple(attnums), text, written, tuple(classes or ()), tuple(collations or ()))


def _columns(cursor: Cursor, scope: str, dbid: str) -> dict[int, list[Column]]:
    found: dict[int, list[Column]] = {}
    for relation, attnum, name, type_oid, typmod, not_null, default, generated, identity, dropped, collation, dimensions in rows(
        cursor,
        f"SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, d.adbin, a.attgenerated, a.attidentity,"
        f" a.attisdropped, a.attcollation, a.attndims FROM hg.pg_attribute a LEFT JOIN hg.pg_attrdef d ON d.adrelid = a.attrelid"
        f" AND d.adnum = a.attnum AND d.{dbid} WHERE a.attrelid {scope} AND a.attnum > 0 AND a.{dbid} ORDER BY a.attrelid, a.attnum",
    ):
        column = Column(attnum, name, type_oid, typmod, not_null, default, None, identity, dropped, collation, dimensions)
        found.setdefault(relation, []).append(replace(column, default=None, generated=default) if generated else column)
    return found


def _indexes(cursor: Cursor, scope: str, dbid: str) -> dict[int, list[Index]]:
    found: dict[int, list[Index]] = {}
    for relation, name, oid, key, natts, unique, primary, replident, constraint, immediate, *more in rows(
        cursor,
        f"SELECT i.indrelid, c.relname, i.indexrelid, i.indkey, i.indnkeyatts, i.indisunique, i.indisprimary, i.indisreplident, k.oid,"
        f" i.indimmediate, k.condeferrable, i.indexprlist, i.indpred, i.indnullsnotdistinct, k.condeferred"
        f" FROM hg.pg_index i JOIN hg.pg_class c ON c.oid = i.indexrelid AND c.{dbid}"
        f" LEFT JOIN hg.pg_constraint k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u') AND k.{dbid}"
        f" WHERE i.indrelid {scope} AND i.{dbid} ORDER BY i.indexrelid",
    ):
        deferrable, texts, predicate, nulls, deferred = more
        index = Index(
            name, oid, tuple(key[:natts]), unique, primary, replident, constraint or 0, immediate, bool(deferrable),
            tuple(key[natts:]), tuple(texts or ()), predicate, nulls, bool(deferred),
        )  # fmt: skip
        found.setdefault(relation, []).append(index)
    return found


def _constraints(cursor: Cursor, scope: str, dbid: str) -> tuple[dict[int, list[Check]], list[ForeignKey]]:
    """The CHECK constraints of the relations, and the foreign keys that start or end at them."""
    checks: dict[int, list[Check]] = {}
    foreign_keys: list[ForeignKey] = []
    for kind, relation, name, oid, expression, *rest in rows(
        cursor,
        f"SELECT contype, conrelid, conname, oid, conbin, conkey, confrelid, confkey, confupdtype, confdeltype, confmatchtype,"
        f" confdelsetcols, conindid, condeferrable, condeferred, convalidated FROM hg.pg_constraint WHERE {dbid}"
        f" AND (contype = 'c' AND conrelid {scope} OR contype = 'f' AND (conrelid {scope} OR confrelid {scope})) ORDER BY conname",
    ):
        if kind == "c":
            checks.setdefault(relation, []).append(Check(name, oid, expression, bool(rest[-1])))
        else:
            columns, target, target_columns, on_update, on_delete, match, chosen, *flags = rest
            foreign_keys.append(
                ForeignKey(
                    name,
                    oid,
                    relation,
                    tuple(columns),
                    target,
                    tuple(target_columns),
                    on_update,
                    on_delete,
                    match,
                    tuple(chosen or ()),
                    *flags,
                )
            )
    return checks, foreign_keys


def to_json(relation: Relation) -> str:
    """The relation as JSON text."""
    return json.dumps(relation.dump(), separators=(",", ":"))


def relation_count(cursor: Cursor, database: int) -> int:
    """How many relations a database has of its own."""
    found = one(cursor, "SELECT count(*) FROM hg.pg_class WHERE dbid = ?", [database])
    return 0 if found is None else int(found[0])
