"""A relation as one value: its row of pg_class with its columns, indexes, constraints and partition data.

`get` and `lookup` read relations. `definition` creates them, `pg_class`, `attribute`, `index` and `constraint` change them, `removal`
drops them. A `Relation` is immutable, and can be pickled and written as JSON (`dump`, `load`), which the catalog's history does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from typing import Any

from headgate.catalog.cursor import Rows
from headgate.catalog.json_form import Dumped, from_json
from headgate.catalog.physical import Cursor, rows
from headgate.catalog.relation import object_name
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.errors import PostgresError, existing
from headgate.settings.definition import read_bool
from headgate.types import registry


@dataclass(frozen=True)
class Column:
    """A column (pg_attribute).

    `default` and `generated` are SQL texts as pg_get_expr prints them (pg_attrdef). At most one of them is set. `identity`: '' | 'a' always
    | 'd' by default. `collation`: oid in pg_collation, 0 for types without one. `dimensions`: attndims, the number of brackets in an
    array's declaration, which does not constrain its values.
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

    `attnums` are the key's columns, with 0 for an expression. The expressions' texts are in `expressions`, in order. `included` are the
    attnums of INCLUDE. `predicate` is the text of a partial index's WHERE. Both texts are as pg_get_expr prints them.
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
        """Whether the index is a list of columns over all rows, with distinct NULLs."""
        return not self.expressions and self.predicate is None and not self.nulls_not_distinct


@dataclass(frozen=True)
class Check:
    """A CHECK constraint. `expression` is as pg_get_expr prints it, without the outer CHECK. `validated` is False for NOT VALID."""

    name: str
    oid: int
    expression: str
    validated: bool = True
    no_inherit: bool = False


@dataclass(frozen=True)
class ForeignKey:
    """A FOREIGN KEY constraint: `columns` of `relation` (oid) reference a row of `target` (oid) by its `target_columns`.

    `on_update` and `on_delete`: 'a' NO ACTION, 'r' RESTRICT, 'c' CASCADE, 'n' SET NULL, 'd' SET DEFAULT. `match`: 's' SIMPLE, 'f' FULL.
    `set_columns`: the columns of ON DELETE SET … (a, b); empty means all. `index`: the unique index of the target.
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
    parent: int = 0
    """The constraint of which this is the clone for a partition, of the referencing or of the referenced table, or 0."""
    enabled: str = "OO"
    """tgenabled of the two triggers of the constraint on the table that has it here: those of INSERT and UPDATE in `foreign_keys`, those
    of DELETE and UPDATE in `referenced`."""

    def fires_on_update(self, role: str) -> bool:
        """Return whether an UPDATE fires its trigger in a session whose session_replication_role this is."""
        return fires(self.enabled[1], role)

    def fires_otherwise(self, role: str) -> bool:
        """Return whether an INSERT into the referencing table, or a DELETE from the referenced one, fires its trigger."""
        return fires(self.enabled[0], role)


CHECK_FUNCTIONS = (1644, 1645)
"""The functions RI_FKey_check_ins and RI_FKey_check_upd of the triggers of referencing tables."""


def fires(enabled: str, role: str) -> bool:
    """Return whether a trigger with this tgenabled fires in a session whose session_replication_role this is."""
    return enabled in ("A", "R" if role == "replica" else "O")


@dataclass(frozen=True)
class PartitionKey:
    """The partition key of a partitioned table: its `strategy` 'r' | 'l' | 'h', and its text as pg_get_partkeydef prints it.

    `attnums` has 0 for an expression. `expressions` are the texts of these in order, as pg_get_expr prints them. `classes`: operator
    classes.
    """

    strategy: str
    attnums: tuple[int, ...]
    text: str
    expressions: tuple[str, ...] = ()
    classes: tuple[int, ...] = ()
    collations: tuple[int, ...] = ()

    @classmethod
    def load(cls, value: Dumped) -> PartitionKey:
        """Return the key that `asdict` wrote."""
        return from_json(cls, value)


@dataclass(frozen=True)
class Relation:
    """A table, partitioned table, view, index or sequence of one database.

    `kind`: pg_class.relkind. `columns`: live columns by attnum; `all_columns` includes dropped ones. `primary_key` and
    `identity_index`: attnums (identity_index: the index selected by REPLICA IDENTITY USING INDEX). `parent`: oid of the
    partitioned table, or 0. `bound`: FOR VALUES … `foreign_keys` are the relation's own, without their clones for partitions of the
    referenced table. `referenced` are those that reference it, without their clones for partitions of the referencing table.
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
    options: tuple[str, ...] = ()
    """pg_class.reloptions: ``name=value``."""
    has_triggers: bool = False
    """Whether the relation may have triggers, or takes part in a foreign key."""
    has_children: bool = False
    """Whether tables may inherit from this plain table (pg_class.relhassubclass)."""
    with_children: bool = False
    """Whether a statement means the tables that inherit from this one too. The definition of a table is without them (`inheritance`)."""

    @property
    def is_partitioned(self) -> bool:
        return self.kind == RelationKind.PARTITIONED_TABLE

    @property
    def has_leaves(self) -> bool:
        """Whether the rows are those of several tables, the leaves: of the partitions, or of this table and those that inherit from it."""
        return self.is_partitioned or self.with_children

    @property
    def rows_key(self) -> tuple[int, bool]:
        """Identifies the rows that a statement means by the relation."""
        return self.oid, self.with_children

    @property
    def alone(self) -> Relation:
        """The table without the tables that inherit from it."""
        return replace(self, with_children=False) if self.with_children else self

    @property
    def columns(self) -> tuple[Column, ...]:
        """The live columns in order."""
        return tuple(column for column in self.all_columns if not column.dropped)

    @property
    def primary_key(self) -> tuple[int, ...]:
        """The attnums of the primary key in key order, or () without one."""
        return next((index.attnums for index in self.indexes if index.primary), ())

    @property
    def unique_indexes(self) -> list[Index]:
        """The unique indexes, the primary key first."""
        return sorted((index for index in self.indexes if index.unique), key=lambda index: not index.primary)

    @property
    def identity_index(self) -> tuple[int, ...] | None:
        """The attnums of the index selected by REPLICA IDENTITY USING INDEX, or None."""
        return next((index.attnums for index in self.indexes if index.replident), None)

    def identity_key(self) -> tuple[int, ...] | None:
        """Return the attnums of the replica identity's key, or None with FULL, NOTHING, or no usable key (RelationGetReplicaIndex)."""
        if self.replica_identity == ReplicaIdentity.DEFAULT:
            primary = next((index for index in self.indexes if index.primary), None)
            return primary.attnums if primary is not None and primary.immediate else None
        if self.replica_identity == ReplicaIdentity.INDEX:
            return self.identity_index
        return None

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def existing_column(self, name: str, *, location: int = -1) -> Column:
        return existing(self.column(name), "42703", f'column "{name}" of relation "{self.name}"', location=location)

    def check(self, name: str | None) -> Check | None:
        return next((check for check in self.checks if check.name == name), None)

    def foreign_key(self, name: str) -> ForeignKey | None:
        return next((key for key in self.foreign_keys if key.name == name), None)

    def key_constraint(self, name: str) -> Index | None:
        """Return the index of the PRIMARY KEY or UNIQUE constraint with this name, or None."""
        return next((index for index in self.indexes if index.constraint and index.name == name), None)

    def numbered(self, attnum: int) -> Column | None:
        """Return the live column with this number, or None."""
        return next((column for column in self.columns if column.attnum == attnum), None)

    def columns_at(self, attnums: Iterable[int]) -> list[Column]:
        """Return the live columns with these numbers, in this order. Numbers of no live column (0: an expression) are left out."""
        return [column for attnum in attnums if (column := self.numbered(attnum)) is not None]

    def is_on(self, option: str, otherwise: bool) -> bool:
        """Return the value of a boolean storage parameter, or `otherwise` if it is not set."""
        value = self.option(option)
        return otherwise if value is None else read_bool(value) is True

    def option(self, name: str) -> str | None:
        """Return the value of a storage parameter, or None if it is not set."""
        return dict(setting.split("=", 1) for setting in self.options).get(name)

    def dump(self) -> Dumped:
        """Return a JSON value that `load` reads, without the fields that no stream needs."""
        return {name: value for name, value in asdict(self).items() if name not in ("has_children", "with_children")}

    @classmethod
    def load(cls, value: Dumped) -> Relation:
        """Return the relation that `dump` wrote, in this version or an earlier one."""
        fields = {**value, "kind": RelationKind(value["kind"]), "replica_identity": ReplicaIdentity(value["replica_identity"])}
        fields["all_columns"] = tuple(from_json(Column, column) for column in value["all_columns"])
        fields["indexes"] = tuple(from_json(Index, index) for index in value["indexes"])
        for field in ("foreign_keys", "referenced"):
            fields[field] = tuple(from_json(ForeignKey, key_fields) for key_fields in value.get(field, ()))
        fields["options"] = tuple(value.get("options", ()))
        fields["checks"] = tuple(from_json(Check, check) for check in value["checks"])
        key = value["partition_key"]
        fields["partition_key"] = None if key is None else PartitionKey.load(key)
        return from_json(cls, fields)


def find(cursor: Cursor, database: int, oid: int) -> Relation | None:
    relations = load_many(cursor, database, [oid])
    return relations[0] if relations else None


def get(cursor: Cursor, database: int, oid: int) -> Relation:
    """Return the relation with this oid. Raise XX000 if it does not exist, as PostgreSQL's relation_open does."""
    relation = find(cursor, database, oid)
    if relation is None:
        raise PostgresError("XX000", f"could not open relation with OID {oid}")
    return relation


def find_oid(cursor: Cursor, database: int, schema: str | None, name: str, search_path: Iterable[str] = ()) -> int | None:
    """Return the oid of a named relation. Without a schema, return the first on `search_path` (pg_catalog first unless it is listed)."""
    if schema == registry.BY_OID:
        return int(name) if name.isdecimal() else None
    oids = object_name.by_name(cursor, database, name)
    if not oids:
        return None
    schemas = _schemas(cursor, database)
    by_schema = {schemas[namespace]: oid for namespace, oid in oids.items() if namespace in schemas}
    if schema is not None:
        return by_schema.get(schema)
    path = list(search_path)
    if "pg_catalog" not in path:
        path.insert(0, "pg_catalog")
    return next((by_schema[candidate] for candidate in path if candidate in by_schema), None)


def _schemas(cursor: Cursor, database: int) -> dict[int, str]:
    return {oid: name for name, oid in rows(cursor, "SELECT nspname, oid FROM hg.pg_namespace WHERE dbid IN (0, ?)", [database])}


def lookup(cursor: Cursor, database: int, schema: str | None, name: str, search_path: Iterable[str] = ()) -> Relation | None:
    """Return the relation with this name (see `find_oid`), or None."""
    oid = find_oid(cursor, database, schema, name, search_path)
    return None if oid is None else find(cursor, database, oid)


def in_schema(cursor: Cursor, database: int, namespace: int, kinds: AbstractSet[RelationKind]) -> list[Relation]:
    """Return the relations of a schema, ordered by name."""
    classes = rows(
        cursor, "SELECT oid, relkind FROM hg.pg_class WHERE dbid = ? AND relnamespace = ? ORDER BY relname", [database, namespace]
    )
    return load_many(cursor, database, [oid for oid, kind in classes if kind in kinds])


def all_tables(cursor: Cursor, database: int, kinds: AbstractSet[RelationKind] = TABLE_KINDS) -> list[Relation]:
    """Return all user relations of a database, ordered by oid."""
    classes = rows(cursor, "SELECT oid, relkind FROM hg.pg_class WHERE dbid = ? ORDER BY oid", [database])
    return load_many(cursor, database, [oid for oid, kind in classes if kind in kinds])


def ancestors(cursor: Cursor, database: int, oid: int) -> list[int]:
    """Return the oids of the partitioned tables above a partition, nearest first."""
    sql = "SELECT ancestor FROM hg.partition_ancestor WHERE dbid = ? AND relid = ? AND ancestor <> relid ORDER BY depth"
    return [ancestor for (ancestor,) in rows(cursor, sql, [database, oid])]


def descendants(cursor: Cursor, database: int, oid: int) -> list[int]:
    """Return the oids of all partitions below a partitioned table, at any depth."""
    sql = "SELECT relid FROM hg.partition_ancestor WHERE dbid = ? AND ancestor = ? AND ancestor <> relid ORDER BY depth, relid"
    return [descendant for (descendant,) in rows(cursor, sql, [database, oid])]


def load_many(cursor: Cursor, database: int, oids: Sequence[int]) -> list[Relation]:
    """Return the relations with these oids that exist, in the order of `oids`.

    At most ten queries, regardless of the number of relations. Each reads a single table, because DuckDB plans a join of four tables in
    four milliseconds and a query on one table in one.
    """
    if not oids:
        return []
    reader = _Reader(cursor, database)
    classes = reader.read(
        "oid, relnamespace, relname, relkind, relowner, relpersistence, relreplident, relpartbound, relrowsecurity,"
        " reloptions, relhastriggers, relhassubclass, relhasindex, relispartition FROM hg.pg_class", ["oid"], oids,
    )  # fmt: skip
    schemas = _schemas(cursor, database)
    classes = [row for row in classes if row[1] in schemas]  # outside a transaction, each query has its own snapshot
    present = [oid for oid, *_ in classes]
    columns = _columns(reader, present)
    constraints = reader.read(_CONSTRAINTS, ("conrelid", "confrelid"), present)
    indexes = _indexes(reader, [oid for oid, *_, has_index, _ in classes if has_index], constraints)
    checks, own, referenced = _constraints(constraints, _trigger_states(reader, constraints, present))
    parents = dict(reader.read("inhrelid, inhparent FROM hg.pg_inherits", ["inhrelid"], [oid for oid, *_, inherits in classes if inherits]))
    keys = _partition_keys(reader, [oid for oid, _, _, kind, *_ in classes if kind == RelationKind.PARTITIONED_TABLE])
    relations = {}
    for oid, namespace, name, kind, owner, persistence, identity, bound, secured, options, triggers, subclass, *_ in classes:
        relations[oid] = Relation(
            oid, database, namespace, schemas[namespace], name, RelationKind(kind), tuple(columns.get(oid, ())), owner, persistence,
            ReplicaIdentity(identity), tuple(indexes.get(oid, ())), tuple(checks.get(oid, ())), parents.get(oid, 0), bound, keys.get(oid),
            tuple(own.get(oid, ())), tuple(sorted(referenced.get(oid, ()), key=lambda key: key.oid)), secured,
            tuple(options or ()), triggers, has_children=subclass and kind == RelationKind.TABLE,
        )  # fmt: skip
    return [relations[oid] for oid in oids if oid in relations]


_FEW = 8
"""Maximum number of relations passed as parameters. The cursor recognizes such queries as queries on single relations (`catalog.point`)."""


@dataclass(frozen=True)
class _Reader:
    """Reads the rows of a catalog that belong to certain relations of a database."""

    cursor: Cursor
    database: int

    def read(self, select: str, columns: Sequence[str], oids: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return the rows in which one of `columns` is one of these oids. Without oids, run no query."""
        if not oids:
            return []
        if len(oids) <= _FEW:
            scopes, values = [f"{column} = ?" for column in columns for _ in oids], [*oids] * len(columns)
        else:
            scopes, values = [f"{column} IN ({', '.join(str(int(oid)) for oid in oids)})" for column in columns], []
        condition = f"({' OR '.join(scopes)})"
        return rows(self.cursor, f"SELECT {select} WHERE {condition} AND dbid IN (0, ?)", [*values, self.database])


def _partition_keys(reader: _Reader, oids: Sequence[int]) -> dict[int, PartitionKey]:
    keys = reader.read(
        "partrelid, partstrat, partattrs, partkeydef, partexprs, partclass, partcollation FROM hg.pg_partitioned_table", ["partrelid"], oids
    )
    return {oid: _partition_key(*key) for oid, *key in keys}


def _partition_key(
    strategy: str,
    attnums: Sequence[int],
    text: str,
    expressions: str | None,
    classes: Sequence[int] | None,
    collations: Sequence[int] | None,
) -> PartitionKey:
    expression_texts = tuple(json.loads(expressions)) if expressions else ()
    return PartitionKey(strategy, tuple(attnums), text, expression_texts, tuple(classes or ()), tuple(collations or ()))


def _columns(reader: _Reader, oids: Sequence[int]) -> dict[int, list[Column]]:
    attributes = reader.read(
        "attrelid, attnum, attname, atttypid, atttypmod, attnotnull, attgenerated, attidentity, attisdropped, attcollation, attndims,"
        " atthasdef FROM hg.pg_attribute", ["attrelid"], oids,
    )  # fmt: skip
    with_default = list(dict.fromkeys(row[0] for row in attributes if row[-1]))
    defaults = {
        (oid, number): text for oid, number, text in reader.read("adrelid, adnum, adbin FROM hg.pg_attrdef", ["adrelid"], with_default)
    }
    columns: dict[int, list[Column]] = {}
    for oid, number, name, type_oid, typmod, not_null, generated, identity, dropped, collation, dimensions, _ in sorted(attributes):
        if number <= 0:
            continue
        text = defaults.get((oid, number))
        default, expression = (None, text) if generated else (text, None)
        column = Column(number, name, type_oid, typmod, not_null, default, expression, identity, dropped, collation, dimensions)
        columns.setdefault(oid, []).append(column)
    return columns


def _indexes(reader: _Reader, oids: Sequence[int], constraints: Rows) -> dict[int, list[Index]]:
    by_index = {row[12]: row for row in constraints if row[0] in ("p", "u")}
    entries = reader.read(
        "indexrelid, indrelid, indkey, indnkeyatts, indisunique, indisprimary, indisreplident, indimmediate, indexprlist, indpred,"
        " indnullsnotdistinct FROM hg.pg_index", ["indrelid"], oids,
    )  # fmt: skip
    names = dict(reader.read("oid, relname FROM hg.pg_class", ["oid"], [row[0] for row in entries]))
    indexes: dict[int, list[Index]] = {}
    entries = sorted((row for row in entries if row[0] in names), key=lambda row: row[0])
    for oid, relation, key, width, unique, primary, replident, immediate, texts, predicate, nulls in entries:
        constraint = by_index.get(oid)
        deferrable, deferred = constraint[13:15] if constraint is not None else (False, False)
        index = Index(
            names[oid], oid, tuple(key[:width]), unique, primary, replident, constraint[3] if constraint is not None else 0, immediate,
            bool(deferrable), tuple(key[width:]), tuple(texts or ()), predicate, nulls, bool(deferred),
        )  # fmt: skip
        indexes.setdefault(relation, []).append(index)
    return indexes


_ACTION_EVENTS = (9, 17)
"""tgtype of the triggers of referenced tables: AFTER DELETE and UPDATE, for each row."""


def _trigger_states(reader: _Reader, constraint_rows: Rows, present: Sequence[int]) -> dict[tuple[int, int], str]:
    """Return tgenabled of the triggers of foreign keys, by the constraint and the function of a check, or the tgtype of an action."""
    with_keys = {oid for row in constraint_rows if row[0] == "f" for oid in (row[1], row[6])}
    trigger_rows = reader.read(
        "tgconstraint, tgfoid, tgtype, tgenabled FROM hg.pg_trigger", ["tgrelid"], [oid for oid in present if oid in with_keys]
    )
    return {
        (constraint, function if function in CHECK_FUNCTIONS else kind): enabled for constraint, function, kind, enabled in trigger_rows
    }


def _enabled(states: dict[tuple[int, int], str], constraint: int, numbers: tuple[int, ...]) -> str:
    return "".join(states.get((constraint, number), "O") for number in numbers)


_CONSTRAINTS = (
    "contype, conrelid, conname, oid, conbin, conkey, confrelid, confkey, confupdtype, confdeltype, confmatchtype, confdelsetcols,"
    " conindid, condeferrable, condeferred, convalidated, conparentid, connoinherit FROM hg.pg_constraint"
)


def _constraints(
    constraint_rows: Rows, states: dict[tuple[int, int], str]
) -> tuple[dict[int, list[Check]], dict[int, list[ForeignKey]], dict[int, list[ForeignKey]]]:
    """Return the CHECK constraints and the foreign keys by their relation, and the foreign keys by the relation to which they refer.

    `states` are those of `_trigger_states`.
    """
    places = {row[3]: (row[1], row[6]) for row in constraint_rows if row[0] == "f"}
    checks: dict[int, list[Check]] = {}
    own: dict[int, list[ForeignKey]] = {}
    referenced: dict[int, list[ForeignKey]] = {}
    for kind, relation, name, oid, expression, columns, target, target_columns, *rest in sorted(constraint_rows, key=lambda row: row[2]):
        on_update, on_delete, match, chosen, *flags, no_inherit = rest
        if kind == "c":
            checks.setdefault(relation, []).append(Check(name, oid, expression, bool(flags[-2]), bool(no_inherit)))
        elif kind == "f":
            key = ForeignKey(
                name, oid, relation, tuple(columns), target, tuple(target_columns), on_update, on_delete, match, tuple(chosen or ()), *flags
            )
            parent_relation, parent_target = places.get(key.parent, (0, 0))
            if parent_relation != relation:
                own.setdefault(relation, []).append(replace(key, enabled=_enabled(states, oid, CHECK_FUNCTIONS)))
            if parent_target != target:
                referenced.setdefault(target, []).append(replace(key, enabled=_enabled(states, oid, _ACTION_EVENTS)))
    return checks, own, referenced
