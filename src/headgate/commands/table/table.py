"""CREATE TABLE and TRUNCATE.

CREATE TABLE … WITH (location = …) makes an existing Delta table a table of the node, without a copy of its rows. CREATE
TABLE … (LIKE t INCLUDING …) replaces the clause by the column definitions and constraints that it stands for, before the elements are read
(expandTableLikeClause in parse_utilcmd.c). Indexes and comments become statements that are executed after the table has been created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import history, hold
from headgate.catalog.physical import one, rows
from headgate.catalog.relation import definition
from headgate.catalog.relation import foreign_key as foreign_keys
from headgate.catalog.relation import inheritance as catalog_inheritance
from headgate.catalog.relation import partition as catalog_partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.definition import Definition
from headgate.catalog.relation.partition import Bound
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.catalog.replication import subscription_history
from headgate.commands import default_privilege, lookup, privilege, storage_parameter, table_in_use, temporary_schema
from headgate.commands.partition import partition, partition_index
from headgate.commands.query import rendering
from headgate.commands.result import CommandResult
from headgate.commands.sequence import sequence, sequence_owner
from headgate.commands.session import Session
from headgate.commands.storage_parameter import LOCATION
from headgate.commands.table import foreign_key, inheritance, rewrite_table, table_definition
from headgate.commands.table import temporary as temporary_tables
from headgate.commands.table.inheritance import Inherited
from headgate.commands.table.table_definition import Elements, SequenceNeed
from headgate.commands.trigger.firing import Firing
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse, position, unwrap
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry

_ON_COMMIT = {pb.ONCOMMIT_DELETE_ROWS: temporary_tables.DELETE_ROWS, pb.ONCOMMIT_DROP: temporary_tables.DROP}


_GROUPS = ("pg_read_server_files", "pg_write_server_files")


_SOURCES = TABLE_KINDS | {RelationKind.VIEW, RelationKind.MATERIALIZED_VIEW, RelationKind.FOREIGN_TABLE, RelationKind.COMPOSITE_TYPE}
"""Kinds of relations that LIKE accepts as a source."""
COMMENTS, CONSTRAINTS, DEFAULTS, GENERATED, IDENTITY, INDEXES = 1 << 0, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6
"""Bits of TableLikeClause.options (CREATE_TABLE_LIKE_*)."""


@dataclass(frozen=True)
class _Place:
    """The schema in which a table is created: its oid and name."""

    namespace: int
    schema: str
    is_temporary: bool


@dataclass(frozen=True)
class _NewTable:
    """A table that is about to be created: its statement, and what this names. `sequence_oids`: the sequences that it owns, by column."""

    node: pb.CreateStmt
    place: _Place
    owner: int
    options: list[str]
    parent: Relation | None
    inherited: Inherited
    elements: Elements
    sequence_oids: Mapping[str, int]
    bound: Bound | None


def create(node: pb.CreateStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    _refuse_unsupported(node)
    target = node.relation
    place = _place(node, session, transaction)
    if node.if_not_exists and relations.find_oid(cursor, context.database, place.schema, target.relname) is not None:
        session.notices.notice(f'relation "{target.relname}" already exists, skipping', sqlstate="42P07")
        return CommandResult("CREATE TABLE")
    options = storage_parameter.read(node.options, "p" if node.HasField("partspec") else "r")
    _check_external(node, options, session)
    node, later = _expand_likes(node, session)
    table = _read(node, place, options, session, transaction)
    relation = _store(table, session, transaction)
    _complete(table, relation, session, transaction)
    for text in later:
        [statement] = parse(text)
        session.parts.run_statement(statement.node, session)
    transaction.catalog_changed(history.touched(relations.get(cursor, context.database, relation.oid)))
    return CommandResult("CREATE TABLE")


def _read(node: pb.CreateStmt, place: _Place, options: list[str], session: Session, transaction: Transaction) -> _NewTable:
    """Look up what the statement names, and create the sequences of its columns, which their defaults may name."""
    cursor, context, name = transaction.cursor, session.context, node.relation.relname
    parent = partition.parent_of(node, session, transaction) if node.HasField("partbound") else None
    inherited = inheritance.of_statement(node, session, transaction)
    owner = privilege.used_role(cursor, context.user)
    sequence_oids: dict[str, int] = {}

    def create_sequences(needs: Sequence[SequenceNeed]) -> None:
        sequence_oids.update(_create_sequences(needs, name, place.namespace, owner, transaction))

    above = parent.columns if parent else inherited
    elements = table_definition.read(node.table_elts, name, cursor, context.database, context.forms, above, create_sequences)
    if relations.find_oid(cursor, context.database, place.schema, name) is not None:
        raise PostgresError("42P07", f'relation "{name}" already exists')
    bound = partition.new_bound(node.partbound, name, parent, session, transaction) if parent else None
    for declared in elements.foreign_keys:
        foreign_key.use_target(declared, session, transaction)
    return _NewTable(node, place, owner, options, parent, inherited, elements, sequence_oids, bound)


def _store(table: _NewTable, session: Session, transaction: Transaction) -> Relation:
    """Write the rows of the catalogs, and make the table's folder. Its keys follow in `_complete`."""
    cursor, context, node, elements = transaction.cursor, session.context, table.node, table.elements
    key = partition.key(node.partspec, elements.columns, cursor) if node.HasField("partspec") else None
    serial = {need.column for need in elements.sequences if not need.identity}
    columns = [
        replace(column, default=sequences.next_value(table.sequence_oids[column.name])) if column.name in serial else column
        for column in elements.columns
    ]
    above = [(check, table.parent) for check in table.parent.checks] if table.parent else list(table.inherited.checks.values())
    name = node.relation.relname
    new = Definition(
        table.place.namespace, name, columns, table.owner, kind=RelationKind.PARTITIONED_TABLE if key else RelationKind.TABLE,
        persistence="t" if table.place.is_temporary else node.relation.relpersistence or "p", partition_key=key, options=table.options,
        checks=inheritance.merged_checks(above, elements.checks, columns, name, session.notices),
    )  # fmt: skip
    relation = definition.create(cursor, transaction.catalog.next_oid, context.database, new)
    if key is not None:
        catalog_partition.write_ancestors(cursor, context.database)
    for need in elements.sequences:
        column = relation.column(need.column)
        assert column is not None
        oid = table.sequence_oids[need.column]
        sequence_owner.own(cursor, context.database, oid, relation.oid, column.attnum, identity=bool(need.identity))
    if table.inherited.parents:
        table.inherited.record(cursor, relation, [check.name for check in elements.checks if check.name])
    if relation.kind == RelationKind.TABLE:
        transaction.ddl.create(relation)
    return relation


def _complete(table: _NewTable, relation: Relation, session: Session, transaction: Transaction) -> None:
    """Make the table a partition, check the rows of an external one, and add keys, default privileges and foreign keys."""
    cursor, database = transaction.cursor, session.context.database
    if table.parent is not None and table.bound is not None:
        with rendering.running(session, transaction):
            partition.join(transaction, table.parent, relation, table.bound)
        relation = relations.get(cursor, database, relation.oid)
    is_external = relation.option(storage_parameter.LOCATION) is not None
    if is_external:
        check_external_rows(session, transaction, relation)
    for index_key in table.elements.keys:
        partition_index.add(transaction, relation, index_key)
        relation = relations.get(cursor, database, relation.oid)
    default_privilege.apply_default(cursor, relation, session.context.user)
    if table.place.is_temporary:
        at_commit = _ON_COMMIT.get(table.node.oncommit, temporary_tables.PRESERVE)
        temporary_tables.at_commit(session, transaction, relation, at_commit)
    for declared in table.elements.foreign_keys:
        foreign_key.add(declared, relations.get(cursor, database, relation.oid), session, transaction, check=is_external)


def _place(node: pb.CreateStmt, session: Session, transaction: Transaction) -> _Place:
    """Return the schema of the new table. Raise an error if the role must not create a table there."""
    cursor, context, target = transaction.cursor, session.context, node.relation
    temporary = temporary_schema.wanted(target)
    if temporary:
        namespace, schema = temporary_schema.schema(session, transaction)
    else:
        if node.oncommit > pb.ONCOMMIT_NOOP:
            raise PostgresError("42P16", "ON COMMIT can only be used on temporary tables")
        try:
            namespace, schema = lookup.creation_schema(cursor, context, target.schemaname)
        except PostgresError as error:
            error.position = position(target.location)
            raise
    if schema == "pg_catalog":
        raise PostgresError(
            "42501",
            f'permission denied to create "pg_catalog.{target.relname}"',
            detail="System catalog modifications are currently disallowed.",
        )
    return _Place(namespace, schema, temporary)


def _create_sequences(needs: Sequence[SequenceNeed], table: str, namespace: int, owner: int, transaction: Transaction) -> dict[str, int]:
    """Create the sequences of serial and identity columns, in the schema of the table. Return their oids by column."""
    cursor, database, next_oid = transaction.cursor, transaction.database, transaction.catalog.next_oid
    oids = {}
    for need in needs:
        name = sequence.owned_name(cursor, database, namespace, table, need.column)
        oids[need.column] = sequence.create(cursor, next_oid, database, namespace, name, owner, need.type_oid, need.options)
    return oids


def _refuse_unsupported(node: pb.CreateStmt) -> None:
    if node.inh_relations and node.HasField("partspec") and not node.HasField("partbound"):
        raise PostgresError("42P17", "cannot create partitioned table as inheritance child")
    if node.HasField("of_typename"):
        raise not_supported("typed tables are not supported")
    if node.access_method not in ("", "heap"):
        raise PostgresError("42704", f'access method "{node.access_method}" does not exist')
    if node.tablespacename not in ("", "pg_default"):
        raise PostgresError("42704", f'tablespace "{node.tablespacename}" does not exist')


def truncate(node: pb.TruncateStmt, session: Session) -> CommandResult:
    """Execute TRUNCATE a, b [RESTART IDENTITY] [CASCADE]."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    tables: dict[int, Relation] = {}
    for item in node.relations:
        target = unwrap(item)
        relation = lookup.table(cursor, context, target)
        privilege.refuse_system(relation)
        privilege.check_table(cursor, context.user, context.database, relation.oid, relation.name, "TRUNCATE")
        if relation.is_partitioned and not target.inh:
            raise PostgresError(
                "42809",
                "cannot truncate only a partitioned table",
                hint="Do not specify the ONLY keyword, or use TRUNCATE ONLY on the partitions directly.",
            )
        subscription_history.refuse_change(cursor, relation.database, relation.oid, relation.name, "truncate")
        tables.setdefault(relation.oid, relation)
        for oid in relations.descendants(cursor, context.database, relation.oid):
            tables.setdefault(oid, relations.get(cursor, context.database, oid))
        for child in catalog_inheritance.below(cursor, relation) if target.inh else ():
            tables.setdefault(child.oid, child)
    cascade = node.behavior == pb.DROP_CASCADE
    _truncate_referencing(tables, session, transaction, cascade=cascade)
    for relation in tables.values():
        table_in_use.check(session, cursor, relation, "TRUNCATE")
    firings = [Firing(session, relation) for relation in tables.values() if relation.has_triggers]
    for firing in firings:
        firing.statement(triggers.TRUNCATE, before=True)
    transaction.truncate(list(tables.values()), restart_identity=node.restart_seqs, cascade=cascade)
    for firing in firings:
        firing.statement(triggers.TRUNCATE, before=False)
    if node.restart_seqs:
        for relation in tables.values():
            sequences.restart_owned(cursor, context.database, relation.oid, transaction.catalog.lock_object)
    return CommandResult("TRUNCATE TABLE")


def _truncate_referencing(tables: dict[int, Relation], session: Session, transaction: Transaction, *, cascade: bool) -> None:
    """With CASCADE, add the tables whose foreign keys reference one of `tables`. Otherwise raise an error unless they are in it."""
    cursor, context = transaction.cursor, session.context
    if not cascade:
        foreign_keys.check_truncate(cursor, list(tables.values()))
        return
    pending = list(tables.values())
    while pending:
        relation = pending.pop(0)
        referencing_oids = {key.relation for key in relation.referenced}
        parts = [part for oid in referencing_oids for part in relations.descendants(cursor, context.database, oid)]
        for oid in sorted({*referencing_oids, *parts} - set(tables)):
            referencing = relations.get(cursor, context.database, oid)
            session.notices.notice(f'truncate cascades to table "{referencing.name}"')
            privilege.check_table(cursor, context.user, context.database, referencing.oid, referencing.name, "TRUNCATE")
            tables[oid] = referencing
            pending.append(referencing)


def _check_external(node: pb.CreateStmt, options: Sequence[str], session: Session) -> None:
    """Raise 42501 unless the role may name a location, 0A000 for a kind of table that cannot have one."""
    if not any(option.startswith(f"{LOCATION}=") for option in options):
        return
    cursor, user = session.begin_statement().cursor, session.context.user
    if not all(privilege.is_member(cursor, user, group) for group in _GROUPS):
        message = f"must be superuser or have privileges of the {_GROUPS[0]} and {_GROUPS[1]} roles to name the location of a table"
        raise PostgresError("42501", message)
    if node.HasField("partbound"):
        raise not_supported("a partition cannot have a location", hint="Create the table, then use ALTER TABLE ... ATTACH PARTITION.")
    if temporary_schema.wanted(node.relation) or node.relation.relpersistence == "u":
        raise not_supported("only a permanent table can have a location")


def check_external_rows(session: Session, transaction: Transaction, relation: Relation) -> None:
    """Raise 23502 or 23514 if an existing row violates NOT NULL or a CHECK constraint. Keys are checked when they are added."""
    for column in relation.columns:
        if column.not_null:
            rewrite_table.check_no_nulls(transaction, relation, column)
    for constraint in relation.checks:
        rewrite_table.check_rows(session, transaction, relation, constraint)


def _expand_likes(node: pb.CreateStmt, session: Session) -> tuple[pb.CreateStmt, list[str]]:
    """Return (the statement without LIKE, the statements to execute after it). A statement without LIKE is returned unchanged."""
    if not any(unwrap(element_node).DESCRIPTOR.name == "TableLikeClause" for element_node in node.table_elts):
        return node, []
    expanded = pb.CreateStmt()
    expanded.CopyFrom(node)
    del expanded.table_elts[:]
    later: list[str] = []
    for item in node.table_elts:
        element = unwrap(item)
        if element.DESCRIPTOR.name != "TableLikeClause":
            expanded.table_elts.add().CopyFrom(item)
            continue
        [parsed] = parse(f"CREATE TABLE x ({', '.join(_elements(element, session, node.relation, later))})")
        for element_node in parsed.node.table_elts:
            expanded.table_elts.add().CopyFrom(element_node)
    return expanded, later


def _elements(clause: pb.TableLikeClause, session: Session, target: ParseNode, later: list[str]) -> list[str]:
    cursor, context = session.begin_statement().cursor, session.context
    source = lookup.source(cursor, context, clause.relation)
    hold.use(cursor, "pg_class", source.oid)
    if source.kind not in _SOURCES:
        raise PostgresError(
            "42809",
            f'relation "{source.name}" is invalid in LIKE clause',
            detail=f"This operation is not supported for {lookup.PLURALS[source.kind]}.",
            location=clause.relation.location,
        )
    privilege.check_columns(cursor, context.user, source, "SELECT", [column.attnum for column in source.columns])
    options = clause.options
    elements = [_column(session, source, column, options) for column in source.columns]
    if options & CONSTRAINTS:
        elements += [
            f"CONSTRAINT {names.quote_ident(check.name)} CHECK ({check.expression}){' NO INHERIT' if check.no_inherit else ''}"
            for check in source.checks
        ]
    if options & INDEXES:
        elements += _keys(source)
        later += _indexes(session, source, target)
    if options & COMMENTS:
        later += _comments(session, source, target)
    return elements


def _column(session: Session, source: Relation, column: Column, options: int) -> str:
    cursor = session.begin_statement().cursor
    brackets = "[]" * (column.dimensions - 1)  # more than one pair means how an array is stored (array_storage)
    text = f"{names.quote_ident(column.name)} {registry.known().format_type(column.type_oid, column.typmod)}{brackets}"
    if column.collation != registry.known().by_oid(column.type_oid).collation:
        [[collation]] = rows(cursor, "SELECT collname FROM hg.pg_collation WHERE oid = ?", [column.collation])
        text += f" COLLATE {names.quote_ident(collation)}"
    if column.not_null:
        text += " NOT NULL"
    if column.generated is not None and options & GENERATED:
        text += f" GENERATED ALWAYS AS ({column.generated}) STORED"
    elif column.default is not None and options & DEFAULTS:
        text += f" DEFAULT {column.default}"
    if column.identity and options & IDENTITY:
        sequence_row = one(
            cursor,
            "SELECT s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle"
            " FROM hg.pg_depend d JOIN hg.pg_sequence s ON s.seqrelid = d.objid AND s.dbid = d.dbid"
            " WHERE d.dbid = ? AND d.refobjid = ? AND d.refobjsubid = ? AND d.deptype = 'i'",
            [source.database, source.oid, column.attnum],
        )
        word = "ALWAYS" if column.identity == "a" else "BY DEFAULT"
        text += f" GENERATED {word} AS IDENTITY"
        if sequence_row is not None:
            start, increment, minimum, maximum, cache, cycle = sequence_row
            text += f" (START WITH {start} INCREMENT BY {increment} MINVALUE {minimum} MAXVALUE {maximum}"
            text += f" CACHE {cache}{' CYCLE' if cycle else ''})"
    return text


def _keys(source: Relation) -> list[str]:
    keys = []
    for index in source.indexes:
        if not index.constraint:
            continue
        word = "PRIMARY KEY" if index.primary else "UNIQUE NULLS NOT DISTINCT" if index.nulls_not_distinct else "UNIQUE"
        text = f"{word} ({_column_list(source, index.attnums)})"
        text += f" INCLUDE ({_column_list(source, index.included)})" if index.included else ""
        keys.append(text + (" DEFERRABLE" if index.deferrable else "") + (" INITIALLY DEFERRED" if index.deferred else ""))
    return keys


def _column_list(source: Relation, attnums: tuple[int, ...]) -> str:
    return ", ".join(names.quote_ident(column.name) for column in source.columns_at(attnums))


def _indexes(session: Session, source: Relation, target: pb.RangeVar) -> list[str]:
    cursor = session.begin_statement().cursor
    statements = []
    for index in source.indexes:
        if index.constraint:
            continue
        row = one(
            cursor,
            "SELECT hg.expression_out(i.indkeytext, i.dbid, []), i.indincludetext, i.indpred, i.indnullsnotdistinct, m.amname"
            " FROM hg.pg_index i JOIN hg.pg_class c ON c.oid = i.indexrelid AND c.dbid = i.dbid LEFT JOIN hg.pg_am m ON m.oid = c.relam"
            " WHERE i.dbid = ? AND i.indexrelid = ?",
            [source.database, index.oid],
        )
        assert row is not None
        key, included, predicate, nulls, method = row
        table = names.qualified(target.schemaname or None, target.relname)
        text = f"CREATE {'UNIQUE ' if index.unique else ''}INDEX ON {table} USING {method or 'btree'} ({key})"
        text += f" INCLUDE ({included})" if included else ""
        text += " NULLS NOT DISTINCT" if nulls else ""
        statements.append(text + (f" WHERE {predicate}" if predicate else ""))
    return statements


def _comments(session: Session, source: Relation, target: pb.RangeVar) -> list[str]:
    cursor = session.begin_statement().cursor
    statements = []
    for attnum, text in rows(
        cursor,
        "SELECT objsubid, description FROM hg.pg_description WHERE dbid = ? AND objoid = ? AND classoid = 1259 AND objsubid > 0",
        [source.database, source.oid],
    ):
        column = source.numbered(attnum)
        if column is not None:
            name = f"{names.qualified(target.schemaname or None, target.relname)}.{names.quote_ident(column.name)}"
            statements.append(f"COMMENT ON COLUMN {name} IS {names.quote_literal(text)}")
    return statements
