"""CREATE, ALTER and DROP ROLE (USER, GROUP), and GRANT and REVOKE of roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace
from headgate.catalog.physical import Cursor
from headgate.catalog.security import password
from headgate.catalog.security import role as roles
from headgate.catalog.security.role import Role
from headgate.commands import privilege
from headgate.commands.result import CommandResult
from headgate.commands.role import grant, ownership
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.options import Option, unique
from headgate.sql.parser import unwrap
from headgate.types import registry
from headgate.types.datetime import calendar
from headgate.types.text.text import read_scalar
from headgate.types.text_column import TextSettings as Forms

_FLAGS: dict[str, Callable[[Role, bool], Role]] = {
    "superuser": lambda role, flag: replace(role, superuser=flag),
    "inherit": lambda role, flag: replace(role, inherit=flag),
    "createrole": lambda role, flag: replace(role, create_role=flag),
    "createdb": lambda role, flag: replace(role, create_database=flag),
    "canlogin": lambda role, flag: replace(role, can_login=flag),
    "isreplication": lambda role, flag: replace(role, replication=flag),
    "bypassrls": lambda role, flag: replace(role, bypass_rls=flag),
}
_MEMBERS = ("addroleto", "rolemembers", "adminmembers")
"""The options of CREATE ROLE with lists of other roles: IN ROLE, ROLE, ADMIN."""


def _verifier(text: str | None, name: str, session: Session) -> str | None:
    """Return the stored form of a new password. Return None for no password or an empty one, in any form."""
    if text is None:
        return None
    if not text or (password.kind(text) is not password.PasswordKind.PLAIN and password.matches("", text, name)):
        session.notices.notice("empty string is not a valid password, clearing password")
        return None
    return password.stored(text, name, session.settings.text("password_encryption"))


def _apply(role: Role, options: dict[str, Option], session: Session) -> Role:
    for name, option in options.items():
        if name in _FLAGS:
            role = _FLAGS[name](role, option.boolean())
        elif name == "password":
            role = replace(role, verifier=_verifier(option.value, role.name, session))
        elif name == "connectionlimit":
            role = replace(role, connection_limit=option.integer())
        elif name == "validUntil":
            role = replace(role, valid_until=_instant(option.text(), session.context.forms))
        elif name not in ("addroleto", "rolemembers", "adminmembers", "sysid"):
            raise PostgresError("42601", f'unrecognized role option "{name}"')
    return role


def _instant(text: str, forms: Forms) -> datetime | None:
    """Return the timestamp of VALID UNTIL in UTC, or None for infinity."""
    micros: int = read_scalar(text, registry.TIMESTAMPTZ, session=forms).cast(pa.int64()).as_py()
    if abs(micros) == calendar.INFINITE_MICROS:
        return None
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).replace(tzinfo=None)
    except OverflowError:
        raise not_supported(f'cannot store VALID UNTIL "{text}": its year is before 1 or after 9999') from None


def _require_createrole(cursor: Cursor, session: Session, message: str) -> None:
    user = roles.get(cursor, session.context.user)
    if not (user.superuser or user.create_role):
        raise PostgresError("42501", message)


def _check_creation(cursor: Cursor, session: Session, options: dict[str, Option]) -> None:
    """Raise 42501 unless the user may create a role with these attributes (CreateRole)."""
    if privilege.is_superuser(cursor, session.context.user):
        return
    for name, users in (("superuser", "superusers"), ("isreplication", "replication users"), ("bypassrls", "bypassrls users")):
        if name in options and options[name].boolean():
            raise PostgresError("42501", f"must be superuser to create {users}")
    _require_createrole(cursor, session, "permission denied to create role")


def _check_alteration(cursor: Cursor, session: Session, role: Role, options: dict[str, Option]) -> None:
    """Raise 42501 unless the user may change these attributes of the role (AlterRole). Users may change their own password."""
    if privilege.is_superuser(cursor, session.context.user):
        return
    if role.superuser or "superuser" in options:
        raise PostgresError("42501", "must be superuser to alter superuser roles or change superuser attribute")
    if role.replication or "isreplication" in options:
        raise PostgresError("42501", "must be superuser to alter replication roles or change replication attribute")
    if "bypassrls" in options:
        raise PostgresError("42501", "must be superuser to change bypassrls attribute")
    if not (role.name == session.context.user and set(options) == {"password"}):
        _require_createrole(cursor, session, "permission denied")


def _check_membership(cursor: Cursor, session: Session, name: str, grantor: str | None = None) -> None:
    """Raise 42501 unless the user may grant or revoke memberships of this role, by any command (AddRoleMems, DelRoleMems)."""
    context, role = session.context, roles.get(cursor, name)
    acting_role = context.user if grantor is None else grantor
    if privilege.is_superuser(cursor, context.user):
        pass
    elif role.superuser:
        raise PostgresError("42501", "must be superuser to alter superusers")
    elif not roles.get(cursor, context.user).create_role and not (
        privilege.is_superuser(cursor, acting_role) or _is_admin(cursor, acting_role, role)
    ):
        raise PostgresError("42501", f'must have admin option on role "{name}"')
    if role.oid == namespace.DATABASE_OWNER:
        raise PostgresError("XX000", f'role "{name}" cannot have explicit members')
    if acting_role != context.user and not privilege.is_superuser(cursor, context.user):
        raise PostgresError("42501", "must be superuser to set grantor")


def _is_admin(cursor: Cursor, user: str, role: Role) -> bool:
    """Return whether a user, or a role that it is a member of, has the admin option. No role has it on itself."""
    return role.name != user and bool(roles.admins(cursor, role.oid) & privilege.roles_of(cursor, user))


def _roles_of_option(options: Mapping[str, Option], name: str) -> Sequence[pb.Node]:
    """Return the roles that an option lists, or an empty sequence if the option is missing."""
    option = options.get(name)
    return () if option is None or option.node is None else option.node.items


def create(node: pb.CreateRoleStmt, session: Session) -> CommandResult:
    """Execute CREATE ROLE, CREATE USER (with LOGIN) or CREATE GROUP."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    options = unique(node.options)
    _check_creation(cursor, session, options)
    for item in _roles_of_option(options, "addroleto"):
        _check_membership(cursor, session, _role_name(unwrap(item), session))
    if node.role in ("public", "none"):
        raise PostgresError("42939", f'role name "{node.role}" is reserved')
    for item in [item for name in _MEMBERS for item in _roles_of_option(options, name)]:
        listed_role = roles.lookup(cursor, _role_name(unwrap(item), session))
        if listed_role is not None:
            transaction.catalog.use_object("pg_authid", listed_role.oid)
    role = Role(transaction.catalog.next_oid(), node.role, can_login=node.stmt_type == pb.ROLESTMT_USER)
    created = roles.create(cursor, _apply(role, options, session))
    grantor = privilege.role_oid(cursor, session.context.user)
    for name in _MEMBERS:
        for item in _roles_of_option(options, name):
            listed_name = _role_name(unwrap(item), session)
            listed_oid = privilege.role_oid(cursor, listed_name)
            if name == "addroleto":
                _refuse_loop(cursor, listed_name, created.name, created.oid)
                roles.grant(cursor, listed_oid, created.oid, grantor)
            else:
                _refuse_loop(cursor, created.name, listed_name, listed_oid)
                roles.grant(cursor, created.oid, listed_oid, grantor, admin=name == "adminmembers")
    return CommandResult("CREATE ROLE")


def alter(node: pb.AlterRoleStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    if node.role.roletype == pb.ROLESPEC_CSTRING:
        roles.refuse_reserved(node.role.rolename, "Cannot alter reserved roles.")
    name = names.role_name(node.role, context.user, context.session_user)
    role = roles.get(cursor, name)
    options = unique(node.options)
    _check_alteration(cursor, session, role, options)
    transaction.catalog.change_object("pg_authid", role.oid)
    if "rolemembers" in options:
        _check_membership(cursor, session, name)
        grantor = privilege.role_oid(cursor, context.user)
        for member_name in [_role_name(unwrap(item), session) for item in _roles_of_option(options, "rolemembers")]:
            member = privilege.used_role(cursor, member_name)
            if node.action < 0:
                roles.revoke(cursor, role.oid, member)
            else:
                _refuse_loop(cursor, name, member_name, member)
                roles.grant(cursor, role.oid, member, grantor)
    roles.change(cursor, _apply(role, options, session))
    return CommandResult("ALTER ROLE")


def drop(node: pb.DropRoleStmt, session: Session) -> CommandResult:
    """Execute DROP ROLE [IF EXISTS] a, b."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    _require_createrole(cursor, session, "permission denied to drop role")
    dropped: dict[str, int] = {}
    for item in node.roles:
        if unwrap(item).roletype != pb.ROLESPEC_CSTRING:
            raise PostgresError("22023", "cannot use special role specifier in DROP ROLE")
        name = unwrap(item).rolename
        role = roles.lookup(cursor, name)
        if role is None:
            session.notices.skip(PostgresError("42704", f'role "{name}" does not exist'), allowed=node.missing_ok)
            continue
        if name == context.user:
            raise PostgresError("55006", "current user cannot be dropped")
        if name == context.session_user:
            raise PostgresError("55006", "session user cannot be dropped")
        if role.superuser and not privilege.is_superuser(cursor, context.user):
            raise PostgresError("42501", "must be superuser to drop superusers")
        transaction.catalog.lock_object("pg_authid", role.oid)
        dropped[name] = role.oid
    for name, oid in dropped.items():
        if privilege.is_pinned(oid):
            raise PostgresError("2BP01", f"cannot drop role {names.quote_ident(name)} because it is required by the database system")
        ownership.refuse_tied(session, name, oid)
        roles.drop(cursor, oid)
    return CommandResult("DROP ROLE")


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor = transaction.cursor
    role = roles.get(cursor, node.subname)
    if role.name == session.context.session_user:
        raise PostgresError("0A000", "session user cannot be renamed")
    if role.name == session.context.user:
        raise PostgresError("0A000", "current user cannot be renamed")
    for checked_name in (role.name, node.newname):
        roles.refuse_reserved(checked_name)
    transaction.catalog.lock_object("pg_authid", role.oid)
    if roles.lookup(cursor, node.newname) is not None:
        raise PostgresError("42710", f'role "{node.newname}" already exists')
    if role.superuser and not privilege.is_superuser(cursor, session.context.user):
        raise PostgresError("42501", "must be superuser to rename superusers")
    _require_createrole(cursor, session, "permission denied to rename role")
    if role.verifier is not None and password.kind(role.verifier) is password.PasswordKind.MD5:
        session.notices.notice("MD5 password cleared because of role rename")  # the hash depends on the name
        role = replace(role, verifier=None)
    roles.change(cursor, replace(role, name=node.newname))
    grant.rename_role(cursor, role.name, node.newname)
    return CommandResult("ALTER ROLE")


def _role_name(spec: pb.RoleSpec, session: Session) -> str:
    return names.role_name(spec, session.context.user, session.context.session_user)


def _refuse_loop(cursor: Cursor, granted: str, member: str, member_oid: int) -> None:
    """Raise 0LP01 if the role to grant is the member, or is a member of it."""
    if member_oid in privilege.roles_of(cursor, granted):
        raise PostgresError("0LP01", f'role "{granted}" is a member of role "{member}"')


def grant_role(node: pb.GrantRoleStmt, session: Session) -> CommandResult:
    """Execute GRANT a TO b, or REVOKE a FROM b."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    admin = any(unwrap(option).defname == "admin" for option in node.opt)
    grantor_name = _role_name(node.grantor, session) if node.HasField("grantor") else context.user
    grantor = privilege.used_role(cursor, grantor_name)
    role_oid = privilege.used_role if node.is_grant else privilege.role_oid
    members = {name: role_oid(cursor, name) for role_spec in node.grantee_roles if (name := _role_name(unwrap(role_spec), session))}
    for granted, oid in {name: role_oid(cursor, name) for role_spec in node.granted_roles if (name := unwrap(role_spec).priv_name)}.items():
        _check_membership(cursor, session, granted, grantor_name if node.is_grant else None)
        for member, member_oid in members.items():
            if node.is_grant:
                if member == "pg_database_owner":
                    raise PostgresError("XX000", f'role "{member}" cannot be a member of any role')
                _refuse_loop(cursor, granted, member, member_oid)
                if not roles.grant(cursor, oid, member_oid, grantor, admin=admin):
                    session.notices.notice(f'role "{member}" is already a member of role "{granted}"')
            elif not roles.revoke(cursor, oid, member_oid, admin_only=admin):
                session.notices.warning(f'role "{member}" is not a member of role "{granted}"')
    return CommandResult("GRANT ROLE" if node.is_grant else "REVOKE ROLE")
