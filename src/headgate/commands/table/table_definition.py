"""Convert CREATE TABLE's elements, column definitions and constraints, to the catalog's `Definition`.

Called by `table` and by ALTER TABLE ADD COLUMN. The checks are those of PostgreSQL's parse_utilcmd.c and tablecmds.c, in their order if it
is visible to users. Expressions (DEFAULT, CHECK, GENERATED) are bound by `stored_expression` and stored as the text that pg_get_expr
prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import hold
from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation.constraint import NewCheck
from headgate.catalog.relation.index import IndexKey
from headgate.catalog.relation.relation import Column
from headgate.commands import stored_expression
from headgate.commands.sequence import sequence
from headgate.commands.table import inheritance
from headgate.commands.table.inheritance import Inherited
from headgate.errors import PostgresError, not_supported, without_position
from headgate.expression.binding.scope import SYSTEM_COLUMNS
from headgate.expression.spark import domain
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry
from headgate.types.storage import is_accepted, storable
from headgate.types.text_column import TextSettings as Forms

MAX_COLUMNS = 1600
WITHOUT_ORDER = frozenset({
    registry.JSON, registry.XML, registry.XID, registry.CID, registry.POINT, registry.LSEG, registry.PATH, registry.BOX, registry.POLYGON,
    registry.LINE, registry.CIRCLE, registry.REFCURSOR, registry.JSONPATH,
})  # fmt: skip
"""Types without a default btree operator class."""
SERIAL = {"serial": "int4", "serial4": "int4", "bigserial": "int8", "serial8": "int8", "smallserial": "int2", "serial2": "int2"}


@dataclass
class SequenceNeed:
    """A column that needs its own sequence: serial (`identity` '') or GENERATED … AS IDENTITY ('a' or 'd')."""

    column: str
    type_oid: int
    identity: str
    options: Sequence[pb.Node] = ()


@dataclass
class ForeignKeyNeed:
    """A FOREIGN KEY of a table, or of a column (`own`): its node, and the deferrability that clauses after a column's constraint set.

    `only`: ALTER TABLE ONLY.
    """

    node: pb.Constraint
    own: tuple[str, ...] = ()
    deferrable: bool = False
    deferred: bool = False
    only: bool = False


@dataclass
class Elements:
    """The contents of a list of table elements."""

    columns: list[Column] = field(default_factory=list)
    keys: list[IndexKey] = field(default_factory=list)
    checks: list[NewCheck] = field(default_factory=list)
    sequences: list[SequenceNeed] = field(default_factory=list)
    foreign_keys: list[ForeignKeyNeed] = field(default_factory=list)


@dataclass
class _Column:
    column: Column
    default: ParseNode | None = None
    generated: ParseNode | None = None
    not_null: bool | None = None
    keys: list[pb.Constraint | _KeyOf] = field(default_factory=list)
    checks: list[pb.Constraint] = field(default_factory=list)
    latest: _KeyOf | ForeignKeyNeed | None = None
    """The key or foreign key to which a following DEFERRABLE clause applies."""


def read(
    nodes: Sequence[pb.Node],
    table: str,
    cursor: Cursor,
    database: int,
    forms: Forms,
    inherited: Sequence[Column] | Inherited = (),
    create_sequences: Callable[[Sequence[SequenceNeed]], None] | None = None,
) -> Elements:
    """Return the elements of CREATE TABLE `table` (…). Constants are read under `forms`.

    `inherited` has the parent's columns for a partition, whose elements have no types, or what INHERITS names. `create_sequences` is called
    before the expressions are bound, because these may name the sequences.
    """
    elements = Elements()
    drafts, constraints = _sorted_elements(nodes, table, cursor, database, inherited, elements)
    _check_names(drafts)
    if isinstance(inherited, Inherited) and inherited.parents:
        drafts = _merge(drafts, inherited, cursor)
        _check_names(drafts)
    columns = [replace(draft.column, attnum=number, not_null=bool(draft.not_null)) for number, draft in enumerate(drafts, 1)]
    keys = [constraint for draft in drafts for constraint in draft.keys] + [
        declared for declared in constraints if declared.contype != pb.CONSTR_CHECK
    ]
    elements.keys = _keys(keys, columns, table)
    primary = next((key.attnums for key in elements.keys if key.primary), ())
    columns = [replace(column, not_null=column.not_null or column.attnum in primary) for column in columns]
    generated = {draft.column.name for draft in drafts if draft.generated is not None}
    if create_sequences is not None:
        create_sequences(elements.sequences)
    elements.columns = [
        _with_expressions(column, draft, columns, table, generated, forms) for column, draft in zip(columns, drafts, strict=True)
    ]
    checks = [constraint_node for draft in drafts for constraint_node in draft.checks] + [
        constraint_node for constraint_node in constraints if constraint_node.contype == pb.CONSTR_CHECK
    ]
    elements.checks = [check(constraint_node, columns, table, forms) for constraint_node in checks]
    return elements


def _sorted_elements(
    nodes: Sequence[pb.Node], table: str, cursor: Cursor, database: int, inherited: Sequence[Column] | Inherited, elements: Elements
) -> tuple[list[_Column], list[pb.Constraint]]:
    """Return the columns and the constraints of the table. Add its foreign keys and sequences to `elements`."""
    above = () if isinstance(inherited, Inherited) else inherited
    drafts = [_Column(replace(parent_column, identity=""), not_null=parent_column.not_null or None) for parent_column in above]
    constraints: list[pb.Constraint] = []
    for node in nodes:
        element = unwrap(node)
        match element.DESCRIPTOR.name:
            case "ColumnDef" if not element.HasField("type_name"):
                _add_options(element, drafts, nodes, table, elements)
            case "ColumnDef":
                drafts.append(_draft(element, table, cursor, database, elements))
            case "Constraint" if element.contype == pb.CONSTR_FOREIGN:
                elements.foreign_keys.append(ForeignKeyNeed(element))
            case "Constraint":
                constraints.append(element)
            case "TableLikeClause":
                raise not_supported("CREATE TABLE … (LIKE …) is not supported", location=element.relation.location)
            case element_kind:
                raise not_supported(f"table element {element_kind} is not supported")
    return drafts, constraints


def _merge(own: Sequence[_Column], inherited: Inherited, cursor: Cursor) -> list[_Column]:
    """Return the columns of a table that inherits: first those of its parents, then its own ones that no parent has (MergeAttributes)."""
    drafts = {name: _Column(column, not_null=column.not_null or None) for name, column in inherited.columns.items()}
    places = {name: place for place, name in enumerate(drafts)}
    for place, draft in enumerate(own):
        name, above = draft.column.name, drafts.get(draft.column.name)
        if above is None:
            drafts[name] = draft
            continue
        if places[name] == place:
            inherited.notices.notice(f'merging column "{name}" with inherited definition')
        else:
            detail = "User-specified column moved to the position of the inherited column."
            inherited.notices.notice(f'moving and merging column "{name}" with inherited definition', detail=detail)
        inheritance.check_type(cursor, above.column, draft.column, "column")
        _refuse_values(above.column, draft)
        inherited.local.append(name)
        has_value = draft.default is not None or draft.generated is not None or bool(draft.column.identity)
        column = replace(above.column, identity=draft.column.identity, default=None if has_value else above.column.default)
        drafts[name] = replace(draft, column=column, not_null=above.not_null or draft.not_null)
    inheritance.refuse_conflicting(inherited, [draft.column.name for draft in own if draft.default is not None])
    return list(drafts.values())


def _refuse_values(above: Column, own: _Column) -> None:
    """Raise 42611 if a column that is generated in a parent gets its values otherwise."""
    if above.generated is None:
        return
    name = above.name
    if own.generated is not None:
        hint = "Omit the generation expression in the definition of the child table column to inherit the generation expression from the"
        raise PostgresError("42611", f'child column "{name}" specifies generation expression', hint=f"{hint} parent table.")
    if own.default is not None:
        raise PostgresError("42611", f'column "{name}" inherits from generated column but specifies default')
    if own.column.identity:
        raise PostgresError("42611", f'column "{name}" inherits from generated column but specifies identity')


def _add_options(element: pb.ColumnDef, drafts: Sequence[_Column], nodes: Sequence[pb.Node], table: str, elements: Elements) -> None:
    """Apply the options that PARTITION OF … (a DEFAULT 1, b NOT NULL) adds to a column of the parent."""
    if sum(unwrap(node).DESCRIPTOR.name == "ColumnDef" and unwrap(node).colname == element.colname for node in nodes) > 1:
        raise PostgresError("42701", f'column "{element.colname}" specified more than once')
    draft = next((candidate for candidate in drafts if candidate.column.name == element.colname), None)
    if draft is None:
        raise PostgresError("42703", f'column "{element.colname}" does not exist')
    for constraint in map(unwrap, element.constraints):
        if constraint.contype in (pb.CONSTR_IDENTITY, pb.CONSTR_GENERATED):
            values = "identity" if constraint.contype == pb.CONSTR_IDENTITY else "generated"
            raise PostgresError("0A000", f"{values} columns are not supported on partitions")
        _take(draft, constraint, table, elements)


def check(node: pb.Constraint, columns: Sequence[Column], table: str, forms: Forms) -> NewCheck:
    text, attnums = stored_expression.check(node.raw_expr, columns, table, forms)
    return NewCheck(text, node.conname or None, attnums, no_inherit=node.is_no_inherit)


def column(
    element: pb.ColumnDef, table: str, others: Sequence[Column], cursor: Cursor, database: int, forms: Forms
) -> tuple[Column, Elements]:
    """Return the column of ALTER TABLE … ADD COLUMN, numbered after `others`, with its keys, checks and sequences."""
    elements = Elements()
    draft = _draft(element, table, cursor, database, elements)
    _check_names([draft])
    attnum = max((existing.attnum for existing in others), default=0) + 1
    plain = replace(draft.column, attnum=attnum, not_null=bool(draft.not_null))
    columns = [*others, plain]
    elements.keys = _keys(draft.keys, columns, table)
    if any(key.primary for key in elements.keys):
        plain = replace(plain, not_null=True)
    generated = {existing.name for existing in others if existing.generated} | ({plain.name} if draft.generated is not None else set())
    with without_position():
        completed = _with_expressions(plain, draft, columns, table, generated, forms)
        elements.checks = [check(constraint, columns, table, forms) for constraint in draft.checks]
    return completed, elements


def _check_names(drafts: list[_Column]) -> None:
    if len(drafts) > MAX_COLUMNS:
        raise PostgresError("54011", f"tables can have at most {MAX_COLUMNS} columns")
    seen: set[str] = set()
    for draft in drafts:
        name = draft.column.name
        if name in SYSTEM_COLUMNS:
            raise PostgresError("42701", f'column name "{name}" conflicts with a system column name')
        if name in seen:
            raise PostgresError("42701", f'column "{name}" specified more than once')
        seen.add(name)


def _draft(element: pb.ColumnDef, table: str, cursor: Cursor, database: int, elements: Elements) -> _Column:
    """Convert one ColumnDef: its type and collation, and its constraints grouped by kind."""
    node = element.type_name
    last = names.strings(node.names)[-1] if node.names else ""
    serial = SERIAL.get(last) if len(node.names) == 1 and not node.array_bounds else None
    oid, typmod = (registry.by_name(serial).oid, -1) if serial else names.type_name(node)
    hold.use(cursor, "pg_type", oid)
    kind = registry.known().find(oid)
    if not storable(oid):
        raise PostgresError("42P16", f'column "{element.colname}" has pseudo-type {registry.format_type(oid)}')
    check_accepted(oid, node.location)
    if kind is not None and kind.is_array and domain.constrained(kind.element):
        raise not_supported("arrays of domains with constraints are not supported", location=node.location)
    collation = 0 if kind is None else kind.collation
    if element.HasField("coll_clause"):
        collation = _collation(element.coll_clause, oid, collation, cursor, database)
    draft = _Column(Column(0, element.colname, oid, typmod, collation=collation, dimensions=len(node.array_bounds)))
    if serial:
        elements.sequences.append(SequenceNeed(element.colname, oid, ""))
    for constraint in map(unwrap, element.constraints):
        _take(draft, constraint, table, elements)
    if serial:
        _add_serial(draft, table)
    return draft


def _add_serial(draft: _Column, table: str) -> None:
    """Add the DEFAULT and NOT NULL of a serial column, which follow the constraints that the statement has. Errors have no position."""
    if draft.default is not None:
        raise PostgresError("42601", f'multiple default values specified for column "{draft.column.name}" of table "{table}"')
    _refuse_two_values(draft, table, -1, has_default=True)
    if draft.not_null is False:
        raise _conflicting_null(draft.column.name, table, -1)
    draft.not_null = True


def check_accepted(oid: int, location: int = -1) -> None:
    """Raise 0A000 for a column of a type whose values a node does not check."""
    if not is_accepted(oid):
        raise not_supported(
            f"columns of type {registry.format_type(oid)} are not supported",
            detail="A node does not check values of this type.",
            hint="Use a column of type text.",
            location=location,
        )


def _collation(node: ParseNode, oid: int, default: int, cursor: Cursor, database: int) -> int:
    schema, name = names.split_name(node.collname)
    if not default:
        raise PostgresError("42804", f"collations are not supported by type {registry.format_type(oid)}", location=node.location)
    row = one(cursor, "SELECT oid FROM hg.pg_collation WHERE collname = ? AND dbid IN (0, ?) AND collencoding IN (-1, 6)", [name, database])
    if row is None:
        raise PostgresError(
            "42704",
            f'collation "{name if schema is None else schema + "." + name}" for encoding "UTF8" does not exist',
            location=node.location,
        )
    return int(row[0])


def _take(draft: _Column, node: pb.Constraint, table: str, elements: Elements) -> None:  # noqa: C901, PLR0912 (one case per option)
    name = draft.column.name
    match node.contype:
        case pb.CONSTR_NULL | pb.CONSTR_NOTNULL:
            not_null = node.contype == pb.CONSTR_NOTNULL
            if draft.not_null is not None and draft.not_null != not_null:
                raise _conflicting_null(name, table, node.location)
            draft.not_null = not_null
        case pb.CONSTR_DEFAULT:
            if draft.default is not None:
                message = f'multiple default values specified for column "{name}" of table "{table}"'
                raise PostgresError("42601", message, location=node.location)
            draft.default = node.raw_expr
        case pb.CONSTR_GENERATED:
            if draft.generated is not None:
                message = f'multiple generation clauses specified for column "{name}" of table "{table}"'
                raise PostgresError("42601", message, location=node.location)
            draft.generated = node.raw_expr
        case pb.CONSTR_IDENTITY:
            sequence.check_identity_type(draft.column.type_oid)
            if draft.column.identity:
                message = f'multiple identity specifications for column "{name}" of table "{table}"'
                raise PostgresError("42601", message, location=node.location)
            if draft.not_null is False:
                raise _conflicting_null(name, table, node.location)
            draft.column = replace(draft.column, identity=node.generated_when)
            draft.not_null = True
            elements.sequences.append(SequenceNeed(name, draft.column.type_oid, node.generated_when, node.options))
        case pb.CONSTR_CHECK:
            draft.checks.append(node)
        case pb.CONSTR_PRIMARY | pb.CONSTR_UNIQUE:
            draft.keys.append(_KeyOf(node, (name,)))
            draft.latest = draft.keys[-1]
        case pb.CONSTR_FOREIGN:
            elements.foreign_keys.append(ForeignKeyNeed(node, (name,)))
            draft.latest = elements.foreign_keys[-1]
        case pb.CONSTR_ATTR_DEFERRABLE | pb.CONSTR_ATTR_DEFERRED:
            if draft.latest is None:
                word = "DEFERRABLE" if node.contype == pb.CONSTR_ATTR_DEFERRABLE else "INITIALLY DEFERRED"
                raise PostgresError("42601", f"misplaced {word} clause", location=node.location)
            draft.latest.deferrable = True
            draft.latest.deferred = draft.latest.deferred or node.contype == pb.CONSTR_ATTR_DEFERRED
        case pb.CONSTR_ATTR_NOT_DEFERRABLE | pb.CONSTR_ATTR_IMMEDIATE:
            pass
        case _:
            raise not_supported("constraints of this kind are not supported", location=node.location)
    _refuse_two_values(draft, table, node.location, has_default=draft.default is not None)


def _refuse_two_values(draft: _Column, table: str, location: int, *, has_default: bool) -> None:
    """Raise 42601 if more than one of DEFAULT, IDENTITY and GENERATED gives the column its values."""
    values = {"default": has_default, "identity": bool(draft.column.identity), "generation expression": draft.generated is not None}
    given = [word for word, is_given in values.items() if is_given]
    if len(given) > 1:
        message = f'both {given[0]} and {given[1]} specified for column "{draft.column.name}" of table "{table}"'
        raise PostgresError("42601", message, location=location)


def _conflicting_null(column: str, table: str, location: int) -> PostgresError:
    return PostgresError("42601", f'conflicting NULL/NOT NULL declarations for column "{column}" of table "{table}"', location=location)


@dataclass
class _KeyOf:
    """A column's own PRIMARY KEY or UNIQUE: the constraint node and the column."""

    node: pb.Constraint
    names: tuple[str, ...]
    deferrable: bool = False
    deferred: bool = False


def key(
    node: pb.Constraint,
    columns: Sequence[Column],
    table: str,
    own: tuple[str, ...] = (),
    *,
    deferrable: bool = False,
    deferred: bool = False,
    altering: bool = False,
) -> IndexKey:
    """Return a PRIMARY KEY or UNIQUE constraint over existing columns. With `altering` (ALTER TABLE), errors have no position."""
    location = -1 if altering else node.location
    if node.contype not in (pb.CONSTR_PRIMARY, pb.CONSTR_UNIQUE):
        raise not_supported("exclusion constraints are not supported", location=node.location)
    primary = node.contype == pb.CONSTR_PRIMARY
    key_names = own or tuple(names.strings(node.keys))
    attnums: list[int] = []
    for name in key_names:
        key_column = next((candidate for candidate in columns if candidate.name == name), None)
        if key_column is None and altering and primary:  # PostgreSQL makes it NOT NULL first
            raise PostgresError("42703", f'column "{name}" of relation "{table}" does not exist')
        if key_column is None:
            raise PostgresError("42703", f'column "{name}" named in key does not exist', location=location)
        if key_column.attnum in attnums:
            kind = "primary key" if primary else "unique"
            raise PostgresError("42701", f'column "{name}" appears twice in {kind} constraint', location=node.location)
        if registry.known().base(key_column.type_oid)[0] in WITHOUT_ORDER:
            raise PostgresError(
                "42704",
                f'data type {registry.format_type(key_column.type_oid)} has no default operator class for access method "btree"',
                hint="You must specify an operator class for the index or define a default operator class for the data type.",
            )
        attnums.append(key_column.attnum)
    included = []
    for name in names.strings(node.including):
        key_column = next((candidate for candidate in columns if candidate.name == name), None)
        if key_column is None:
            raise PostgresError("42703", f'column "{name}" named in key does not exist', location=location)
        included.append(key_column.attnum)
    return IndexKey(
        tuple(attnums), primary=primary, name=node.conname or None, deferrable=node.deferrable or node.initdeferred or deferrable,
        deferred=node.initdeferred or deferred, included=tuple(included), nulls_not_distinct=node.nulls_not_distinct,
    )  # fmt: skip


def _keys(nodes: Sequence[pb.Constraint | _KeyOf], columns: Sequence[Column], table: str) -> list[IndexKey]:
    keys: list[IndexKey] = []
    for node in nodes:
        if isinstance(node, _KeyOf):
            inner = node.node
            new = key(inner, columns, table, node.names, deferrable=node.deferrable, deferred=node.deferred)
        else:
            inner, new = node, key(node, columns, table)
        if new.primary and any(existing_key.primary for existing_key in keys):
            message = f'multiple primary keys for table "{table}" are not allowed'
            raise PostgresError("42P16", message, location=inner.location)
        keys.append(new)
    keys.sort(key=lambda index_key: not index_key.primary)
    return _without_redundant(keys)


def _without_redundant(keys: Sequence[IndexKey]) -> list[IndexKey]:
    """Return the keys of a definition without those that equal an earlier one. It takes their name if it has none."""
    kept: list[IndexKey] = []
    for key in keys:
        plain = replace(key, name=None, primary=False)
        place = next((place for place, earlier in enumerate(kept) if replace(earlier, name=None, primary=False) == plain), None)
        if place is None:
            kept.append(key)
        else:
            kept[place] = replace(kept[place], name=kept[place].name or key.name)
    return kept


def _with_expressions(plain: Column, draft: _Column, columns: Sequence[Column], table: str, generated: set[str], forms: Forms) -> Column:
    if draft.generated is not None:
        return replace(plain, generated=stored_expression.generated(draft.generated, columns, table, plain, generated, forms))
    if draft.default is not None:
        return replace(plain, default=stored_expression.default(draft.default, plain, forms))
    return plain
