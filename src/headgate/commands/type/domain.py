"""CREATE DOMAIN and ALTER DOMAIN. DROP DOMAIN is handled like DROP TYPE (`user_type`).

A column of a domain is stored as one of the base type. Its constraints are checked with those of the table (`row_constraint`), and in
casts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from postgast import pg_query_pb2 as pb
from pyspark.sql import functions as F

from headgate.catalog import hold
from headgate.catalog import user_type as types
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import lookup, privilege, stored_expression
from headgate.commands.query import rendering, row_by_row
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import table_definition
from headgate.commands.type import user_type
from headgate.errors import PostgresError, existing, not_supported
from headgate.expression.binding import binder
from headgate.expression.deparsing import deparse
from headgate.expression.node import Const, TypeRef
from headgate.expression.spark import compiler
from headgate.expression.spark import domain as compile_domain
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.spark.column_name import quoted
from headgate.types import registry
from headgate.types.text_column import TextSettings as Forms

Default = tuple[str, str] | tuple[None, None]
"""The stored text of a domain's DEFAULT, and pg_type.typdefault, which shows the names of the time when the default was made."""

_REFUSED = {
    pb.CONSTR_UNIQUE: "unique constraints not possible for domains",
    pb.CONSTR_PRIMARY: "primary key constraints not possible for domains",
    pb.CONSTR_EXCLUSION: "exclusion constraints not possible for domains",
    pb.CONSTR_FOREIGN: "foreign key constraints not possible for domains",
}


def create(node: pb.CreateDomainStmt, session: Session) -> CommandResult:
    """Execute CREATE DOMAIN name AS type [DEFAULT …] [NOT NULL | NULL] [CHECK …]."""
    try:
        return _create(node, session)
    except PostgresError as error:
        error.position = None  # PostgreSQL creates a domain without the text of the statement
        raise


def _create(node: pb.CreateDomainStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    schema, name = names.split_name(node.domainname, context.database_name)
    place, _ = lookup.creation_schema(cursor, context, schema or "")
    types.require_free(cursor, context.database, place, name)
    oid, modifier = names.type_name(node.type_name)
    hold.use(cursor, "pg_type", oid)
    base = registry.known().by_oid(oid)
    if base.kind is registry.TypeKind.PSEUDO:
        raise PostgresError("42804", f'"{base.name}" is not a valid base type for a domain')
    table_definition.check_accepted(oid)
    if node.HasField("coll_clause"):
        raise not_supported("collations of domains are not supported")
    value = TypeRef(oid, modifier, base.collation)
    domain = types.Domain(oid, modifier, *_constraints(node.constraints, value, name, context.forms))
    if all(unwrap(clause).contype != pb.CONSTR_DEFAULT for clause in node.constraints):
        domain = replace(domain, default=types.default_of(cursor, context.database, oid))
    owner = privilege.used_role(cursor, context.user)
    types.create_domain(cursor, transaction.catalog.next_oid, context.database, place, name, owner, domain)
    user_type.changed(session)
    return CommandResult("CREATE DOMAIN")


def _constraints(nodes: Iterable[pb.Node], value: TypeRef, name: str, forms: Forms) -> tuple[bool, Default, list[tuple[str | None, str]]]:
    """Return (NOT NULL, default, checks) of the clauses."""
    null: bool | None = None
    default: Default = (None, None)
    checks: list[tuple[str | None, str]] = []
    for clause in map(unwrap, nodes):
        if clause.contype in (pb.CONSTR_NULL, pb.CONSTR_NOTNULL):
            is_null = clause.contype == pb.CONSTR_NULL
            if null is not None and null != is_null:
                raise PostgresError("42601", "conflicting NULL/NOT NULL constraints")
            null = is_null
        elif clause.contype == pb.CONSTR_DEFAULT:
            if default[0] is not None:
                raise PostgresError("42601", "multiple default expressions")
            default = _default(clause.raw_expr, value, name, forms)
        elif clause.contype == pb.CONSTR_CHECK:
            checks.append((clause.conname or None, _check(clause.raw_expr, value, forms)))
        else:
            raise PostgresError("42601", _REFUSED.get(clause.contype, "specifying constraint deferrability not supported for domains"))
    return null is False, default, checks


def _default(node: ParseNode, value: TypeRef, name: str, forms: Forms) -> Default:
    bound = binder.bind_default(
        node, value, name, context=stored_expression.context(forms).within(refuse_subquery="cannot use subquery in DEFAULT expression")
    )
    return (None, None) if isinstance(bound, Const) and bound.value is None else (deparse.stored(bound), deparse.deparse(bound))


def _check(node: ParseNode, value: TypeRef, forms: Forms) -> str:
    context = stored_expression.context(forms).within(refuse_subquery="cannot use subquery in check constraint")
    bound = compile_domain.bind_check(node, value, context)
    row_by_row.refuse(bound)
    compiler.check(bound)
    return deparse.stored(bound)


def alter(node: pb.AlterDomainStmt, session: Session) -> CommandResult:
    """Execute ALTER DOMAIN: SET and DROP DEFAULT, SET and DROP NOT NULL, ADD, DROP and VALIDATE CONSTRAINT."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    domain = _find_owned(node.type_name, session, cursor)
    match node.subtype:
        case "T":
            expression_node = getattr(node, "def")
            has_default = expression_node.WhichOneof("node") is not None
            default = _default(expression_node, _base(domain), domain.name, context.forms) if has_default else (None, None)
            for column, text in zip(("typdefaultbin", "typdefault"), default, strict=True):
                types.set_column(cursor, context.database, domain.oid, column, text)
        case "N":
            types.set_column(cursor, context.database, domain.oid, "typnotnull", False)
        case "O":
            types.set_column(cursor, context.database, domain.oid, "typnotnull", True)
            _check_rows(session, cursor, domain, None)
        case "C":
            _add_check(unwrap(getattr(node, "def")), session, cursor, domain)
        case "V":
            check = types.find_check(cursor, context.database, domain.oid, node.name)
            oid, is_valid = existing(check, "42704", f'constraint "{node.name}" of domain "{domain.name}"')
            if not is_valid:
                _check_rows(session, cursor, domain, node.name)
                types.change_check(cursor, context.database, oid, convalidated=True)
        case "X":
            if not types.drop_check(cursor, context.database, domain.oid, node.name):
                message = f'constraint "{node.name}" of domain "{domain.name}" does not exist'
                session.notices.skip(PostgresError("42704", message), allowed=node.missing_ok)
        case _:
            raise not_supported("this ALTER DOMAIN is not supported")
    user_type.changed(session)
    return CommandResult("ALTER DOMAIN")


def rename_check(node: pb.RenameStmt, session: Session) -> CommandResult:
    """Execute ALTER DOMAIN … RENAME CONSTRAINT."""
    cursor, database = session.begin_statement().cursor, session.context.database
    domain = _find_owned(unwrap(node.object).items, session, cursor)
    shown = registry.known().by_oid(domain.oid).plain
    check = types.find_check(cursor, database, domain.oid, node.subname)
    oid, _ = existing(check, "42704", f'constraint "{node.subname}" for domain {shown}')
    if types.find_check(cursor, database, domain.oid, node.newname):
        raise PostgresError("42710", f'constraint "{node.newname}" for domain {shown} already exists')
    types.change_check(cursor, database, oid, conname=node.newname)
    user_type.changed(session)
    return CommandResult("ALTER DOMAIN")


def _find_owned(parts: Iterable[pb.Node], session: Session, cursor: Cursor) -> types.TypeRow:
    """Return the domain with a name, locked. Raise 42704 or 42809 if there is no such domain, 42501 if the role does not own it."""
    domain = user_type.find(parts, session, cursor)
    assert domain is not None
    if domain.kind != "d":
        raise PostgresError("42809", f"{domain.name} is not a domain")
    privilege.check_owner(cursor, session.context.user, domain.owner, "domain", domain.name)
    session.begin_statement().catalog.lock_object("pg_type", domain.oid)
    return domain


def _base(domain: types.TypeRow) -> TypeRef:
    return TypeRef(*registry.known().base(domain.oid), registry.known().by_oid(domain.oid).collation)


def _add_check(node: ParseNode, session: Session, cursor: Cursor, domain: types.TypeRow) -> None:
    if node.contype != pb.CONSTR_CHECK:
        raise PostgresError("42601", _REFUSED.get(node.contype, "unrecognized constraint subtype"))
    database, oids = session.context.database, session.begin_statement().catalog.next_oid
    name = node.conname or types.check_name(cursor, database, domain.oid, domain.name)
    text = _check(node.raw_expr, _base(domain), session.context.forms)
    types.add_check(cursor, oids, database, domain.oid, domain.namespace, name, text, validated=not node.skip_validation)
    if not node.skip_validation:
        _check_rows(session, cursor, domain, name)


def _check_rows(session: Session, cursor: Cursor, type_row: types.TypeRow, check: str | None) -> None:
    """Raise 23514 if a column of the domain, or of a domain over it, has a value that violates a CHECK, or 23502 for a NULL if it is None.

    Raise 0A000, as PostgreSQL does, for a column that contains values of the domain inside others, because their elements are not checked.
    """
    user_type.changed(session)
    transaction, database = session.begin_statement(), session.context.database
    domains, containers = _uses(cursor, database, type_row)
    for oid, name, _ in types.columns_of(cursor, database, containers):
        relation = relations.get(cursor, database, oid)
        raise not_supported(f'cannot alter type "{type_row.name}" because column "{relation.name}.{name}" uses it')
    for oid, name, _ in types.columns_of(cursor, database, domains):
        relation = relations.get(cursor, database, oid)
        if relation.kind != RelationKind.TABLE:
            continue
        transaction.lock(relation, alone=True)
        with rendering.running(session, transaction):
            with transaction.snapshot.seeing_newest():
                frame, column = transaction.reader.frame(relation), F.col(quoted(name))
            if check is None:
                failing, sqlstate, message = [column.isNull()], "23502", "contains null values"
            else:
                failing = [failed for failed, _ in compile_domain.violations(type_row.oid, compiler.plan, check)(column)]
                sqlstate, message = "23514", "contains values that violate the new constraint"
            for failed in failing:
                if not frame.where(failed).limit(1).isEmpty():
                    message = f'column "{name}" of table "{relation.name}" {message}'
                    raise PostgresError(sqlstate, message, schema=relation.schema, table=relation.name, column=name)


def _uses(cursor: Cursor, database: int, type_row: types.TypeRow) -> tuple[list[int], list[int]]:
    """Return the domain and the domains over it, and the types that contain their values: arrays, composite types, domains over those."""
    domains, containers, pending = [type_row.oid], [type_row.array], [type_row]
    while pending:
        current = pending.pop()
        for over in types.domains_over(cursor, database, [current.oid]):
            (containers if current.oid in containers else domains).append(over.oid)
            containers.append(over.array)
            pending.append(over)
        inside = types.domains_over(cursor, database, [current.array]) if current.array else []
        inside += types.composites_with(cursor, database, [current.oid, current.array])
        containers += [oid for over in inside for oid in (over.oid, over.array)]
        pending += inside
    return domains, containers
