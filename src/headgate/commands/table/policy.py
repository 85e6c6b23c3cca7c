"""CREATE, ALTER and DROP POLICY (policy.c).

Policies are rows of pg_policy (`catalog.security.policy`). `commands.query.row_security` decides which of them a statement must meet.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor, insert, run, update
from headgate.catalog.relation.relation import Relation
from headgate.catalog.security.policy import ALL, DELETE, INSERT, SELECT, UPDATE, Policy, of_relation, remove
from headgate.commands import dependency, lookup, privilege, stored_expression
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing
from headgate.expression.binding import binder
from headgate.expression.deparsing import deparse
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap

_COMMANDS = {"select": SELECT, "insert": INSERT, "update": UPDATE, "delete": DELETE, "all": ALL}


def create(node: pb.CreatePolicyStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    relation = _table(node.table, session, cursor)
    transaction.catalog.lock_object("pg_class", relation.oid)
    command = _COMMANDS[node.cmd_name]
    if command == INSERT and node.HasField("qual"):
        raise PostgresError("42601", "only WITH CHECK expression allowed for INSERT")
    if command in (SELECT, DELETE) and node.HasField("with_check"):
        raise PostgresError("42601", "WITH CHECK cannot be applied to SELECT or DELETE")
    _check_new(cursor, relation, node.policy_name)
    insert(
        cursor, "pg_policy", dbid=context.database, oid=transaction.catalog.next_oid(), polname=node.policy_name,
        polrelid=relation.oid, polcmd=command, polpermissive=node.permissive, polroles=_roles(node.roles, session, cursor),
        polqual=_text(node.qual, relation, session) if node.HasField("qual") else None,
        polwithcheck=_text(node.with_check, relation, session) if node.HasField("with_check") else None,
    )  # fmt: skip
    return CommandResult("CREATE POLICY")


def alter(node: ParseNode, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor = transaction.cursor
    relation = _table(node.table, session, cursor)
    transaction.catalog.lock_object("pg_class", relation.oid)
    policy = _get(cursor, relation, node.policy_name)
    if policy.command == INSERT and node.HasField("qual"):
        raise PostgresError("42601", "only WITH CHECK expression allowed for INSERT")
    if policy.command in (SELECT, DELETE) and node.HasField("with_check"):
        raise PostgresError("42601", "only USING expression allowed for SELECT, DELETE")
    changes: dict[str, list[int] | str] = {}
    if node.roles:
        changes["polroles"] = _roles(node.roles, session, cursor)
    if node.HasField("qual"):
        changes["polqual"] = _text(node.qual, relation, session)
    if node.HasField("with_check"):
        changes["polwithcheck"] = _text(node.with_check, relation, session)
    for column, value in changes.items():
        run(cursor, f"UPDATE hg.pg_policy SET {column} = ? WHERE dbid = ? AND oid = ?", [value, relation.database, policy.oid])
    return CommandResult("ALTER POLICY")


def rename(node: ParseNode, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor = transaction.cursor
    relation = _table(node.relation, session, cursor)
    transaction.catalog.lock_object("pg_class", relation.oid)
    _check_new(cursor, relation, node.newname)
    policy = _get(cursor, relation, node.subname)
    update(cursor, "pg_policy", {"dbid": relation.database, "oid": policy.oid}, polname=node.newname)
    return CommandResult("ALTER POLICY")


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor = transaction.cursor

    def names_of(relation: Relation) -> list[str]:
        return [policy.name for policy in of_relation(cursor, relation.database, relation.oid)]

    for target, name in lookup.on_tables(node, session, "policy", names_of):
        relation = _table(target, session, cursor)
        transaction.catalog.lock_object("pg_class", relation.oid)
        remove(cursor, relation.database, _get(cursor, relation, name).oid)
    return CommandResult("DROP POLICY")


def _check_new(cursor: Cursor, relation: Relation, name: str) -> None:
    """Raise 42710 if the relation has a policy with this name."""
    if any(policy.name == name for policy in of_relation(cursor, relation.database, relation.oid)):
        raise PostgresError("42710", f'policy "{name}" for table "{relation.name}" already exists')


def _get(cursor: Cursor, relation: Relation, name: str) -> Policy:
    policy = next((candidate for candidate in of_relation(cursor, relation.database, relation.oid) if candidate.name == name), None)
    return existing(policy, "42704", f'policy "{name}" for table "{relation.name}"')


def _table(node: ParseNode, session: Session, cursor: Cursor) -> Relation:
    relation = lookup.table(cursor, session.context, node)
    privilege.check_owner(cursor, session.context.user, relation.owner, "table", relation.name)
    privilege.refuse_system(relation)
    return relation


def _roles(nodes: Sequence[pb.Node], session: Session, cursor: Cursor) -> list[int]:
    role_oids = []
    for item in nodes:
        spec = unwrap(item)
        if spec.roletype == pb.ROLESPEC_PUBLIC:
            if len(nodes) > 1:
                session.notices.warning(
                    "ignoring specified roles other than PUBLIC", hint="All roles are members of the PUBLIC role.", sqlstate="22000"
                )
            return [0]
        role_oids.append(privilege.used_role(cursor, names.role_name(spec, session.context.user, session.context.session_user)))
    return role_oids or [0]


def _text(node: ParseNode, relation: Relation, session: Session) -> str:
    context = stored_expression.context(session.context.forms).within(refuse_subquery="subqueries in policies are not supported")
    scope = stored_expression.scope_of(relation.columns, relation.name, relation.schema, relation.oid)
    try:
        return deparse.stored(binder.bind_condition(node, scope, "POLICY", context=context))
    except PostgresError as error:
        error.position = None  # as in PostgreSQL, which no longer has the text then
        raise


def dependants(cursor: Cursor, relation: Relation, table: str, on: str, column: str) -> list[dependency.Dependant]:
    """Return the policies of a table that use a column to be dropped, as dependent objects."""
    policies = []
    for policy in of_relation(cursor, relation.database, relation.oid):
        texts = [text for text in (policy.using, policy.check) if text is not None]
        if any(column in stored_expression.columns_of(text, relation) for text in texts):

            def drop_policy(oid: int = policy.oid) -> None:
                remove(cursor, relation.database, oid)

            policies.append(
                dependency.Dependant((3256, policy.oid), f"policy {names.quote_ident(policy.name)} on {table}", on, drop_policy)
            )
    return policies
