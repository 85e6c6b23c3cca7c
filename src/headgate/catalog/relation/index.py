"""Create indexes: rows of pg_index with their relation and columns, and the PRIMARY KEY or UNIQUE constraint of the index.

Called by `definition` for the keys of a new table and by the commands on indexes, inside their transaction. The caller has checked that the
key fits its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.catalog.physical import Cursor, Oids, insert, one, update
from headgate.catalog.pretty import pretty
from headgate.catalog.relation import attribute, key_text
from headgate.catalog.relation.constraint import require_unused
from headgate.catalog.relation.object_name import choose_name, require_free
from headgate.catalog.relation.relation import Column, Index, Relation
from headgate.errors import PostgresError
from headgate.types import registry

BTREE = 403
HASH = 405


@dataclass(frozen=True)
class IndexKey:
    """A new PRIMARY KEY or UNIQUE constraint, or with `constraint=False` a mere index. `name` None: PostgreSQL's choice.

    `attnums` has 0 for an expression. Its text is in `expressions`, its type and name in `expression_columns`. `options` are the bits of
    pg_index.indoption, `classes` operator classes (0: the type's default), `method` the access method's oid.
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
        """Return the key as an index that does not exist yet, for checks of the rows."""
        return Index(
            name, 0, self.attnums, unique=self.unique, included=self.included, expressions=self.expressions, predicate=self.predicate,
            nulls_not_distinct=self.nulls_not_distinct,
        )  # fmt: skip


def add_key(cursor: Cursor, oids: Oids, relation: Relation, key: IndexKey) -> int:
    """Create an index, and its constraint if `key.constraint`. A primary key's columns become NOT NULL.

    Return the index's oid. Raise 42P16 for a second primary key, 42P07 for a name in use, 42710 for that of another constraint.
    """
    if key.primary and relation.primary_key:
        raise PostgresError("42P16", f'multiple primary keys for table "{relation.name}" are not allowed')
    columns = _key_columns(relation, key)
    label = "pkey" if key.primary else ("key" if key.constraint else "idx")
    middle = None if key.primary else "_".join(column.name for column in columns)
    place = relation.database, relation.namespace_oid
    name = key.name or choose_name(cursor, *place, relation.name, middle, label, constraint=key.constraint)
    require_free(cursor, relation.database, relation.namespace_oid, name)
    if key.constraint:
        require_unused(cursor, relation, name)
    oid = oids()
    _add_class(cursor, oids, oid, relation, key, name, columns)
    for column in columns:
        if key.primary and column.attnum in key.attnums and not column.not_null:
            attribute.set_not_null(cursor, relation, column.attnum, not_null=True)
    width = len(key.attnums)
    classes = [
        class_oid or operator_class(cursor, column.type_oid) for class_oid, column in zip(key.classes or [0] * width, columns, strict=False)
    ]
    numbers, options = [*key.attnums, *key.included], list(key.options or [0] * width)
    texts = key_text.of_index(cursor, relation, numbers, width, options, classes, key.expressions)
    insert(
        cursor, "pg_index", dbid=relation.database, indexrelid=oid, indrelid=relation.oid, indnatts=len(columns), indnkeyatts=width,
        indisunique=key.unique, indisprimary=key.primary, indimmediate=not key.deferrable, indisvalid=True, indisready=True, indislive=True,
        indnullsnotdistinct=key.nulls_not_distinct, indkey=numbers, indclass=classes,
        indcollation=[column.collation for column in columns[:width]], indoption=options, **texts,
        **expression_texts(key.expressions, key.predicate),
    )  # fmt: skip
    if key.constraint:
        _add_constraint(cursor, oids(), relation, key, name, oid, texts["indincludetext"])
    return oid


def expression_texts(expressions: Sequence[str], predicate: str | None) -> dict[str, object]:
    """Return the columns of pg_index for the expressions and the predicate of an index."""
    return {
        "indexprs": ", ".join(expressions) or None,
        "indexprlist": list(expressions) or None,
        "indpred": predicate,
        "indpredpretty": None if predicate is None else pretty(predicate),
    }


def _add_class(cursor: Cursor, oids: Oids, oid: int, relation: Relation, key: IndexKey, name: str, columns: Sequence[Column]) -> None:
    """Create the relation of an index, and its columns."""
    partitioned = relation.is_partitioned
    insert(
        cursor, "pg_class", dbid=relation.database, oid=oid, relname=name, relnamespace=relation.namespace_oid, relowner=relation.owner,
        relam=key.method, relfilenode=0 if partitioned else oid, relpersistence=relation.persistence, relkind="I" if partitioned else "i",
        relnatts=len(columns), relispopulated=True, relreplident="n",
    )  # fmt: skip
    if not relation.indexes:
        update(cursor, "pg_class", {"dbid": relation.database, "oid": relation.oid}, relhasindex=True)
    numbered = [
        (Column(number, column.name, column.type_oid, column.typmod, collation=column.collation), number)
        for number, column in enumerate(columns, 1)
    ]
    attribute.write_columns(cursor, oids, relation.database, oid, numbered)


def _add_constraint(cursor: Cursor, oid: int, relation: Relation, key: IndexKey, name: str, index: int, included: object) -> None:
    """Create the constraint of an index. `included`: the text of the columns of INCLUDE."""
    insert(
        cursor, "pg_constraint", dbid=relation.database, oid=oid, conname=name, connamespace=relation.namespace_oid,
        contype="p" if key.primary else "u", condeferrable=key.deferrable, condeferred=key.deferred, convalidated=True,
        conrelid=relation.oid, conindid=index, confupdtype=" ", confdeltype=" ", confmatchtype=" ", conislocal=True, connoinherit=True,
        conkey=list(key.attnums), conkeytext=key_text.listed(relation, key.attnums), conincludetext=included,
    )  # fmt: skip
    insert(cursor, "pg_depend", dbid=relation.database, classid=1259, objid=index, refclassid=2606, refobjid=oid, deptype="i")


def _key_columns(relation: Relation, key: IndexKey) -> list[Column]:
    """Return the columns of an index: those of the table, and new columns for expressions. No two have the same name."""
    own = list(key.expression_columns)
    key_columns: list[Column] = []
    for attnum in (*key.attnums, *key.included):
        column = relation.numbered(attnum) if attnum else own.pop(0)
        assert column is not None
        name, count = column.name, 0
        while any(key_column.name == name for key_column in key_columns):
            count += 1
            name = f"{column.name}{count}"
        key_columns.append(replace(column, name=name))
    return key_columns


def set_valid(cursor: Cursor, database: int, index: int, *, valid: bool) -> None:
    """Set pg_index.indisvalid. An index of a partitioned table is not valid until each partition has its part."""
    update(cursor, "pg_index", {"dbid": database, "indexrelid": index}, indisvalid=valid)


_BY_KIND = {
    registry.TypeKind.RANGE: registry.ANYRANGE,
    registry.TypeKind.MULTIRANGE: registry.ANYMULTIRANGE,
    registry.TypeKind.COMPOSITE: registry.RECORD,
}
"""The polymorphic type whose operator class is used by the types of a kind."""


def operator_class(cursor: Cursor, type_oid: int, method: int = BTREE) -> int:
    """Return the default operator class of a type, or 0 if it has none.

    A domain uses that of its base type, varchar that of text (binary coercible), an array array_ops, an enum enum_ops, and so on.
    """
    type_oid, _ = registry.known().base(type_oid, -1)
    kind = registry.known().find(type_oid)
    class_type = {registry.VARCHAR: registry.TEXT, registry.CIDR: registry.INET}.get(type_oid, type_oid)
    if kind is not None and kind.is_array:
        class_type = registry.ANYARRAY
    elif kind is None or kind.kind is registry.TypeKind.ENUM:
        class_type = registry.ANYENUM
    else:
        class_type = _BY_KIND.get(kind.kind, class_type)
    row = one(cursor, "SELECT oid FROM hg.pg_opclass WHERE opcmethod = ? AND opcdefault AND opcintype = ?", [method, class_type])
    return 0 if row is None else int(row[0])
