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
from headgate.errors import PostgresError, not_supported
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
    domain_row = user_type.find(node.type_name, session, cursor)
    assert domain_row is not None
    if domain_row.kind != "d":
        raise PostgresError("42809", f"{domain_row.name} is not a domain")
    privilege.check_owner(cursor, context.user, domain_row.owner, "domain", domain_row.name)
    transaction.catalog.lock_object("pg_type", domain_row.oid)
    kind = registry.known().by_oid(domain_row.oid)
    value = TypeRef(*registry.known().base(domain_row.oid), kind.collation)
    match node.subtype:
        case "T":
            expression_node = getattr(node, "def")
            has_default = expression_node.WhichOneof("node") is not None
            default = _default(expression_node, value, domain_row.name, context.forms) if has_default else (None, None)
            for column, text in zip(("typdefaultbin", "typdefault"), default, strict=True):
                types.set_column(cursor, context.database, domain_row.oid, column, text)
        case "N":
            types.set_column(cursor, context.database, domain_row.oid, "typnotnull", False)
        case "O":
            types.set_column(cursor, context.database, domain_row.oid, "typnotnull", True)
        case "C":
            constraint = unwrap(getattr(node, "def"))
            if constraint.contype != pb.CONSTR_CHECK:
                raise PostgresError("42601", _REFUSED.get(constraint.contype, "unrecognized constraint subtype"))
            oid, namespace, oids = domain_row.oid, domain_row.namespace, transaction.catalog.next_oid
            name = constraint.conname or types.check_name(cursor, context.database, oid, domain_row.name)
            text = _check(constraint.raw_expr, value, context.forms)
            types.add_check(cursor, oids, context.database, oid, namespace, name, text)
        case "X":
            if not types.drop_check(cursor, context.database, domain_row.oid, node.name):
                message = f'constraint "{node.name}" of domain "{domain_row.name}" does not exist'
                session.notices.skip(PostgresError("42704", message), allowed=node.missing_ok)
        case _:
            raise not_supported("this ALTER DOMAIN is not supported")
    user_type.changed(session)
    if node.subtype in ("O", "C"):
        with rendering.running(session, transaction):
            _check_rows(session, cursor, domain_row)
    return CommandResult("ALTER DOMAIN")


def _check_rows(session: Session, cursor: Cursor, type_row: types.TypeRow) -> None:
    """Raise 23502 or 23514 if a column of the domain, or of a domain over it, has a value that violates the changed domain.

    Raise 0A000, as PostgreSQL does, for a column that contains values of the domain inside others, because their elements are not checked.
    """
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
        with transaction.snapshot.seeing_newest():
            frame, column = transaction.reader.frame(relation), F.col(quoted(name))
        if registry.known().by_oid(type_row.oid).not_null and not frame.where(column.isNull()).limit(1).isEmpty():
            raise PostgresError("23502", f'column "{name}" of table "{relation.name}" contains null values')
        for failed, _message in compile_domain.violations(type_row.oid, compiler.plan)(column):
            if not frame.where(failed).limit(1).isEmpty():
                raise PostgresError("23514", f'column "{name}" of table "{relation.name}" contains values that violate the new constraint')


def _uses(cursor: Cursor, database: int, type_row: types.TypeRow) -> tuple[list[int], list[int]]:
    """Return the domain and the domains over it, and the types that contain their values: arrays of them, and domains over those."""
    domains, containers, pending = [type_row.oid], [type_row.array], [type_row]
    while pending:
        current = pending.pop()
        inside = current.oid in containers
        for over in types.domains_over(cursor, database, [current.oid]):
            (containers if inside else domains).append(over.oid)
            containers.append(over.array)
            pending.append(over)
        for over in types.domains_over(cursor, database, [current.array]):
            containers += [over.oid, over.array]
            pending.append(over)
    return domains, containers
