"""has_table_privilege and the similar functions, pg_has_role and row_security_active, in a query on system catalogs.

Called by `session_call`. The objects on which the role has the right are looked up first. In the query, the function becomes a test for
membership in this set, so that it costs the same for one row and for all rows of pg_class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from headgate.catalog import namespace
from headgate.catalog.physical import Cursor
from headgate.catalog.security import acl
from headgate.catalog.security import role as roles
from headgate.catalog.security.rights import one, rows
from headgate.catalog.security.role import READ_ALL_DATA, WRITE_ALL_DATA
from headgate.catalog.session import SessionContext
from headgate.commands.query.catalog.planner import CatalogPlanner
from headgate.errors import PostgresError, existing, not_supported
from headgate.expression.node import CoerceViaIO, ColumnRef, Const, Expression, Form, TypeRef, walk
from headgate.sql.names import split_identifiers
from headgate.types import registry as t

_KINDS = {
    "table": ("pg_class", "oid", "relowner", "relacl", "r", t.REGCLASS),
    "any_column": ("pg_class", "oid", "relowner", "relacl", "r", t.REGCLASS),
    "sequence": ("pg_class", "oid", "relowner", "relacl", "s", t.REGCLASS),
    "column": ("pg_class", "oid", "relowner", "relacl", "r", t.REGCLASS),
    "schema": ("pg_namespace", "oid", "nspowner", "nspacl", "n", t.REGNAMESPACE),
    "database": ("pg_database", "oid", "datdba", "datacl", "d", t.OID),
    "function": ("pg_proc", "oid", "proowner", "proacl", "f", t.OID),
    "type": ("pg_type", "oid", "typowner", "typacl", "T", t.REGTYPE),
    "language": ("pg_language", "oid", "lanowner", "lanacl", "l", t.OID),
}


_LETTERS = {kind: acl.EVERY["c" if "column" in kind else default] for kind, (*_, default, _) in _KINDS.items()}
"""The rights that each function accepts."""

_WAYS = {
    "USAGE": "USAGE", "MEMBER": "MEMBER",
    **{f"{word} WITH {option} OPTION": "ADMIN" for word in ("USAGE", "MEMBER") for option in ("GRANT", "ADMIN")},
}  # fmt: skip
"""The privileges that pg_has_role accepts."""

_NOT_GIVEN = {
    "tablespace": ("pg_tablespace", "spcname", "tablespace", ("CREATE",)),
    "foreign_data_wrapper": ("pg_foreign_data_wrapper", "fdwname", "foreign-data wrapper", ("USAGE",)),
    "server": ("pg_foreign_server", "srvname", "server", ("USAGE",)),
}
"""Kinds of objects on which no rights can be granted in headgate: catalog, name column, noun, and the rights that the function accepts."""
_PARAMETER = "parameter"
_OPTION = " WITH GRANT OPTION"


def call(session: CatalogPlanner, name: str, arguments: Sequence[Expression]) -> str:
    """Return the SQL of a call of one of these functions."""
    if name == "row_security_active":
        return _row_security_active(session, arguments)
    if name == "pg_has_role":
        return _has_role(session, arguments)
    kind = name.removeprefix("has_").removesuffix("_privilege")
    width = 3 if kind == "column" else 2
    role = acl.role(session.cursor, session.context.user)
    if len(arguments) > width:
        role = _role(session, name, arguments[0])
    *_, privileges = arguments
    target = arguments[-width]
    if kind == _PARAMETER:
        return "TRUE" if role.superuser else "FALSE"
    if kind in _NOT_GIVEN:
        return _by_default(session, kind, role, target, str(_constant(session, name, privileges)))
    regtype = _KINDS[kind][5]
    rights = [_right(privilege.strip(), kind) for privilege in str(_constant(session, name, privileges)).split(",")]
    value = _target(session, kind, target, regtype)
    if not _there(session, kind, value, arguments[-2]):
        return "CAST(NULL AS BOOLEAN)"
    if role.superuser:
        return f"({value} IS NOT NULL OR NULL)"
    allowed = _objects_with_right(session, kind, role, rights)
    test = among(value, allowed)
    if kind in ("column", "any_column"):
        columns = _columns(session, role, rights)
        test += " OR " + (
            among(value, {oid for oid, _, _ in columns})
            if kind == "any_column"
            else _column(value, session.sql(arguments[-2]), columns, by_name=arguments[-2].type.oid in (t.TEXT, t.NAME))
        )
    return f"CASE WHEN {value} IS NOT NULL THEN {test} END"


def _by_default(session: CatalogPlanner, kind: str, role: acl.RoleRights, target: Expression, privileges: str) -> str:
    """Return the SQL for default rights: superusers have all of them.

    Raise 42704 if the name does not exist. The value is NULL if the oid does not exist.
    """
    catalog, column, noun, words = _NOT_GIVEN[kind]
    upper_words = [word.strip().upper() for word in privileges.split(",")]
    for privilege, word in zip(privileges.split(","), upper_words, strict=True):
        if word.removesuffix(_OPTION) not in words:
            raise PostgresError("22023", f'unrecognized privilege type: "{privilege.strip()}"')
    by_name = target.type.oid in (t.TEXT, t.NAME)
    if (
        by_name and isinstance(target, Const) and target.value is not None
        and not one(session.cursor, f"SELECT 1 FROM hg.{catalog} WHERE {column} = ?", [str(target.value)])
    ):  # fmt: skip
        raise PostgresError("42704", f'{noun} "{target.value}" does not exist')
    allowed = "TRUE" if role.superuser else "FALSE"
    object_exists = f"EXISTS (SELECT 1 FROM hg.{catalog} _o WHERE _o.{column if by_name else 'oid'} = {session.sql(target)})"
    return f"CASE WHEN {object_exists} THEN {allowed} END"


def knows(name: str) -> bool:
    if name in ("pg_has_role", "row_security_active"):
        return True
    kind = name.removeprefix("has_").removesuffix("_privilege")
    return name == f"has_{kind}_privilege" and (kind in _KINDS or kind in _NOT_GIVEN or kind == _PARAMETER)


def may_select(cursor: Cursor, context: SessionContext, oid: int) -> bool:
    """Return whether the session's user may read a whole system relation."""
    owner_and_acl = one(cursor, "SELECT relowner, relacl FROM hg.pg_class WHERE dbid IN (0, ?) AND oid = ?", [context.database, oid])
    if owner_and_acl is None:
        return True
    role = acl.role(cursor, context.user)
    if READ_ALL_DATA in role.roles:
        return True
    return role.may("r", owner_and_acl[0], acl.read(owner_and_acl[1], "r", acl.role_name(cursor, owner_and_acl[0])))


def readable(cursor: Cursor, context: SessionContext) -> set[int]:
    """Return the relations of the database that the session's user may read as a whole: with SELECT on them and USAGE on their schema."""
    role = acl.role(cursor, context.user)
    names = dict(rows(cursor, "SELECT oid, rolname FROM hg.pg_authid"))
    every = READ_ALL_DATA in role.roles
    schemas = set()
    schema_rows = rows(cursor, "SELECT oid, nspowner, nspacl FROM hg.pg_namespace WHERE dbid IN (0, ?)", [context.database])
    for oid, owner, acl_items in schema_rows:
        if every or role.may("U", owner, acl.read(acl_items, "n", names.get(owner, ""))):
            schemas.add(oid)
    readable = set()
    relation_rows = rows(cursor, "SELECT oid, relnamespace, relowner, relacl FROM hg.pg_class WHERE dbid = ?", [context.database])
    for oid, schema, owner, acl_items in relation_rows:
        if schema in schemas and (every or role.may("r", owner, acl.read(acl_items, "r", names.get(owner, "")))):
            readable.add(oid)
    return readable


def selectable_columns(cursor: Cursor, context: SessionContext, oid: int) -> set[int]:
    """Return the attnums of the relation's columns that the session's user may read by a grant on the column."""
    role = acl.role(cursor, context.user)
    column_acls = rows(
        cursor,
        "SELECT attnum, attacl FROM hg.pg_attribute WHERE dbid IN (0, ?) AND attrelid = ? AND attacl IS NOT NULL AND NOT attisdropped",
        [context.database, oid],
    )
    return {attnum for attnum, items in column_acls if role.may("r", 0, acl.read(items, "c", ""))}


def _there(session: CatalogPlanner, kind: str, value: str, column: Expression) -> bool:
    """Return whether a constant object and its column exist. A non-constant object counts as existing.

    Raise 42809 if a relation is not a sequence, and 42703 if there is no column of that name.
    """
    oid = _constant_value(value)
    if oid is None:
        return True
    catalog = _KINDS[kind][0]
    scope = "" if catalog == "pg_database" else f" AND dbid IN (0, {session.context.database})"
    shown = "relkind, relname" if catalog == "pg_class" else "'', ''"
    object_row = one(session.cursor, f"SELECT {shown} FROM hg.{catalog} WHERE oid = ?{scope}", [oid])
    if object_row is None:
        return False
    if kind == "sequence" and object_row[0] != "S":
        raise PostgresError("42809", f'"{object_row[1]}" is not a sequence')
    if kind != "column":
        return True
    by_name = column.type.oid in (t.TEXT, t.NAME)
    name = _constant_value(session.sql(column))
    if name is None:
        return True
    attribute = one(
        session.cursor,
        f"SELECT 1 FROM hg.pg_attribute WHERE attrelid = ?{scope} AND NOT attisdropped AND {'attname' if by_name else 'attnum'} = ?",
        [oid, name],
    )
    if attribute is None and by_name:
        raise PostgresError("42703", f'column "{name}" of relation "{object_row[1]}" does not exist')
    return attribute is not None


def _constant_value(sql: str) -> int | str | None:
    """Return the value of a constant SQL expression, or None if it has to be computed."""
    while (inside := re.fullmatch(r"CAST\((.*) AS \w+\)", sql)) is not None:
        sql = inside[1]
    if re.fullmatch(r"\d+", sql):
        return int(sql)
    text = re.fullmatch(r"'((?:[^']|'')*)'", sql)
    return None if text is None else text[1].replace("''", "'")


def _right(text: str, kind: str) -> tuple[str, bool]:
    word = text.upper()
    option = word.endswith(" WITH GRANT OPTION")
    letter = acl.LETTERS.get(word.removesuffix(" WITH GRANT OPTION"))
    if letter is None or letter not in _LETTERS[kind]:
        raise PostgresError("22023", f'unrecognized privilege type: "{text}"')
    return letter, option


def _role(session: CatalogPlanner, function: str, value: Expression) -> acl.RoleRights:
    """Return the rights of the role with this name or oid."""
    role_value = _constant(session, function, value)
    if isinstance(role_value, int):
        return acl.role(session.cursor, acl.role_name(session.cursor, role_value))
    return acl.EVERYBODY if role_value == "public" else acl.role(session.cursor, str(role_value))


def _constant(session: CatalogPlanner, function: str, value: Expression) -> object:
    """Return the value of an argument. Raise 0A000 if it is NULL or depends on the rows of the query."""
    if isinstance(value, Const) and value.type.oid in (t.TEXT, t.NAME) and value.value is not None:
        return value.value
    try:
        row = one(session.cursor, f"SELECT {session.sql(value)}")
    except PostgresError as error:
        raise not_supported(f"{function} of a name that is not a constant is not supported") from error
    if row is None or row[0] is None:
        raise not_supported(f"{function} of NULL is not supported")
    return row[0]


def _target(session: CatalogPlanner, kind: str, target: Expression, regtype: int) -> str:
    """Return the SQL of the object's oid."""
    named, sql = target.type.oid in (t.TEXT, t.NAME), session.sql(target)
    if kind == "database" and named:
        name = _constant_value(sql)
        if name is not None and not one(session.cursor, "SELECT 1 FROM hg.pg_database WHERE datname = ?", [name]):
            raise PostgresError("3D000", f'database "{name}" does not exist')
        return f"(SELECT _d.oid FROM hg.pg_database _d WHERE _d.datname = {sql})"
    if kind == "language" and named:
        language = str(_constant(session, "has_language_privilege", target))
        find = "SELECT oid FROM hg.pg_language WHERE dbid IN (0, ?) AND lanname = ?"
        return str(existing(one(session.cursor, find, [session.context.database, language]), "42704", f'language "{language}"')[0])
    if kind == "schema" and named and _constant_value(sql) is None:
        return f"(SELECT _n.oid FROM hg.pg_namespace _n WHERE _n.nspname = {sql} AND _n.dbid IN (0, {session.context.database}))"
    if kind == "function" and named:
        return _function(session, str(_constant(session, "has_function_privilege", target)))
    if named and regtype == t.REGCLASS and any(isinstance(node, ColumnRef) for node in walk(target)):
        return session.sql(CoerceViaIO(type=TypeRef(regtype), arg=target, form=Form.IMPLICIT))
    if named:
        return f"CAST({session.resolve(str(_constant(session, f'has_{kind}_privilege', target)), regtype, None)} AS UINTEGER)"
    return sql


def _function(session: CatalogPlanner, text: str) -> str:
    """Return the oid of a function that is named with its arguments.

    All functions of this name must have the same ACL, so any of their oids will do. Otherwise, raise 0A000.
    """
    name, opened, _ = text.partition("(")
    if not opened:
        raise PostgresError("22P02", "expected a left parenthesis")
    called = (split_identifiers(name, ".") or [name])[-1]
    functions = rows(
        session.cursor, "SELECT oid, proacl FROM hg.pg_proc WHERE dbid IN (0, ?) AND proname = ?", [session.context.database, called]
    )
    if not functions:
        raise PostgresError("42883", f'function "{text}" does not exist')
    if any(proacl != functions[0][1] for _, proacl in functions):
        raise not_supported(f'has_function_privilege of "{text}" is not supported', hint="Use the OID of the function.")
    return str(functions[0][0])


def _objects_with_right(session: CatalogPlanner, kind: str, role: acl.RoleRights, rights: Iterable[tuple[str, bool]]) -> set[int]:
    catalog, oid, owner, column, default, _ = _KINDS[kind]
    where = "" if catalog == "pg_database" else f" WHERE dbid IN (0, {session.context.database})"
    owners = dict(rows(session.cursor, "SELECT oid, rolname FROM hg.pg_authid"))
    kinds = ", relkind" if catalog == "pg_class" else ", ''"
    required = list(rights)
    oids = set()
    for object_oid, owned_by, acl_items, relkind in rows(
        session.cursor, f"SELECT {oid}, {owner}, {column}{kinds} FROM hg.{catalog}{where}"
    ):
        items = acl.read(acl_items, "s" if relkind == "S" else default, owners.get(owned_by, ""))
        by_role = _of_all_data(role, catalog, object_oid, relkind)
        if any(role.may(right, owned_by, items, option=option) or (right in by_role and not option) for right, option in required):
            oids.add(object_oid)
    return oids


def allowed(session: CatalogPlanner, kind: str, rights: Iterable[str]) -> set[int]:
    """Return the objects of a kind ("sequence", "database", …) on which the session's user has one of the rights."""
    role = acl.role(session.cursor, session.context.user)
    return _objects_with_right(session, kind, role, [_right(right, kind) for right in rights])


def _of_all_data(role: acl.RoleRights, catalog: str, oid: int, relkind: str) -> str:
    """Return the rights (letters) that members of pg_read_all_data and pg_write_all_data have on an object (pg_class_aclmask)."""
    reads, writes = READ_ALL_DATA in role.roles, WRITE_ALL_DATA in role.roles
    if catalog == "pg_namespace":
        return "U" if reads or writes else ""
    if catalog != "pg_class":
        return ""
    changes_data = writes and (oid >= t.FIRST_USER_OID or relkind == "v")
    return ("r" if reads else "") + ("awd" if changes_data else "")


def _columns(session: CatalogPlanner, role: acl.RoleRights, rights: Sequence[tuple[str, bool]]) -> list[tuple[int, int, str]]:
    """Return (relation, attnum, name) of the columns on which the role has one of the rights by a grant on the column."""
    columns = []
    for relation, attnum, name, acl_items in rows(
        session.cursor,
        "SELECT attrelid, attnum, attname, attacl FROM hg.pg_attribute WHERE dbid IN (0, ?) AND attacl IS NOT NULL AND NOT attisdropped",
        [session.context.database],
    ):
        if any(role.may(right, 0, acl.read(acl_items, "c", ""), option=option) for right, option in rights):
            columns.append((relation, attnum, name))
    return columns


def among(value: str, oids: Iterable[int]) -> str:
    """Return the SQL test whether an oid is one of `oids`."""
    listed = ", ".join(str(oid) for oid in sorted(oids))
    return f"{value} IN ({listed})" if listed else "FALSE"


def _column(value: str, sql: str, columns: Sequence[tuple[int, int, str]], *, by_name: bool) -> str:
    tests = []
    for relation, attnum, name in columns:
        quoted = name.replace("'", "''")
        shown = f"'{quoted}'" if by_name else str(attnum)
        tests.append(f"({value} = {relation} AND {sql} = {shown})")
    return " OR ".join(tests) or "FALSE"


def _has_role(session: CatalogPlanner, arguments: Sequence[Expression]) -> str:
    role = acl.role(session.cursor, session.context.user)
    target, privileges = arguments[-2:]
    if len(arguments) > 2 and all(argument.type.oid == t.OID for argument in arguments[:2]) and not isinstance(arguments[0], Const):
        return _whose_role(session, arguments[0], target, privileges)
    if len(arguments) > 2:
        role = _role(session, "pg_has_role", arguments[0])
    by_name, sql = target.type.oid in (t.TEXT, t.NAME), session.sql(target)
    if by_name and (name := _constant_value(sql)) is not None:
        roles.get(session.cursor, str(name))
    ways = _ways(session, privileges)
    if role.superuser:
        return f"({sql} IS NOT NULL OR NULL)"
    reached = {oid for way in ways for oid in _roles_of(session, role, way)}
    if by_name:
        listed = ", ".join("'" + acl.role_name(session.cursor, oid).replace("'", "''") + "'" for oid in sorted(reached)) or "NULL"
        return f"coalesce({sql} IN ({listed}), FALSE)"
    return f"CASE WHEN {sql} IS NOT NULL THEN {among(sql, reached)} END"


def _ways(session: CatalogPlanner, privileges: Expression) -> list[str]:
    """Return the kinds of membership that a call of pg_has_role tests."""
    ways = [_WAYS.get(privilege.strip().upper()) for privilege in str(_constant(session, "pg_has_role", privileges)).split(",")]
    if None in ways:
        raise PostgresError("22023", f'unrecognized privilege type: "{_constant(session, "pg_has_role", privileges)}"')
    return [str(way) for way in ways]


def _whose_role(session: CatalogPlanner, whose: Expression, target: Expression, privileges: Expression) -> str:
    """Return the SQL of pg_has_role for a role that differs by row: a CASE with a branch for each role."""
    sql, ways, cases = session.sql(target), _ways(session, privileges), []
    for oid, name in rows(session.cursor, "SELECT oid, rolname FROM hg.pg_authid"):
        role = acl.role(session.cursor, name)
        reached = {reached_oid for way in ways for reached_oid in _roles_of(session, role, way)}
        cases.append(f"WHEN {oid} THEN {'TRUE' if role.superuser else among(sql, reached)}")
    role_sql = session.sql(whose)
    return f"CASE WHEN {role_sql} IS NOT NULL AND {sql} IS NOT NULL THEN CASE {role_sql} {' '.join(cases)} ELSE FALSE END END"


def _roles_of(session: CatalogPlanner, role: acl.RoleRights, way: str) -> set[int]:
    """Return the roles whose rights a role has (USAGE), of which it is a member (MEMBER), or whose membership it may grant (ADMIN)."""
    member = roles.memberships(session.cursor, role.oid)
    if way == "ADMIN":
        grants = rows(session.cursor, "SELECT roleid, member FROM hg.pg_auth_members WHERE admin_option")
        return {oid for oid, admin in grants if admin in member and oid != role.oid}
    reached = set(role.roles) if way == "USAGE" else member
    owner = one(session.cursor, "SELECT datdba FROM hg.pg_database WHERE oid = ?", [session.context.database])
    return reached | {namespace.DATABASE_OWNER} if owner is not None and owner[0] in reached else reached


def _row_security_active(session: CatalogPlanner, arguments: Sequence[Expression]) -> str:
    role = acl.role(session.cursor, session.context.user)
    bypass = one(session.cursor, "SELECT rolsuper OR rolbypassrls FROM hg.pg_authid WHERE oid = ?", [role.oid])
    value = _target(session, "table", arguments[0], t.REGCLASS)
    if bypass and bypass[0]:
        return "FALSE"
    secured = rows(
        session.cursor,
        "SELECT oid, relowner, relforcerowsecurity FROM hg.pg_class WHERE dbid = ? AND relrowsecurity",
        [session.context.database],
    )
    return among(value, {oid for oid, owner, forced in secured if forced or owner not in role.roles})
