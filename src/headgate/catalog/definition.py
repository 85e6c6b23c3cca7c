"""Creating and changing relations: the rows of pg_class, pg_attribute, pg_index, pg_constraint, pg_attrdef, pg_type, pg_inherits.

Called by the commands on tables, inside their transaction. The functions check what only the catalog can know (a name in use);
what a definition means (types, expressions, keys that fit) has been checked by the caller. Each change leaves the rows as
PostgreSQL 15 would, because psql reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from headgate.catalog import key_text
from headgate.catalog import relation as relations
from headgate.catalog.physical import Cursor, insert, one, rows, run
from headgate.catalog.pretty import pretty
from headgate.catalog.relation import Column, Index, PartitionKey, Relation
from headgate.errors import PostgresError
from headgate.sql.names import split_identifiers
from headgate.types import registry

HEAP = 2
BTREE = 403
HASH = 405
NAME_LENGTH = 63

Oids = Callable[[], int]
"""Gives new oids: `Catalog.next_oid`."""


@dataclass(frozen=True)
class Key:
    """A PRIMARY KEY or UNIQUE constraint, or with `constraint=False` a mere index, to be made. `name` None: PostgreSQL's choice.

    `attnums` has 0 for an expression: its text is in `expressions`, its type and name in `expression_columns`. `options` are the bits of
    pg_index.indoption, `classes` operator classes (0: the type's own), `method` the access method's oid.
    """

    attnums: tuple[int, ...]
    primary: bool = False
    unique: bool = True
    name: str | None = None
    constraint: bool = True
    deferrable: bool = False
    deferred: bool = False
    included: tuple[int, ...] = ()
    expressions: tuple[str, ...] = ()
    expression_columns: tuple[Column, ...] = ()
    predicate: str | None = None
    nulls_not_distinct: bool = False
    options: tuple[int, ...] = ()
    classes: tuple[int, ...] = ()
    method: int = 403

    def index(self, name: str) -> Index:
        """The key as an index that is not made yet, for checks of the rows."""
        return Index(
            name, 0, self.attnums, unique=self.unique, included=self.included, expressions=self.expressions, predicate=self.predicate,
            nulls_not_distinct=self.nulls_not_distinct,
        )  # fmt: skip


@dataclass(frozen=True)
class NewCheck:
    """A CHECK constraint to be made; `expression` as pg_get_expr prints it; not `validated`: NOT VALID."""

    expression: str
    name: str | None = None
    attnums: tuple[int, ...] = ()
    validated: bool = True


@dataclass(frozen=True)
class Definition:
    """A table to be made. `columns` are numbered by their place."""

    namespace: int
    name: str
    columns: Sequence[Column]
    owner: int = 10
    kind: str = "r"
    persistence: str = "p"
    keys: Sequence[Key] = ()
    checks: Sequence[NewCheck] = ()
    partition_key: PartitionKey | None = None


def create(cursor: Cursor, oids: Oids, database: int, definition: Definition) -> Relation:
    """Makes a table with its row type, indexes and constraints; 42P07 if the name is in use in the schema."""
    _require_free(cursor, database, definition.namespace, definition.name)
    _require_no_type(cursor, database, definition)
    oid = oids()
    row_type = _create_row_type(cursor, oids, database, definition, oid)
    insert(
        cursor, "pg_class", dbid=database, oid=oid, relname=definition.name, relnamespace=definition.namespace, reltype=row_type,
        relowner=definition.owner, relam=HEAP if definition.kind in "rt" else 0, relfilenode=oid if definition.kind != "p" else 0,
        reltuples=-1.0, relpersistence=definition.persistence, relkind=definition.kind, relnatts=len(definition.columns),
        relispopulated=True, relreplident="d" if definition.kind in "rp" else "n",
        relfrozenxid=700 if definition.kind == "r" else 0, relminmxid=1 if definition.kind == "r" else 0,
    )  # fmt: skip
    for place, column in enumerate(definition.columns, 1):
        _write_column(cursor, oids, database, oid, column, place)
    if definition.partition_key is not None:
        key = definition.partition_key
        insert(
            cursor, "pg_partitioned_table", dbid=database, partrelid=oid, partstrat=key.strategy, partnatts=len(key.attnums),
            partattrs=list(key.attnums), partkeydef=key.text, partdefid=0, partclass=list(key.classes), partcollation=list(key.collations),
            partexprs=json.dumps(key.expressions) if key.expressions else None,
        )  # fmt: skip
    insert(cursor, "pg_depend", dbid=database, classid=1259, objid=oid, refclassid=2615, refobjid=definition.namespace, deptype="n")
    for new_key in definition.keys:
        add_key(cursor, oids, relations.get(cursor, database, oid), new_key)
    for check in definition.checks:
        add_check(cursor, oids, relations.get(cursor, database, oid), check)
    return relations.get(cursor, database, oid)


def drop(cursor: Cursor, database: int, oid: int) -> None:
    """Removes a relation with all that belongs to it.

    That is: indexes, constraints, its membership in publications and subscriptions,
    the sequences that its columns own. Its partitions are the caller's to drop first.
    """
    owned = rows(
        cursor,
        "SELECT d.objid FROM hg.pg_depend d JOIN hg.pg_class c ON c.oid = d.objid AND c.dbid = d.dbid WHERE d.dbid = ? AND"
        " d.refclassid = 1259 AND d.refobjid = ? AND d.classid = 1259 AND d.deptype IN ('a', 'i') AND c.relkind = 'S'",
        [database, oid],
    )
    for (sequence,) in owned:
        drop(cursor, database, sequence)
    indexes = [index for (index,) in rows(cursor, "SELECT indexrelid FROM hg.pg_index WHERE dbid = ? AND indrelid = ?", [database, oid])]
    run(
        cursor,
        "DELETE FROM hg.pg_depend WHERE dbid = ? AND classid = 2618 AND objid IN"
        " (SELECT oid FROM hg.pg_rewrite WHERE dbid = ? AND ev_class = ?)",
        [database, database, oid],
    )
    run(
        cursor,
        "DELETE FROM hg.pg_depend WHERE dbid = ? AND classid = 2604 AND objid IN"
        " (SELECT oid FROM hg.pg_attrdef WHERE dbid = ? AND adrelid = ?)",
        [database, database, oid],
    )
    for gone in [*indexes, oid]:
        for table, column in (
            ("pg_attribute", "attrelid"), ("pg_attrdef", "adrelid"), ("pg_index", "indexrelid"), ("pg_constraint", "conrelid"),
            ("pg_inherits", "inhrelid"), ("pg_partitioned_table", "partrelid"), ("pg_sequence", "seqrelid"), ("pg_class", "oid"),
            ("pg_publication_rel", "prrelid"), ("pg_subscription_rel", "srrelid"), ("pg_description", "objoid"),
            ("pg_depend", "objid"), ("pg_depend", "refobjid"), ("partition_ancestor", "relid"), ("sequence_state", "seqrelid"),
            ("pg_rewrite", "ev_class"), ("pg_policy", "polrelid"),
        ):  # fmt: skip
            run(cursor, f"DELETE FROM hg.{table} WHERE dbid = ? AND {column} = ?", [database, gone])
        run(cursor, "UPDATE hg.pg_partitioned_table SET partdefid = 0 WHERE dbid = ? AND partdefid = ?", [database, gone])
        run(
            cursor,
            "DELETE FROM hg.pg_type WHERE dbid = ? AND (typrelid = ? OR typelem IN"
            " (SELECT oid FROM hg.pg_type WHERE dbid = ? AND typrelid = ?))",
            [database, gone, database, gone],
        )


def rename(cursor: Cursor, relation: Relation, name: str) -> None:
    """ALTER TABLE … RENAME TO; the row type follows."""
    _require_free(cursor, relation.database, relation.namespace_oid, name)
    set_class(cursor, relation, "relname", name)
    scope = [relation.database, relation.oid]
    run(cursor, "UPDATE hg.pg_type SET typname = ? WHERE dbid = ? AND typrelid = ?", [name, *scope])


def rename_column(cursor: Cursor, relation: Relation, attnum: int, name: str) -> None:
    """ALTER TABLE … RENAME COLUMN; the columns of its indexes follow. 42701 if the name is in use."""
    if relation.column(name) is not None:
        raise PostgresError("42701", f'column "{name}" of relation "{relation.name}" already exists')
    _set_column(cursor, relation, attnum, "attname", name)
    for index in relation.indexes:
        for place, number in enumerate((*index.attnums, *index.included), 1):
            if number == attnum:
                sql = "UPDATE hg.pg_attribute SET attname = ? WHERE dbid = ? AND attrelid = ? AND attnum = ?"
                run(cursor, sql, [name, relation.database, index.oid, place])
    key_text.write(cursor, relation.database, relation.oid)


def rename_constraint(cursor: Cursor, relation: Relation, name: str, new_name: str) -> None:
    """ALTER TABLE … RENAME CONSTRAINT; the index of a key follows. 42704 if there is no such constraint."""
    found = one(
        cursor,
        "SELECT oid, conindid FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ? AND conname = ?",
        [relation.database, relation.oid, name],
    )
    if found is None:
        raise PostgresError("42704", f'constraint "{name}" for table "{relation.name}" does not exist')
    if found[1]:
        _require_free(cursor, relation.database, relation.namespace_oid, new_name)
        run(cursor, "UPDATE hg.pg_class SET relname = ? WHERE dbid = ? AND oid = ?", [new_name, relation.database, found[1]])
    run(cursor, "UPDATE hg.pg_constraint SET conname = ? WHERE dbid = ? AND oid = ?", [new_name, relation.database, found[0]])


def set_schema(cursor: Cursor, relation: Relation, namespace: int) -> None:
    """ALTER TABLE … SET SCHEMA: the table, its row type, its indexes and constraints."""
    _require_free(cursor, relation.database, namespace, relation.name)
    set_class(cursor, relation, "relnamespace", namespace)
    scope = [relation.database, relation.oid]
    run(cursor, "UPDATE hg.pg_type SET typnamespace = ? WHERE dbid = ? AND typrelid = ?", [namespace, *scope])
    run(cursor, "UPDATE hg.pg_constraint SET connamespace = ? WHERE dbid = ? AND conrelid = ?", [namespace, *scope])
    for index in relation.indexes:
        run(cursor, "UPDATE hg.pg_class SET relnamespace = ? WHERE dbid = ? AND oid = ?", [namespace, relation.database, index.oid])


def set_owner(cursor: Cursor, relation: Relation, owner: int) -> None:
    """ALTER TABLE … OWNER TO."""
    set_class(cursor, relation, "relowner", owner)
    for index in relation.indexes:
        run(cursor, "UPDATE hg.pg_class SET relowner = ? WHERE dbid = ? AND oid = ?", [owner, relation.database, index.oid])


def set_replica_identity(cursor: Cursor, relation: Relation, identity: str, index: int = 0) -> None:
    """ALTER TABLE … REPLICA IDENTITY; `index` with 'i'."""
    set_class(cursor, relation, "relreplident", identity)
    run(
        cursor,
        "UPDATE hg.pg_index SET indisreplident = (indexrelid = ?) WHERE dbid = ? AND indrelid = ? AND indisreplident <> (indexrelid = ?)",
        [index, relation.database, relation.oid, index],
    )


def add_column(cursor: Cursor, oids: Oids, relation: Relation, column: Column) -> int:
    """ALTER TABLE … ADD COLUMN; returns its attnum. 42701 if the name is in use."""
    if relation.column(column.name) is not None:
        raise PostgresError("42701", f'column "{column.name}" of relation "{relation.name}" already exists')
    attnum = len(relation.all_columns) + 1
    _write_column(cursor, oids, relation.database, relation.oid, column, attnum)
    set_class(cursor, relation, "relnatts", attnum)
    return attnum


def drop_column(cursor: Cursor, relation: Relation, attnum: int) -> None:
    """ALTER TABLE … DROP COLUMN: the column stays as dropped, its default goes, and so do indexes and constraints that use it."""
    for index in relation.indexes:
        if attnum in index.attnums or attnum in index.included:
            drop_index(cursor, relation, index.oid)
    checks = rows(
        cursor,
        "SELECT oid, conkey FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ? AND contype = 'c'",
        [relation.database, relation.oid],
    )
    for oid, key in checks:
        if attnum in (key or ()):
            drop_check(cursor, relation, oid)
    run(
        cursor,
        "DELETE FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ? AND contype = 'f' AND list_contains(conkey, ?)",
        [relation.database, relation.oid, attnum],
    )
    set_default(cursor, lambda: 0, relation, attnum, None)
    run(
        cursor,
        "UPDATE hg.pg_attribute SET attname = ?, atttypid = 0, attisdropped = true, attnotnull = false, attidentity = '',"
        " attgenerated = '', attstattarget = 0 WHERE dbid = ? AND attrelid = ? AND attnum = ?",
        [f"........pg.dropped.{attnum}........", relation.database, relation.oid, attnum],
    )


def set_not_null(cursor: Cursor, relation: Relation, attnum: int, not_null: bool) -> None:
    """ALTER TABLE … ALTER COLUMN … SET or DROP NOT NULL."""
    _set_column(cursor, relation, attnum, "attnotnull", not_null)


def set_identity(cursor: Cursor, relation: Relation, attnum: int, identity: str) -> None:
    """pg_attribute.attidentity: '', 'a' or 'd'."""
    _set_column(cursor, relation, attnum, "attidentity", identity)


def set_default(cursor: Cursor, oids: Oids, relation: Relation, attnum: int, default: str | None) -> None:
    """ALTER TABLE … ALTER COLUMN … SET DEFAULT (text as pg_get_expr prints it) or, with None, DROP DEFAULT."""
    scope = [relation.database, relation.oid, attnum]
    chosen = "SELECT oid FROM hg.pg_attrdef WHERE dbid = ? AND adrelid = ? AND adnum = ?"
    run(cursor, f"DELETE FROM hg.pg_depend WHERE dbid = ? AND classid = 2604 AND objid IN ({chosen})", [relation.database, *scope])
    run(cursor, "DELETE FROM hg.pg_attrdef WHERE dbid = ? AND adrelid = ? AND adnum = ?", scope)
    if default is not None:
        _insert_default(cursor, oids, relation.database, relation.oid, attnum, default)
    _set_column(cursor, relation, attnum, "atthasdef", default is not None)


def set_type(cursor: Cursor, relation: Relation, attnum: int, type_oid: int, typmod: int, collation: int) -> None:
    """ALTER TABLE … ALTER COLUMN … TYPE, in the table and in its indexes."""
    places = [(relation.oid, attnum)]
    places += [(index.oid, place) for index in relation.indexes for place, number in enumerate((*index.attnums, *index.included), 1)
               if number == attnum]  # fmt: skip
    for oid, number in places:
        run(
            cursor,
            "UPDATE hg.pg_attribute a SET atttypid = t.oid, atttypmod = ?, attcollation = ?, attlen = t.typlen, attbyval = t.typbyval,"
            " attalign = t.typalign, attstorage = t.typstorage FROM hg.pg_type t WHERE t.oid = ? AND t.dbid IN (0, ?)"
            " AND a.dbid = ? AND a.attrelid = ? AND a.attnum = ?",
            [typmod, collation, type_oid, relation.database, relation.database, oid, number],
        )


def add_key(cursor: Cursor, oids: Oids, relation: Relation, key: Key) -> int:
    """Makes an index, and its constraint if `key.constraint`; a primary key's columns become NOT NULL.

    Returns the index's oid.
    42P16 for a second primary key, 42P07 for a name in use.
    """
    if key.primary and relation.primary_key:
        raise PostgresError("42P16", f'multiple primary keys for table "{relation.name}" are not allowed')
    columns = _key_columns(relation, key)
    label = "pkey" if key.primary else ("key" if key.constraint else "idx")
    middle = None if key.primary else "_".join(column.name for column in columns)
    name = key.name or choose_name(cursor, relation.database, relation.namespace_oid, relation.name, middle, label)
    _require_free(cursor, relation.database, relation.namespace_oid, name)
    oid = oids()
    partitioned = relation.kind == "p"
    insert(
        cursor, "pg_class", dbid=relation.database, oid=oid, relname=name, relnamespace=relation.namespace_oid, relowner=relation.owner,
        relam=key.method, relfilenode=0 if partitioned else oid, relpersistence=relation.persistence, relkind="I" if partitioned else "i",
        relnatts=len(columns), relispopulated=True, relreplident="n",
    )  # fmt: skip
    run(
        cursor,
        "UPDATE hg.pg_class SET relhasindex = true WHERE dbid = ? AND oid = ? AND NOT relhasindex",
        [relation.database, relation.oid],
    )
    for place, column in enumerate(columns, 1):
        plain = Column(place, column.name, column.type_oid, column.typmod, collation=column.collation)
        _write_column(cursor, oids, relation.database, oid, plain, place)
        if key.primary and column.attnum in key.attnums and not column.not_null:
            set_not_null(cursor, relation, column.attnum, not_null=True)
    width = len(key.attnums)
    classes = [given or operator_class(cursor, column.type_oid) for given, column in zip(key.classes or [0] * width, columns, strict=False)]
    insert(
        cursor, "pg_index", dbid=relation.database, indexrelid=oid, indrelid=relation.oid, indnatts=len(columns), indnkeyatts=width,
        indisunique=key.unique, indisprimary=key.primary, indimmediate=not key.deferrable, indisvalid=True, indisready=True, indislive=True,
        indnullsnotdistinct=key.nulls_not_distinct, indkey=[*key.attnums, *key.included], indclass=classes,
        indcollation=[column.collation for column in columns[:width]], indoption=list(key.options or [0] * width),
        indexprs=", ".join(key.expressions) or None, indexprlist=list(key.expressions) or None,
        indpred=key.predicate, indpredpretty=None if key.predicate is None else pretty(key.predicate),
    )  # fmt: skip
    if key.constraint:
        constraint = oids()
        insert(
            cursor, "pg_constraint", dbid=relation.database, oid=constraint, conname=name, connamespace=relation.namespace_oid,
            contype="p" if key.primary else "u", condeferrable=key.deferrable, condeferred=key.deferred, convalidated=True,
            conrelid=relation.oid, conindid=oid, confupdtype=" ", confdeltype=" ", confmatchtype=" ", conislocal=True, connoinherit=True,
            conkey=list(key.attnums),
        )  # fmt: skip
        insert(cursor, "pg_depend", dbid=relation.database, classid=1259, objid=oid, refclassid=2606, refobjid=constraint, deptype="i")
    key_text.write(cursor, relation.database, relation.oid)
    return oid


def _key_columns(relation: Relation, key: Key) -> list[Column]:
    """The columns of an index: those of the table, and for expressions columns of their own; no two of one name."""
    own = list(key.expression_columns)
    found: list[Column] = []
    for attnum in (*key.attnums, *key.included):
        column = relation.numbered(attnum) if attnum else own.pop(0)
        assert column is not None
        name, count = column.name, 0
        while any(each.name == name for each in found):
            count += 1
            name = f"{column.name}{count}"
        found.append(replace(column, name=name))
    return found


def set_valid(cursor: Cursor, database: int, index: int, *, valid: bool) -> None:
    """pg_index.indisvalid: an index of a partitioned table is not valid until each partition has its part."""
    run(cursor, "UPDATE hg.pg_index SET indisvalid = ? WHERE dbid = ? AND indexrelid = ?", [valid, database, index])


def drop_index(cursor: Cursor, relation: Relation, index: int) -> None:
    """Removes an index and its constraint."""
    run(cursor, "DELETE FROM hg.pg_constraint WHERE dbid = ? AND conindid = ?", [relation.database, index])
    drop(cursor, relation.database, index)
    run(
        cursor,
        "UPDATE hg.pg_class SET relhasindex = EXISTS (SELECT 1 FROM hg.pg_index WHERE dbid = ? AND indrelid = ?)"
        " WHERE dbid = ? AND oid = ?",
        [relation.database, relation.oid, relation.database, relation.oid],
    )


def add_check(cursor: Cursor, oids: Oids, relation: Relation, check: NewCheck) -> int:
    """Makes a CHECK constraint; 42710 if the table has a constraint of that name."""
    taken = {
        name
        for (name,) in rows(
            cursor, "SELECT conname FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ?", [relation.database, relation.oid]
        )
    }
    column = relation.numbered(check.attnums[0]) if len(check.attnums) == 1 else None
    name = check.name or free_name(relation.name, None if column is None else column.name, "check", taken)
    if name in taken:
        raise PostgresError("42710", f'constraint "{name}" for relation "{relation.name}" already exists')
    oid = oids()
    insert(
        cursor, "pg_constraint", dbid=relation.database, oid=oid, conname=name, connamespace=relation.namespace_oid, contype="c",
        convalidated=check.validated, conrelid=relation.oid, confupdtype=" ", confdeltype=" ", confmatchtype=" ", conislocal=True,
        conkey=list(check.attnums), conbin=check.expression,
        conbinpretty=pretty(check.expression),
    )  # fmt: skip
    run(cursor, "UPDATE hg.pg_class SET relchecks = relchecks + 1 WHERE dbid = ? AND oid = ?", [relation.database, relation.oid])
    return oid


def drop_check(cursor: Cursor, relation: Relation, oid: int) -> None:
    """Removes a CHECK constraint."""
    run(cursor, "DELETE FROM hg.pg_constraint WHERE dbid = ? AND oid = ?", [relation.database, oid])
    run(cursor, "UPDATE hg.pg_class SET relchecks = relchecks - 1 WHERE dbid = ? AND oid = ?", [relation.database, relation.oid])


def drop_constraint(cursor: Cursor, relation: Relation, name: str, *, missing_ok: bool = False) -> bool:
    """ALTER TABLE … DROP CONSTRAINT; 42704 if there is none, unless `missing_ok` (then False)."""
    check = next((each for each in relation.checks if each.name == name), None)
    if check is not None:
        drop_check(cursor, relation, check.oid)
        return True
    index = next((each for each in relation.indexes if each.constraint and each.name == name), None)
    if index is not None:
        drop_index(cursor, relation, index.oid)
        return True
    if any(each.name == name for each in relation.foreign_keys):
        run(
            cursor,
            "DELETE FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ? AND contype = 'f' AND conname = ?",
            [relation.database, relation.oid, name],
        )
        return True
    if missing_ok:
        return False
    raise PostgresError("42704", f'constraint "{name}" of relation "{relation.name}" does not exist')


def choose_name(cursor: Cursor, database: int, namespace: int, name: str, middle: str | None, label: str) -> str:
    """PostgreSQL's ChooseRelationName: name_middle_label, cut to 63 bytes, with a number behind it if that is in use."""
    taken = {each for (each,) in rows(cursor, "SELECT relname FROM hg.pg_class WHERE dbid = ? AND relnamespace = ?", [database, namespace])}
    return free_name(name, middle, label, taken)


def free_name(name: str, middle: str | None, label: str, taken: Iterable[str]) -> str:
    """name_middle_label, cut to 63 bytes, with a number behind it if it is among `taken`."""
    count = 0
    while True:
        found = _object_name(name, middle, label + (str(count) if count else ""))
        if found not in taken:
            return found
        count += 1


def _object_name(name: str, middle: str | None, label: str) -> str:
    """PostgreSQL's makeObjectName: the longer of the two parts is cut first."""
    first, second = name.encode(), (middle or "").encode()
    room = NAME_LENGTH - len(label) - 1 - (1 if middle else 0)
    while len(first) + len(second) > room:
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
    parts = [first.decode(errors="ignore"), *([second.decode(errors="ignore")] if middle else []), label]
    return "_".join(parts)


def _require_free(cursor: Cursor, database: int, namespace: int, name: str) -> None:
    sql = "SELECT 1 FROM hg.pg_class WHERE dbid IN (0, ?) AND relnamespace = ? AND relname = ?"
    if one(cursor, sql, [database, namespace, name]):
        raise PostgresError("42P07", f'relation "{name}" already exists')


def _require_no_type(cursor: Cursor, database: int, definition: Definition) -> None:
    """42710: a table's row type has the table's name, so that a type of that name stands in its way."""
    sql = "SELECT 1 FROM hg.pg_type WHERE dbid IN (0, ?) AND typnamespace = ? AND typname = ? AND typelem = 0"
    if one(cursor, sql, [database, definition.namespace, definition.name]):
        raise PostgresError(
            "42710",
            f'type "{definition.name}" already exists',
            hint="A relation has an associated type of the same name, so you must use a name that doesn't conflict with any existing type.",
        )


def set_class(cursor: Cursor, relation: Relation, column: str, value: object) -> None:
    """Sets one column of the relation's row of pg_class."""
    run(cursor, f"UPDATE hg.pg_class SET {column} = ? WHERE dbid = ? AND oid = ?", [value, relation.database, relation.oid])


def _set_column(cursor: Cursor, relation: Relation, attnum: int, column: str, value: object) -> None:
    sql = f"UPDATE hg.pg_attribute SET {column} = ? WHERE dbid = ? AND attrelid = ? AND attnum = ?"
    run(cursor, sql, [value, relation.database, relation.oid, attnum])


def _write_column(cursor: Cursor, oids: Oids, database: int, relation: int, column: Column, attnum: int) -> None:
    found = one(
        cursor,
        "SELECT typlen, typbyval, typalign, typstorage, typelem FROM hg.pg_type WHERE oid = ? AND dbid IN (0, ?)",
        [column.type_oid, database],
    )
    if found is None:
        raise PostgresError("42704", f"type with OID {column.type_oid} does not exist")
    length, by_value, align, storage, element = found
    expression = column.generated if column.generated is not None else column.default
    known = registry.known().find(column.type_oid)
    insert(
        cursor, "pg_attribute", dbid=database, attrelid=relation, attname=column.name, atttypid=column.type_oid, attstattarget=-1,
        attlen=length, attnum=attnum, attndims=1 if element and known is not None and known.is_array else 0, attcacheoff=-1,
        atttypmod=column.typmod, attbyval=by_value, attalign=align, attstorage=storage, attcompression="", attnotnull=column.not_null,
        atthasdef=expression is not None, attidentity=column.identity, attgenerated="s" if column.generated is not None else "",
        attislocal=True, attcollation=column.collation,
    )  # fmt: skip
    if expression is not None:
        _insert_default(cursor, oids, database, relation, attnum, expression)


_NEXTVAL = re.compile(r"nextval\('((?:[^']|'')*)'::regclass\)")


def _insert_default(cursor: Cursor, oids: Oids, database: int, relation: int, attnum: int, text: str) -> None:
    """Writes the row of a default, and that it depends on its column and on the sequence whose nextval it is."""
    oid = oids()
    insert(cursor, "pg_attrdef", dbid=database, oid=oid, adrelid=relation, adnum=attnum, adbin=text, adbinpretty=pretty(text))
    depends = [(relation, attnum, "a")]
    for found in _NEXTVAL.findall(text):
        sequence = _sequence_named(cursor, database, relation, found.replace("''", "'"))
        if sequence is not None:
            depends.append((sequence, 0, "n"))
    for target, sub, kind in depends:
        insert(
            cursor, "pg_depend", dbid=database, classid=2604, objid=oid, refclassid=1259, refobjid=target, refobjsubid=sub, deptype=kind
        )  # fmt: skip


def _sequence_named(cursor: Cursor, database: int, relation: int, text: str) -> int | None:
    """The sequence of a name in a default: with its schema, or in the table's schema, or in public."""
    parts = split_identifiers(text.replace(".", ",")) or [text]
    own = one(
        cursor,
        "SELECT n.nspname FROM hg.pg_class c JOIN hg.pg_namespace n ON n.oid = c.relnamespace AND n.dbid IN (0, ?)"
        " WHERE c.dbid = ? AND c.oid = ?",
        [database, database, relation],
    )
    for schema in [parts[-2]] if len(parts) > 1 else [own[0] if own else "public", "public"]:
        found = relations.find_oid(cursor, database, schema, parts[-1])
        if found is not None:
            return found
    return None


def _create_row_type(cursor: Cursor, oids: Oids, database: int, definition: Definition, relation: int) -> int:
    """The composite type of a table's rows and its array type (PostgreSQL's _name)."""
    own, array = oids(), oids()
    common = {
        "typnamespace": definition.namespace,
        "typowner": definition.owner,
        "typisdefined": True,
        "typdelim": ",",
        "typalign": "d",
        "typstorage": "x",
        "typtypmod": -1,
        "typlen": -1,
    }
    insert(
        cursor, "pg_type", dbid=database, oid=own, typname=definition.name, typtype="c", typcategory="C", typrelid=relation, typarray=array,
        typinput=2290, typoutput=2291, typreceive=2402, typsend=2403, **common,
    )  # fmt: skip
    insert(
        cursor, "pg_type", dbid=database, oid=array, typname=f"_{definition.name}"[:NAME_LENGTH], typtype="b", typcategory="A", typelem=own,
        typsubscript=6179, typinput=750, typoutput=751, typreceive=2400, typsend=2401, typanalyze=3816, **common,
    )  # fmt: skip
    return own


def operator_class(cursor: Cursor, type_oid: int, method: int = BTREE) -> int:
    """The default operator class of a type, 0 if it has none; varchar uses text's (binary coercible), arrays array_ops, enums enum_ops."""
    known = registry.known().find(type_oid)
    wanted = {registry.VARCHAR: registry.TEXT, registry.CIDR: registry.INET}.get(type_oid, type_oid)
    if known is not None and known.is_array:
        wanted = registry.ANYARRAY
    elif known is None:
        wanted = registry.ANYENUM
    found = one(cursor, "SELECT oid FROM hg.pg_opclass WHERE opcmethod = ? AND opcdefault AND opcintype = ?", [method, wanted])
    return 0 if found is None else int(found[0])
