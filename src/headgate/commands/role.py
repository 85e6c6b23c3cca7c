"""CREATE, ALTER and DROP ROLE (USER, GROUP), GRANT and REVOKE of roles and of privileges on tables, schemas and databases."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from postgast import pg_query_pb2 as pb

from headgate.catalog import relation as relations
from headgate.catalog import role as roles
from headgate.catalog.physical import Cursor, one, run
from headgate.catalog.role import Role
from headgate.commands import lookup, privilege
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.options import Option, unique
from headgate.sql.parser import unwrap

_FLAGS = {
    "superuser": "superuser", "inherit": "inherit", "createrole": "create_role", "createdb": "create_database", "canlogin": "can_login",
    "isreplication": "replication", "bypassrls": "bypass_rls",
}  # fmt: skip
ITERATIONS = 4096


def verifier(password: str) -> str:
    """What is stored of a password: a SCRAM-SHA-256 verifier (RFC 5803); one that is given as such is kept."""
    if re.match(r"SCRAM-SHA-256\$\d+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+\Z", password):
        return password
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    server = hmac.digest(salted, b"Server Key", "sha256")
    stored = hashlib.sha256(client).digest()
    parts = [base64.b64encode(each).decode() for each in (salt, stored, server)]
    return f"SCRAM-SHA-256${ITERATIONS}:{parts[0]}${parts[1]}:{parts[2]}"


def _apply(role: Role, options: dict[str, Option]) -> Role:
    for name, option in options.items():
        if name in _FLAGS:
            changes: dict[str, Any] = {_FLAGS[name]: option.boolean()}
            role = replace(role, **changes)
        elif name == "password":
            role = replace(role, verifier=verifier(option.value) if option.value else None)
        elif name == "connectionlimit":
            role = replace(role, connection_limit=option.integer())
        elif name == "validUntil":
            role = replace(role, valid_until=_instant(option.text()))
        elif name not in ("addroleto", "rolemembers", "adminmembers", "sysid"):
            raise PostgresError("42601", f'unrecognized role option "{name}"')
    return role


def _instant(text: str) -> datetime | None:
    if text == "infinity":
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise PostgresError("22007", f'invalid input syntax for type timestamp with time zone: "{text}"') from error
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _require_createrole(cursor: Cursor, session: Session, options: dict[str, Option], message: str) -> None:
    user = roles.get(cursor, session.context.user)
    if user.superuser:
        return
    if "superuser" in options:
        raise PostgresError(
            "42501", "must be superuser to create superusers" if "create" in message else "must be superuser to alter superuser attribute"
        )
    if "isreplication" in options and options["isreplication"].boolean():
        raise PostgresError("42501", "must be superuser to create replication users")
    if not user.create_role:
        raise PostgresError("42501", message)


def create(node: Any, session: Session) -> CommandResult:
    """CREATE ROLE, CREATE USER (with LOGIN), CREATE GROUP."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    options = unique(node.options)
    _require_createrole(cursor, session, options, "permission denied to create role")
    if node.role in ("public", "none"):
        raise PostgresError("42939", f'role name "{node.role}" is reserved')
    role = Role(transaction.engine.catalog.next_oid(), node.role, can_login=node.stmt_type == pb.ROLESTMT_USER)
    if "password" in options and options["password"].value == "":
        session.notices.notice("empty string is not a valid password, clearing password")
    made = roles.create(cursor, _apply(role, options))
    grantor = privilege.role_oid(cursor, session.context.user)
    for name, place in (("addroleto", "in"), ("rolemembers", "of"), ("adminmembers", "of")):
        for item in options[name].node.items if name in options else ():
            other = privilege.role_oid(cursor, unwrap(item).rolename)
            if place == "in":
                roles.grant(cursor, other, made.oid, grantor)
            else:
                roles.grant(cursor, made.oid, other, grantor, admin=name == "adminmembers")
    return CommandResult("CREATE ROLE")


def alter(node: Any, session: Session) -> CommandResult:
    """ALTER ROLE … WITH options."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    name = names.role_name(node.role, context.user, context.session_user)
    role = roles.get(cursor, name)
    options = unique(node.options)
    own_password = name == context.user and set(options) == {"password"}
    if not own_password:
        _require_createrole(cursor, session, options, "permission denied")
    if role.superuser and not privilege.is_superuser(cursor, context.user):
        raise PostgresError("42501", "must be superuser to alter superuser roles or change superuser attribute")
    if "rolemembers" in options:
        grantor = privilege.role_oid(cursor, context.user)
        for item in options["rolemembers"].node.items:
            member = privilege.role_oid(cursor, unwrap(item).rolename)
            if node.action < 0:
                roles.revoke(cursor, role.oid, member)
            else:
                roles.grant(cursor, role.oid, member, grantor)
    roles.change(cursor, _apply(role, options))
    return CommandResult("ALTER ROLE")


def drop(node: Any, session: Session) -> CommandResult:
    """DROP ROLE [IF EXISTS] a, b."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    _require_createrole(cursor, session, {}, "permission denied to drop role")
    for item in node.roles:
        name = names.role_name(unwrap(item), context.user, context.session_user)
        role = roles.lookup(cursor, name)
        if role is None:
            if not node.missing_ok:
                raise PostgresError("42704", f'role "{name}" does not exist')
            session.notices.notice(f'role "{name}" does not exist, skipping')
            continue
        if name == context.user:
            raise PostgresError("55006", "current user cannot be dropped")
        if name == context.session_user:
            raise PostgresError("55006", "session user cannot be dropped")
        owned = roles.owned(cursor, role.oid)
        owned += _privileges_of(cursor, name)
        if owned:
            raise PostgresError("2BP01", f'role "{name}" cannot be dropped because some objects depend on it', detail="\n".join(owned))
        roles.drop(cursor, role.oid)
    return CommandResult("DROP ROLE")


def _privileges_of(cursor: Cursor, name: str) -> list[str]:
    found = []
    for kind, sql in (
        ("database", "SELECT datname, datacl FROM hg.pg_database WHERE datacl IS NOT NULL"),
        ("schema", "SELECT nspname, nspacl FROM hg.pg_namespace WHERE nspacl IS NOT NULL"),
        ("table", "SELECT relname, relacl FROM hg.pg_class WHERE relacl IS NOT NULL AND relkind IN ('r', 'p')"),
    ):
        found += [
            f"privileges for {kind} {object_name}"
            for object_name, acl in run(cursor, sql).fetchall()
            if any(item.split("=")[0] == name for item in acl)
        ]
    return found


def rename(node: Any, session: Session) -> CommandResult:
    """ALTER ROLE … RENAME TO."""
    transaction = session.begin_statement()
    cursor = transaction.cursor
    role = roles.get(cursor, node.subname)
    _require_createrole(cursor, session, {}, "permission denied to rename role")
    if role.name == session.context.session_user:
        raise PostgresError("0A000", "session user cannot be renamed")
    if roles.lookup(cursor, node.newname) is not None:
        raise PostgresError("42710", f'role "{node.newname}" already exists')
    roles.change(cursor, replace(role, name=node.newname))
    return CommandResult("ALTER ROLE")


def grant_role(node: Any, session: Session) -> CommandResult:
    """GRANT a TO b, REVOKE a FROM b."""
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    admin = any(unwrap(each).defname == "admin" for each in node.opt)
    grantor = privilege.role_oid(cursor, context.user)
    for item in node.granted_roles:
        granted = unwrap(item).priv_name
        oid = privilege.role_oid(cursor, granted)
        _require_createrole(cursor, session, {}, f'must have admin option on role "{granted}"')
        for grantee in node.grantee_roles:
            member = names.role_name(unwrap(grantee), context.user, context.session_user)
            member_oid = privilege.role_oid(cursor, member)
            if node.is_grant:
                if member_oid in privilege.roles_of(cursor, granted):
                    raise PostgresError("0LP01", f'role "{granted}" is a member of role "{member}"')
                if not roles.grant(cursor, oid, member_oid, grantor, admin=admin):
                    session.notices.notice(f'role "{member}" is already a member of role "{granted}"')
            elif not roles.revoke(cursor, oid, member_oid):
                session.notices.warning(f'role "{member}" is not a member of role "{granted}"')
    return CommandResult("GRANT ROLE" if node.is_grant else "REVOKE ROLE")


_OBJECTS = {
    pb.OBJECT_TABLE: ("pg_class", "relacl", "relowner", "arwdDxt", "table"),
    pb.OBJECT_SEQUENCE: ("pg_class", "relacl", "relowner", "rwU", "sequence"),
    pb.OBJECT_SCHEMA: ("pg_namespace", "nspacl", "nspowner", "UC", "schema"),
    pb.OBJECT_DATABASE: ("pg_database", "datacl", "datdba", "CTc", "database"),
}
_PUBLIC = {pb.OBJECT_DATABASE: "Tc"}


def grant(node: Any, session: Session) -> CommandResult:
    """GRANT and REVOKE of privileges on tables, sequences, schemas and databases."""
    tag = "GRANT" if node.is_grant else "REVOKE"
    if node.targtype == pb.ACL_TARGET_DEFAULTS or node.objtype not in _OBJECTS:
        raise not_supported(f"{tag} on objects of this kind is not supported")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    catalog, acl_column, owner_column, every, kind = _OBJECTS[node.objtype]
    letters = _letters(node, every)
    for oid in _objects(node, session, cursor):
        scope = "" if catalog == "pg_database" else f" AND dbid IN (0, {context.database})"
        found = one(cursor, f"SELECT {acl_column}, {owner_column} FROM hg.{catalog} WHERE oid = ?{scope}", [oid])
        if found is None:
            continue
        owner = privilege.role_name(cursor, found[1])
        if not privilege.owns(cursor, context.user, found[1]):
            raise PostgresError("42501", f"permission denied for {kind} {_object_name(cursor, catalog, oid)}")
        held = _unpacked(found[0], owner, every, _PUBLIC.get(node.objtype, ""))
        for item in node.grantees:
            spec = unwrap(item)
            grantee = "" if spec.roletype == pb.ROLESPEC_PUBLIC else names.role_name(spec, context.user, context.session_user)
            if grantee:
                privilege.role_oid(cursor, grantee)
            now = held.get(grantee, "")
            held[grantee] = "".join(
                letter for letter in every if (letter in now or letter in letters) and (node.is_grant or letter not in letters)
            )
        acl = [f"{_quoted(name)}={kept}/{_quoted(owner)}" for name, kept in held.items() if kept]
        run(cursor, f"UPDATE hg.{catalog} SET {acl_column} = ? WHERE oid = ?{scope}", [acl, oid])
    return CommandResult(tag)


def _quoted(name: str) -> str:
    return name if re.match(r"\w*\Z", name) else '"' + name.replace('"', '""') + '"'


def _object_name(cursor: Cursor, catalog: str, oid: int) -> str:
    column = {"pg_class": "relname", "pg_namespace": "nspname", "pg_database": "datname"}[catalog]
    found = one(cursor, f"SELECT {column} FROM hg.{catalog} WHERE oid = ?", [oid])
    return "" if found is None else str(found[0])


def _letters(node: Any, every: str) -> str:
    if not node.privileges:
        return every
    found = ""
    for item in node.privileges:
        each = unwrap(item)
        if each.cols:
            raise not_supported("column privileges are not supported")
        letter = privilege.letter(each.priv_name)
        if letter not in every:
            kind = {"arwdDxt": "relation", "rwU": "sequence", "UC": "schema", "CTc": "database"}[every]
            raise PostgresError("0LP01", f"invalid privilege type {each.priv_name.upper()} for {kind}")
        found += letter
    return found


def _unpacked(acl: list[str] | None, owner: str, every: str, public: str) -> dict[str, str]:
    if acl is None:
        return ({"": public} if public else {}) | {owner: every}
    return {item.partition("=")[0].strip('"'): item.partition("=")[2].split("/")[0].replace("*", "") for item in acl}


def _objects(node: Any, session: Session, cursor: Cursor) -> list[int]:
    context = session.context
    if node.targtype == pb.ACL_TARGET_ALL_IN_SCHEMA:
        kinds = "S" if node.objtype == pb.OBJECT_SEQUENCE else "rpv"
        schemas = [lookup.namespace(cursor, context.database, unwrap(item).sval) for item in node.objects]
        return [each.oid for schema in schemas for each in relations.in_schema(cursor, context.database, schema, kinds)]
    if node.objtype in (pb.OBJECT_TABLE, pb.OBJECT_SEQUENCE):
        return [lookup.target(cursor, context, unwrap(item)).oid for item in node.objects]
    if node.objtype == pb.OBJECT_SCHEMA:
        return [lookup.namespace(cursor, context.database, unwrap(item).sval) for item in node.objects]
    found = []
    for item in node.objects:
        row = one(cursor, "SELECT oid FROM hg.pg_database WHERE datname = ?", [unwrap(item).sval])
        if row is None:
            raise PostgresError("3D000", f'database "{unwrap(item).sval}" does not exist')
        found.append(int(row[0]))
    return found
