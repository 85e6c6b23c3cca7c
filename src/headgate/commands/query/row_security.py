"""Row security: CREATE, ALTER and DROP POLICY, and what the policies of a table let a role see and write (manual, 5.8; rowsecurity.c).

Called by queries for the rows of a table (`visible`), by INSERT, UPDATE and COPY for new rows (`check_new`), and by COPY and workers for
whether row security counts at all (`applies`). Superusers, roles with BYPASSRLS and the table's owner (unless it is FORCEd) are
exempt; with row_security = off what would be left out is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.physical import Cursor, insert, rows, run, update
from headgate.catalog.relation.relation import Relation
from headgate.catalog.security import acl
from headgate.commands import dependency, lookup, privilege, stored_expression
from headgate.commands.query.plan import PlanColumn, Source
from headgate.commands.query.planner import Planner
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.scope import Scope
from headgate.expression.deparsing.deparse import deparse
from headgate.expression.node import BoolKind, Expression, TypeRef, joined
from headgate.expression.spark import compiler
from headgate.expression.spark.value import PythonInside, without_python
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse_expression, unwrap
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.write import columns as spark_columns
from headgate.types import registry

SELECT, INSERT, UPDATE, DELETE, ALL = "r", "a", "w", "d", "*"
_COMMANDS = {"select": SELECT, "insert": INSERT, "update": UPDATE, "delete": DELETE, "all": ALL}
BOOLEAN = TypeRef(registry.BOOL)


@dataclass(frozen=True)
class Policy:
    """A row of pg_policy; `roles` has 0 for PUBLIC."""

    oid: int
    name: str
    command: str
    permissive: bool
    roles: tuple[int, ...]
    using: str | None
    check: str | None


def of_relation(cursor: Cursor, relation: Relation) -> list[Policy]:
    """The policies of a table, by name."""
    found = rows(
        cursor,
        "SELECT oid, polname, polcmd, polpermissive, polroles, polqual, polwithcheck FROM hg.pg_policy WHERE dbid = ? AND polrelid = ?"
        " ORDER BY polname",
        [relation.database, relation.oid],
    )
    return [
        Policy(oid, name, command, permissive, tuple(roles), using, check) for oid, name, command, permissive, roles, using, check in found
    ]


# ---- what they let a role do ---------------------------------------------------------------------------------


def _require_row_security(planner: Planner, relation: Relation) -> None:
    if planner.session.settings.text("row_security") == "off":
        raise PostgresError("42501", f'query would be affected by row-level security policy for table "{relation.name}"')


def _chosen(planner: Planner, relation: Relation, command: str) -> list[Policy]:
    cursor = planner.transaction.cursor
    who = acl.role(cursor, planner.role)
    return [
        each
        for each in of_relation(cursor, relation)
        if each.command in (command, ALL) and (0 in each.roles or who.roles & set(each.roles))
    ]


def _condition(planner: Planner, policies: Sequence[Policy], scope: Scope, *, new: bool) -> Expression | None:
    """The permissive policies ORed, the restrictive ones ANDed; None: nothing is let through."""

    def bound(policy: Policy) -> Expression | None:
        text = (policy.check if policy.check is not None else policy.using) if new else policy.using
        if text is None:
            return None
        return binder.bind_condition(
            parse_expression(text), scope, "POLICY", context=planner.context.within(types=registry.known().anywhere())
        )

    permissive = [bound(each) for each in policies if each.permissive]
    if not permissive:
        return None
    conditions = [] if None in permissive else [joined(BoolKind.OR, [each for each in permissive if each is not None])]
    conditions += [each for policy in policies if not policy.permissive and (each := bound(policy)) is not None]
    if not conditions:
        return binder.bind_condition(parse_expression("true"), scope, "POLICY", context=planner.context)
    return joined(BoolKind.AND, conditions)


def _met(planner: Planner, condition: Expression | None, columns: Sequence[PlanColumn]) -> Column:
    """Whether the policies let a row through. They read the table's columns whatever rights the role has on these."""
    if condition is None:
        return F.lit(False)
    evaluation, restricted = planner.evaluation, planner.evaluation.restricted
    own = {each.key for each in columns}
    evaluation.restricted = {key: error for key, error in restricted.items() if key not in own}
    try:
        return evaluation.condition(condition)
    finally:
        evaluation.restricted = restricted


def _met_first(planner: Planner, condition: Expression | None, columns: Sequence[PlanColumn]) -> Column:
    """`_met`, looked at before any condition of the query's: an error of one would tell of rows that the policies hide.

    What needs no Python is looked at in the order in which it stands, and files are left out by it; the rest stands behind a barrier.
    """
    try:
        with without_python():
            return _met(planner, condition, columns)
    except PythonInside:
        return compiler.barrier(_met(planner, condition, columns))


def visible(planner: Planner, relation: Relation, source: Source, command: str = SELECT, *, reading: bool = True) -> Source:
    """A table's rows without those that the role may not see, or for UPDATE and DELETE may not touch.

    `reading`: whether UPDATE or DELETE looks at columns, so that what SELECT does not show does not exist for it.
    """
    if not privilege.under_row_security(planner.transaction.cursor, planner.role, relation):
        return source
    _require_row_security(planner, relation)
    frame = source.frame
    for each in dict.fromkeys((SELECT, command) if reading else (command,)):
        condition = _condition(planner, _chosen(planner, relation, each), source.scope(None), new=False)
        frame = frame.where(_met_first(planner, condition, source.star))
    return Source(frame, source.tables, source.star, source.merged)


def check_new(planner: Planner, relation: Relation, new: pa.Table | DataFrame, command: str) -> None:
    """42501 `new row violates row-level security policy` if a row (columns by name) may not be written."""
    if not privilege.under_row_security(planner.transaction.cursor, planner.role, relation):
        return
    _require_row_security(planner, relation)
    frame = new if isinstance(new, DataFrame) else local_frame(planner.session_spark, new, spark_columns(relation))
    scope = stored_expression.scope_of(relation.columns, relation.name, relation.schema, relation.oid)
    _refuse(planner, relation, Source(frame, (), ()), scope, command, new=True)


def check_old(planner: Planner, relation: Relation, source: Source, command: str) -> None:
    """42501 `target row violates row-level security policy` if MERGE has found a row that it may see and not UPDATE or DELETE."""
    if privilege.under_row_security(planner.transaction.cursor, planner.role, relation):
        _require_row_security(planner, relation)
        _refuse(planner, relation, source, source.scope(None), command, new=False)


def _refuse(planner: Planner, relation: Relation, source: Source, scope: Scope, command: str, *, new: bool) -> None:
    policies = _chosen(planner, relation, command)
    which, clause = ("new", "") if new else ("target", " (USING expression)")
    permissive = [each for each in policies if each.permissive]
    restrictive = [each for each in policies if not each.permissive]
    for group, name in ((permissive, None), *(([each], each.name) for each in restrictive)):
        alone = [Policy(each.oid, each.name, each.command, True, each.roles, each.using, each.check) for each in group]
        condition = _condition(planner, alone, scope, new=new)
        met = _met(planner, condition, source.star)
        if not source.frame.where(~F.coalesce(met, F.lit(False))).limit(1).isEmpty():
            shown = "" if name is None else f' "{name}"'
            raise PostgresError("42501", f'{which} row violates row-level security policy{shown}{clause} for table "{relation.name}"')


# ---- the commands --------------------------------------------------------------------------------------------


def create(node: pb.CreatePolicyStmt, session: Session) -> CommandResult:
    """CREATE POLICY."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    relation = _table(node.table, session, cursor)
    transaction.lock_object("pg_class", relation.oid)
    command = _COMMANDS[node.cmd_name]
    if command == INSERT and node.HasField("qual"):
        raise PostgresError("42601", "only WITH CHECK expression allowed for INSERT")
    if command in (SELECT, DELETE) and node.HasField("with_check"):
        raise PostgresError("42601", "WITH CHECK cannot be applied to SELECT or DELETE")
    if any(each.name == node.policy_name for each in of_relation(cursor, relation)):
        raise PostgresError("42710", f'policy "{node.policy_name}" for table "{relation.name}" already exists')
    insert(
        cursor, "pg_policy", dbid=context.database, oid=transaction.engine.catalog.next_oid(), polname=node.policy_name,
        polrelid=relation.oid, polcmd=command, polpermissive=node.permissive, polroles=_roles(node.roles, session, cursor),
        polqual=_text(node.qual, relation, session) if node.HasField("qual") else None,
        polwithcheck=_text(node.with_check, relation, session) if node.HasField("with_check") else None,
    )  # fmt: skip
    return CommandResult("CREATE POLICY")


def alter(node: ParseNode, session: Session) -> CommandResult:
    """ALTER POLICY … TO, USING, WITH CHECK."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    relation = _table(node.table, session, cursor)
    transaction.lock_object("pg_class", relation.oid)
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
    """ALTER POLICY … RENAME TO."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    relation = _table(node.relation, session, cursor)
    transaction.lock_object("pg_class", relation.oid)
    if any(each.name == node.newname for each in of_relation(cursor, relation)):
        raise PostgresError("42710", f'policy "{node.newname}" for table "{relation.name}" already exists')
    policy = _get(cursor, relation, node.subname)
    update(cursor, "pg_policy", {"dbid": relation.database, "oid": policy.oid}, polname=node.newname)
    return CommandResult("ALTER POLICY")


def drop(node: ParseNode, session: Session) -> CommandResult:
    """DROP POLICY [IF EXISTS] p ON t."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    for item in node.objects:
        parts = list(unwrap(item).items)
        schema, table = names.split_name(parts[:-1], context.database_name)
        name = unwrap(parts[-1]).sval
        target = pb.RangeVar(relname=table, schemaname=schema or "")
        if node.missing_ok and lookup.find(cursor, context, target) is None:
            session.notices.notice(f'relation "{table}" does not exist, skipping')
            continue
        if node.missing_ok:
            known = lookup.target(cursor, context, target)
            if all(each.name != name for each in of_relation(cursor, known)):
                session.notices.notice(f'policy "{name}" for relation "{known.name}" does not exist, skipping')
                continue
        relation = _table(target, session, cursor)
        transaction.lock_object("pg_class", relation.oid)
        run(cursor, "DELETE FROM hg.pg_policy WHERE dbid = ? AND oid = ?", [relation.database, _get(cursor, relation, name).oid])
    return CommandResult("DROP POLICY")


def _get(cursor: Cursor, relation: Relation, name: str) -> Policy:
    found = next((each for each in of_relation(cursor, relation) if each.name == name), None)
    if found is None:
        raise PostgresError("42704", f'policy "{name}" for table "{relation.name}" does not exist')
    return found


def _table(node: ParseNode, session: Session, cursor: Cursor) -> Relation:
    relation = lookup.table(cursor, session.context, node)
    privilege.check_owner(cursor, session.context.user, relation.owner, "table", relation.name)
    privilege.refuse_system(relation)
    return relation


def _roles(nodes: Sequence[pb.Node], session: Session, cursor: Cursor) -> list[int]:
    found = []
    for item in nodes:
        spec = unwrap(item)
        if spec.roletype == pb.ROLESPEC_PUBLIC:
            if len(nodes) > 1:
                session.notices.warning(
                    "ignoring specified roles other than PUBLIC", hint="All roles are members of the PUBLIC role.", sqlstate="22000"
                )
            return [0]
        found.append(privilege.used_role(cursor, names.role_name(spec, session.context.user, session.context.session_user)))
    return found or [0]


def _text(node: ParseNode, relation: Relation, session: Session) -> str:
    context = stored_expression.context(session.context.forms).within(refuse_subquery="subqueries in policies are not supported")
    scope = stored_expression.scope_of(relation.columns, relation.name, relation.schema, relation.oid)
    try:
        return deparse(binder.bind_condition(node, scope, "POLICY", context=context), types=registry.known())
    except PostgresError as error:
        error.position = None  # as PostgreSQL, which has lost the text by then
        raise


def dependants(cursor: Cursor, relation: Relation, table: str, on: str, column: str) -> list[dependency.Dependant]:
    """The policies of a table that use a column which is to go."""
    found = []
    for each in of_relation(cursor, relation):
        texts = [text for text in (each.using, each.check) if text is not None]
        if any(column in stored_expression.columns_of(text, relation) for text in texts):

            def drop_policy(oid: int = each.oid) -> None:
                run(cursor, "DELETE FROM hg.pg_policy WHERE dbid = ? AND oid = ?", [relation.database, oid])

            found.append(dependency.Dependant((3256, each.oid), f"policy {names.quote_ident(each.name)} on {table}", on, drop_policy))
    return found
