"""The types that a node knows: PostgreSQL 15's built-in rows of pg_type, by OID and by name, and how their names are printed.

All higher layers use it. The rows are those of the initial catalog (`initial_catalog.rows`).

User types (enums, domains, composite types) come from a database's catalog. `catalog.known_types.registry_of` builds a registry of a
database's types. Code that runs a statement or applies a batch activates it for its thread with `use`. `known` returns the active registry,
which is also the default of functions with a `registry` parameter. A thread that has not called `use` knows only the built-in types. So
does a Spark worker: a function that needs user types brings a registry along, which is pickled as its user types.

Invariant: a registry never changes after its creation, so that threads and Spark tasks can share it.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headgate.errors import PostgresError
from headgate.initial_catalog.rows import rows, schemas
from headgate.types import typmod as modifiers

BOOL = 16
BYTEA = 17
CHAR = 18
NAME = 19
INT8 = 20
INT2 = 21
INT2VECTOR = 22
INT4 = 23
REGPROC = 24
TEXT = 25
OID = 26
TID = 27
XID = 28
CID = 29
OIDVECTOR = 30
JSON = 114
XML = 142
PG_NODE_TREE = 194
POINT = 600
LSEG = 601
PATH = 602
BOX = 603
POLYGON = 604
LINE = 628
CIDR = 650
FLOAT4 = 700
FLOAT8 = 701
UNKNOWN = 705
CIRCLE = 718
MACADDR8 = 774
MONEY = 790
MACADDR = 829
INET = 869
BPCHAR = 1042
VARCHAR = 1043
DATE = 1082
TIME = 1083
TIMESTAMP = 1114
TIMESTAMPTZ = 1184
INTERVAL = 1186
TIMETZ = 1266
BIT = 1560
VARBIT = 1562
NUMERIC = 1700
REFCURSOR = 1790
RECORD = 2249
CSTRING = 2275
ANY = 2276
ANYARRAY = 2277
VOID = 2278
TRIGGER = 2279
ANYELEMENT = 2283
RECORD_ARRAY = 2287
UUID = 2950
PG_LSN = 3220
ANYENUM = 3500
TSVECTOR = 3614
TSQUERY = 3615
JSONB = 3802
JSONPATH = 4072
REGCLASS = 2205
REGTYPE = 2206
REGROLE = 4096
REGNAMESPACE = 4089
XID8 = 5069
NAME_ARRAY = 1003
INT4_ARRAY = 1007
TEXT_ARRAY = 1009
INTEGERS = frozenset({INT2, INT4, INT8})
NUMBERS = INTEGERS | {FLOAT4, FLOAT8, NUMERIC}
ANYRANGE = 3831
INT4RANGE = 3904
NUMRANGE = 3906
TSRANGE = 3908
TSTZRANGE = 3910
DATERANGE = 3912
INT8RANGE = 3926
INT4MULTIRANGE = 4451
NUMMULTIRANGE = 4532
TSMULTIRANGE = 4533
TSTZMULTIRANGE = 4534
DATEMULTIRANGE = 4535
INT8MULTIRANGE = 4536
ANYMULTIRANGE = 4537
SUBTYPES = {INT4RANGE: INT4, NUMRANGE: NUMERIC, TSRANGE: TIMESTAMP, TSTZRANGE: TIMESTAMPTZ, DATERANGE: DATE, INT8RANGE: INT8}
"""The subtype of each range type."""
RANGES = {
    INT4MULTIRANGE: INT4RANGE, NUMMULTIRANGE: NUMRANGE, TSMULTIRANGE: TSRANGE, TSTZMULTIRANGE: TSTZRANGE, DATEMULTIRANGE: DATERANGE,
    INT8MULTIRANGE: INT8RANGE,
}  # fmt: skip
"""The range type of each multirange type."""
MULTIRANGES = {kind: multirange for multirange, kind in RANGES.items()}

_SPELLINGS = {
    "int": "int4", "integer": "int4", "bigint": "int8", "smallint": "int2", "boolean": "bool", "real": "float4",
    "double precision": "float8", "float": "float8", "decimal": "numeric", "dec": "numeric", "character varying": "varchar",
    "char varying": "varchar", "character": "bpchar", "national character varying": "varchar", "bit varying": "varbit",
    "timestamp with time zone": "timestamptz", "timestamp without time zone": "timestamp",
    "time with time zone": "timetz", "time without time zone": "time",
}  # fmt: skip
"""The grammar's own names of types (manual, table 8.1).

``char`` is missing: the grammar turns SQL's ``char`` into pg_catalog.bpchar. So a bare name ``char`` is the quoted one, the type of one
byte.
"""


_PRINTED = {
    BOOL: "boolean", CHAR: '"char"', INT8: "bigint", INT2: "smallint", INT4: "integer", FLOAT4: "real", FLOAT8: "double precision",
    BPCHAR: "character", VARCHAR: "character varying", VARBIT: "bit varying", TIME: "time without time zone",
    TIMESTAMP: "timestamp without time zone", TIMESTAMPTZ: "timestamp with time zone", TIMETZ: "time with time zone", ANY: '"any"',
}  # fmt: skip
"""The result of format_type(oid, NULL) for types for which it is not the name."""
_UNMODIFIED = {BPCHAR: "bpchar", BIT: '"bit"'}
"""The result of format_type(oid, -1) if it differs: without a modifier the grammar's character and bit would have length 1."""


BY_OID = "pg_oid"
"""The schema of references. Texts of the catalog name a user's object by its OID: ``pg_oid."16385"`` (`reference`).

Nobody can create a schema of this name, because of its prefix. `hg.expression_out` prints the object's present name instead.
"""


_REFERENCE = re.compile(rf'{BY_OID}\."([0-9]+)"')


def reference(oid: int) -> str:
    """Return the name of a user's object in a text of the catalog. It stays the same when the object is renamed or moved."""
    return f'{BY_OID}."{oid}"'


def referenced(text: str) -> int | None:
    """Return the OID of a text that is a reference, or None for any other text."""
    match = _REFERENCE.fullmatch(text)
    return None if match is None else int(match[1])


class TypeKind(enum.StrEnum):
    """pg_type.typtype."""

    BASE = "b"
    COMPOSITE = "c"
    DOMAIN = "d"
    ENUM = "e"
    PSEUDO = "p"
    RANGE = "r"
    MULTIRANGE = "m"


@dataclass(frozen=True)
class Attribute:
    """A column of a composite type."""

    name: str
    type_oid: int
    typmod: int = -1


@dataclass(frozen=True)
class PgType:
    """One row of pg_type.

    `array` is the OID of the array type over this one, `element` of the type that this one is an array of (0: none; also set for
    the vectors, whose `is_array` is false). `length` is typlen: bytes, -1 variable, -2 a C string. `labels` are those of an enum;
    `not_null`, `checks` (name and expression over VALUE) are those of a domain and of its base domains, `default` is its own; `attributes`
    are the columns of a composite type.
    `plain` and `unmodified` are format_type(oid, NULL) and format_type(oid, -1).
    """

    oid: int
    name: str
    schema: str
    kind: TypeKind
    category: str
    preferred: bool
    length: int
    by_value: bool
    delimiter: str
    element: int
    array: int
    base: int
    base_typmod: int
    collation: int
    relation: int
    has_typmod: bool
    plain: str
    unmodified: str
    labels: tuple[str, ...] = ()
    not_null: bool = False
    checks: tuple[tuple[str, str], ...] = ()
    default: str | None = None
    attributes: tuple[Attribute, ...] = ()
    of_table: bool = False
    """Whether this is the type of a table's rows, which no column may have."""
    above: frozenset[int] = frozenset()
    """The tables from which the table of a row type inherits."""

    @property
    def is_array(self) -> bool:
        """Whether this is a true array type. int2vector, oidvector, name, point, … can be subscripted, too, but are not."""
        return self.category == "A" and self.length == -1 and self.element != 0 and not self.is_vector

    @property
    def is_vector(self) -> bool:
        """Whether this is int2vector or oidvector. Expressions treat them as arrays over their element with subscripts from 0."""
        return self.oid in (INT2VECTOR, OIDVECTOR)


FIRST_USER_OID = 16384
"""The first OID of user objects (FirstNormalObjectId)."""


class RowTypes(Protocol):
    """Looks up the types of tables' rows in a catalog. There are too many to keep all of them."""

    def by_oid(self, oid: int) -> Sequence[PgType]:
        """Return the row type with this OID, or whose array type has it, and the array type. Return nothing if there is none."""

    def by_name(self, name: str, schema: str | None) -> Sequence[PgType]:
        """Return the row type with this name, and its array type. Return nothing if there is none."""

    def by_relation(self, relation: int) -> Sequence[PgType]:
        """Return the type of a relation's rows, and its array type. Return nothing if there is none."""


class TypeRegistry:
    """Types by OID and by (schema, name). `path`: the schemas to search for a name without a schema; None: any schema.

    `row_types` looks up the types of tables' rows. They stay known until `forget_row_types`, because a statement may change a table.
    """

    def __init__(self, types: Iterable[PgType], path: Sequence[str] | None = None) -> None:
        self._by_oid = {pg_type.oid: pg_type for pg_type in types}
        self._by_name = {(pg_type.schema, pg_type.name): pg_type for pg_type in self._by_oid.values()}
        self.path = None if path is None else tuple(path)
        self.row_types: RowTypes | None = None
        self._rows: dict[int, PgType | None] = {}

    def looking_up(self, row_types: RowTypes | None) -> TypeRegistry:
        """Return a registry of the same types that also looks up the types of tables' rows."""
        types = object.__new__(TypeRegistry)  # copy.copy would pickle it
        types.__dict__.update(self.__dict__, row_types=row_types, _rows={})
        return types

    def forget_row_types(self) -> None:
        """Forget the types of tables' rows, which are looked up again when they are needed."""
        self._rows.clear()

    def _add_row_types(self, types: Sequence[PgType]) -> PgType | None:
        self._rows.update((pg_type.oid, pg_type) for pg_type in types)
        return types[0] if types else None

    def of_relation(self, relation: int) -> PgType | None:
        """Return the type of a relation's rows, or None if it is not known."""
        return None if self.row_types is None else self._add_row_types(self.row_types.by_relation(relation))

    def extended(self, types: Iterable[PgType], path: Sequence[str] | None = None) -> TypeRegistry:
        """Return a registry that also knows `types`, such as the enums of a catalog and their arrays."""
        return TypeRegistry([*self._by_oid.values(), *types], path)

    def user_types(self) -> tuple[PgType, ...]:
        created = (pg_type for oid, pg_type in self._by_oid.items() if oid >= FIRST_USER_OID)
        return (*created, *(pg_type for pg_type in self._rows.values() if pg_type is not None))

    def anywhere(self) -> TypeRegistry:
        """Return the same types, with names without a schema looked up in any schema. Used for expressions stored in the catalog."""
        return self if self.path is None else TypeRegistry(self._by_oid.values()).looking_up(self.row_types)

    def __reduce__(self) -> tuple[object, ...]:
        return _extended, (self.user_types(), self.path)

    def all_types(self) -> tuple[PgType, ...]:
        return tuple(self._by_oid.values())

    def find(self, oid: int) -> PgType | None:
        pg_type = self._by_oid.get(oid)
        if pg_type is not None or oid < FIRST_USER_OID or self.row_types is None:
            return pg_type
        if oid not in self._rows:
            self._rows[oid] = None
            self._add_row_types(self.row_types.by_oid(oid))
        return self._rows[oid]

    def by_oid(self, oid: int) -> PgType:
        """Return the type with this OID. Raise 42704 if there is none."""
        pg_type = self.find(oid)
        if pg_type is None:
            raise PostgresError("42704", f"type with OID {oid} does not exist")
        return pg_type

    def base(self, oid: int, modifier: int = -1) -> tuple[int, int]:
        """Return the base type and modifier of a domain. Any other type is returned unchanged."""
        pg_type = self._by_oid.get(oid)
        while pg_type is not None and pg_type.kind is TypeKind.DOMAIN:
            oid, modifier = pg_type.base, pg_type.base_typmod
            pg_type = self._by_oid.get(oid)  # no domain is over a table's row type
        return oid, modifier

    def of_users(self, oid: int) -> list[int]:
        """Return the user types that determine the values of this type: itself, its base type, element and attributes."""
        oids = []
        while oid >= FIRST_USER_OID and (pg_type := self._by_oid.get(oid)) is not None:
            oids.append(oid)
            oids += [attribute_oid for attribute in pg_type.attributes for attribute_oid in self.of_users(attribute.type_oid)]
            oid = pg_type.base if pg_type.kind is TypeKind.DOMAIN else pg_type.element
        return oids

    def find_name(self, name: str, schema: str | None = None) -> PgType | None:
        """Return the type with this catalog name or SQL spelling (``integer``, ``text[]``). Without a schema, search the path."""
        if name.endswith("[]"):
            element = self.find_name(name.removesuffix("[]").rstrip(), schema)
            return None if element is None else self.find(element.oid if element.is_array else element.array)
        return self._find_named(name, schema) or (
            None if self.row_types is None else self._add_row_types(self.row_types.by_name(name, schema))
        )

    def _find_named(self, name: str, schema: str | None) -> PgType | None:
        if schema == BY_OID:
            return self.find(int(name)) if name.isdecimal() else None
        if schema is not None:
            return self._by_name.get((schema, name))
        lowered = " ".join(name.lower().split())
        schemas = self.path or ()
        early = next(
            (self._by_name[candidate, name] for candidate in schemas[: _place(schemas)] if (candidate, name) in self._by_name), None
        )
        pg_type = early or self._by_name.get(("pg_catalog", _SPELLINGS.get(lowered, name)))
        if pg_type is not None or self.path is None:
            return pg_type or next((candidate for (_, candidate_name), candidate in self._by_name.items() if candidate_name == name), None)
        return next((self._by_name[candidate, name] for candidate in schemas if (candidate, name) in self._by_name), None)

    def by_name(self, name: str, schema: str | None = None) -> PgType:
        """Return the type as `find_name`. Raise 42704 if there is none."""
        pg_type = self.find_name(name, schema)
        if pg_type is None:
            shown = name if schema is None else f"{schema}.{name}"
            raise PostgresError("42704", f'type "{shown}" does not exist')
        return pg_type

    def format_type(self, oid: int, typmod: int | None = None) -> str:
        """Return the name that PostgreSQL's format_type returns; a `typmod` of None is SQL's NULL.

        The name is ``???`` for an unknown OID and ``-`` for 0.
        """
        if oid == 0:
            return "-"
        pg_type = self.find(oid)
        if pg_type is None:
            return "???"
        if typmod is None:
            return pg_type.plain
        element = self.find(pg_type.element) if pg_type.is_array else pg_type
        if typmod < 0 or element is None or not element.has_typmod:
            return pg_type.unmodified
        text = modifiers.print_type(element.oid, typmod)
        return text + "[]" if pg_type.is_array else text

    def stored_name(self, oid: int, typmod: int | None = None) -> str:
        """Return the name of a type in a text of the catalog: a reference to a user's type, otherwise that of `format_type`."""
        if oid < FIRST_USER_OID:
            return self.format_type(oid, typmod)
        pg_type = self.by_oid(oid)
        return f"{reference(pg_type.element)}[]" if pg_type.is_array else reference(oid)


class InitialCheck(NamedTuple):
    """The CHECK constraint of a domain of information_schema, as PostgreSQL prints it. initdb's catalogs have its node tree."""

    name: str
    text: str
    pretty: str


INITIAL_CHECKS = {
    "cardinal_number": InitialCheck("cardinal_number_domain_check", "(VALUE >= 0)", "VALUE >= 0"),
    "yes_or_no": InitialCheck(
        "yes_or_no_check",
        "((VALUE)::text = ANY ((ARRAY['YES'::character varying, 'NO'::character varying])::text[]))",
        "VALUE::text = ANY (ARRAY['YES'::character varying, 'NO'::character varying]::text[])",
    ),
}
"""The CHECK constraints of built-in domains, by the domain's name."""


@functools.cache
def builtin() -> TypeRegistry:
    return TypeRegistry(_read_rows())


_in_force: ContextVar[TypeRegistry | None] = ContextVar("types in force", default=None)
_guard: ContextVar[Callable[[str], None] | None] = ContextVar("guard of schemas", default=None)
_elsewhere: ContextVar[bool] = ContextVar("elsewhere", default=False)


def use(types: TypeRegistry | None) -> None:
    """Activate a registry for this thread. None: the built-in types."""
    _in_force.set(types)


def known() -> TypeRegistry:
    """Return the active registry: the types of the database that this thread works on, or the built-in ones."""
    return _in_force.get() or builtin()


def guard(check: Callable[[str], None] | None) -> None:
    """Set the function that raises if this thread names a type in a schema that its user may not use. None: no check."""
    _guard.set(check)


@contextlib.contextmanager
def unguarded(*, elsewhere: bool = True) -> Iterator[None]:
    """Disable the check for a text of another user, such as a view's: its types were resolved when it was created.

    Without `elsewhere`, the check is enabled again, for a function that the text calls.
    """
    before = _elsewhere.set(elsewhere)  # separate from the guard, which a statement inside the context sets again
    try:
        yield
    finally:
        _elsewhere.reset(before)


def is_unguarded() -> bool:
    """Return whether this thread reads a text from the catalog, which another user may have written."""
    return _elsewhere.get()


def check_schema(schema: str, types: TypeRegistry) -> None:
    """Check a schema with the guard. Texts of the catalog are read with `anywhere`, which has no path, and are not checked."""
    check = _guard.get()
    if check is not None and not _elsewhere.get() and types.path is not None and schema not in ("pg_catalog", BY_OID):
        check(schema)


def _extended(types: tuple[PgType, ...], path: tuple[str, ...] | None) -> TypeRegistry:
    return builtin().extended(types, path) if types or path is not None else builtin()


def _place(schemas: Sequence[str]) -> int:
    """Return the number of schemas of a path before pg_catalog, which is first if the path does not contain it."""
    return schemas.index("pg_catalog") if "pg_catalog" in schemas else 0


def by_oid(oid: int) -> PgType:
    """Return the active type with this OID. Raise 42704 if there is none."""
    return known().by_oid(oid)


def by_name(name: str, schema: str | None = None) -> PgType:
    """Return the active type with this catalog name or SQL spelling. Raise 42704 if there is none."""
    return known().by_name(name, schema)


def format_type(oid: int, typmod: int | None = None) -> str:
    """Return the result of PostgreSQL's format_type for the active types."""
    return known().format_type(oid, typmod)


_ARRAY_SUBSCRIPT_HANDLER = 6179
_COLUMNS = ("oid", "typname", "typnamespace", "typtype", "typcategory", "typispreferred", "typlen", "typbyval", "typdelim", "typelem",
            "typarray", "typbasetype", "typtypmod", "typcollation", "typrelid", "typmodin", "typsubscript", "typstorage")  # fmt: skip


def _read_rows() -> Iterable[PgType]:
    read = {row["oid"]: row for row in rows("pg_type", *_COLUMNS)}
    for row in read.values():
        is_array = row["typsubscript"] == _ARRAY_SUBSCRIPT_HANDLER and row["typstorage"] != "p"  # that of the vectors is plain
        shown = read[row["typelem"]] if is_array else row
        brackets = "[]" if is_array else ""
        plain = _PRINTED.get(shown["oid"]) or shown["typname"]
        if schemas()[shown["typnamespace"]] != "pg_catalog":
            plain = f"{schemas()[shown['typnamespace']]}.{plain}"
        check = INITIAL_CHECKS.get(row["typname"])
        yield PgType(
            oid=row["oid"],
            name=row["typname"],
            schema=schemas()[row["typnamespace"]],
            kind=TypeKind(row["typtype"]),
            category=row["typcategory"],
            preferred=row["typispreferred"],
            length=row["typlen"],
            by_value=row["typbyval"],
            delimiter=row["typdelim"],
            element=row["typelem"],
            array=row["typarray"],
            base=row["typbasetype"],
            base_typmod=row["typtypmod"],
            collation=row["typcollation"],
            relation=row["typrelid"],
            checks=() if check is None else ((check.name, check.text),),
            has_typmod=row["typmodin"] != 0,
            plain=plain + brackets,
            unmodified=_UNMODIFIED.get(shown["oid"], plain) + brackets,
        )
