"""has_table_privilege and its like, pg_has_role and row_security_active, inside a query on system catalogs.

Called by `session_call`. The objects on which the role has the right are looked up first; in the query the function is a test whether
an object is one of them, so that it costs the same for one row and for all rows of pg_class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from headgate.catalog import namespace
from headgate.catalog.physical import Cursor
from headgate.catalog.security import acl
from headgate.catalog.security import role as roles
from headgate.catalog.security.rights import one, rows
from headgate.catalog.security.role import READ_ALL_DATA, WRITE_ALL_DATA
from headgate.catalog.session import SessionContext
from headgate.errors import PostgresError, not_supported
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
}


_LETTERS = {kind: acl.EVERY["c" if "column" in kind else default] for kind, (*_, default, _) in _KINDS.items()}
"""The rights that one can ask about."""

_WAYS = {
    "USAGE": "USAGE", "MEMBER": "MEMBER",
    **{f"{word} WITH {option} OPTION": "ADMIN" for word in ("USAGE", "MEMBER") for option in ("GRANT", "ADMIN")},
}  # fmt: skip
"""What pg_has_role can be asked."""

_NOT_GIVEN = {
    "language": ("pg_language", "lanname", "language", ("USAGE",)),
    "tablespace": ("pg_tablespace", "spcname", "tablespace", ("CREATE",)),
    "foreign_data_wrapper": ("pg_foreign_data_wrapper", "fdwname", "foreign-data wrapper", ("USAGE",)),
    "server": ("pg_foreign_server", "srvname", "server", ("USAGE",)),
}
"""What nobody can be given rights on here: its catalog, name and noun, and the rights that one can ask about."""
_PARAMETER = "parameter"
_OPTION = " WITH GRANT OPTION"


class InquiryContext(Protocol):
    """What is asked of the query's planner."""

    context: SessionContext
    cursor: Cursor
    describing: bool

    def sql(self, expression: Expression) -> str:
        """The SQL of an expression."""

    def resolve(self, text: str, kind: int, where: int | None) -> int:
        """The oid that a name stands for."""


def call(session: InquiryContext, name: str, arguments: Sequence[Expression]) -> str:
    """The value of one of these functions."""
    if session.describing:
        return "FALSE"  # it does not run, and its parameters have no values
    if name == "row_security_active":
        return _row_security_active(session, arguments)
    if name == "pg_has_role":
        return _has_role(session, arguments)
    kind = name.removeprefix("has_").removesuffix("_privilege")
    width = 3 if kind == "column" else 2
    role = acl.role(session.cursor, session.context.user)
    if len(arguments) > width:
        role = _role(session, name, arguments[0])
    *_, wanted = arguments
    target = arguments[-width]
    if kind == _PARAMETER:
        return "TRUE" if role.superuser else "FALSE"
    if kind in _NOT_GIVEN:
        return _by_default(session, kind, role, target, str(_constant(session, name, wanted)))
    regtype = _KINDS[kind][5]
    rights = [_right(each.strip(), kind) for each in str(_constant(session, name, wanted)).split(",")]
    value = _target(session, kind, target, regtype)
    if not _there(session, kind, value, arguments[-2]):
        return "CAST(NULL AS BOOLEAN)"
    if role.superuser:
        return f"({value} IS NOT NULL OR NULL)"
    allowed = _allowed(session, kind, role, rights)
    found = among(value, allowed)
    if kind in ("column", "any_column"):
        columns = _columns(session, role, rights)
        found += " OR " + (
            among(value, {oid for oid, _, _ in columns})
            if kind == "any_column"
            else _column(value, session.sql(arguments[-2]), columns, by_name=arguments[-2].type.oid in (t.TEXT, t.NAME))
        )
    return f"CASE WHEN {value} IS NOT NULL THEN {found} END"


def _by_default(session: InquiryContext, kind: str, role: acl.RoleRights, target: Expression, wanted: str) -> str:
    """What superusers may, and everybody: use a language. 42704 for the name of no object, NULL for the oid of none."""
    catalog, column, noun, words = _NOT_GIVEN[kind]
    asked = [each.strip().upper() for each in wanted.split(",")]
    for each, word in zip(wanted.split(","), asked, strict=True):
        if word.removesuffix(_OPTION) not in words:
            raise PostgresError("22023", f'unrecognized privilege type: "{each.strip()}"')
    by_name = target.type.oid in (t.TEXT, t.NAME)
    if (
        by_name and isinstance(target, Const) and target.value is not None
        and not one(session.cursor, f"SELECT 1 FROM hg.{catalog} WHERE {column} = ?", [str(target.value)])
    ):  # fmt: skip
        raise PostgresError("42704", f'{noun} "{target.value}" does not exist')
    allowed = "TRUE" if role.superuser or (kind == "language" and words[0] in asked) else "FALSE"
    there = f"EXISTS (SELECT 1 FROM hg.{catalog} _o WHERE _o.{column if by_name else 'oid'} = {session.sql(target)})"
    return f"CASE WHEN {there} THEN {allowed} END"


def knows(name: str) -> bool:
    """Whether it is one of these functions."""
    if name in ("pg_has_role", "row_security_active"):
        return True
    kind = name.removeprefix("has_").removesuffix("_privilege")
    return name == f"has_{kind}_privilege" and (kind in _KINDS or kind in _NOT_GIVEN or kind == _PARAMETER)


def may_select(cursor: Cursor, context: SessionContext, oid: int) -> bool:
    """Whether the session's user may read a whole system relation."""
    found = one(cursor, "SELECT relowner, relacl FROM hg.pg_class WHERE dbid IN (0, ?) AND oid = ?", [context.database, oid])
    if found is None:
        return True
    role = acl.role(cursor, context.user)
    if READ_ALL_DATA in role.roles:
        return True
    return role.may("r", found[0], acl.read(found[1], "r", acl.role_name(cursor, found[0])))


def readable(cursor: Cursor, context: SessionContext) -> set[int]:
    """The relations of the session's database that its user may read as a whole: SELECT on them, USAGE of their schema."""
    role = acl.role(cursor, context.user)
    names = dict(rows(cursor, "SELECT oid, rolname FROM hg.pg_authid"))
    every = READ_ALL_DATA in role.roles
    schemas = set()
    found = rows(cursor, "SELECT oid, nspowner, nspacl FROM hg.pg_namespace WHERE dbid IN (0, ?)", [context.database])
    for oid, owner, given in found:
        if every or role.may("U", owner, acl.read(given, "n", names.get(owner, ""))):
            schemas.add(oid)
    readable = set()
    found = rows(cursor, "SELECT oid, relnamespace, relowner, relacl FROM hg.pg_class WHERE dbid = ?", [context.database])
    for oid, schema, owner, given in found:
        if schema in schemas and (every or role.may("r", owner, acl.read(given, "r", names.get(owner, "")))):
            readable.add(oid)
    return readable


def selectable_columns(cursor: Cursor, context: SessionContext, oid: int) -> set[int]:
    """The columns (attnums) of it that the user may read."""
    role = acl.role(cursor, context.user)
    given = rows(
        cursor, "SELECT attnum, attacl FROM hg.pg_attribute WHERE dbid IN (0, ?) AND attrelid = ? AND attacl IS NOT NULL",
        [context.database, oid],
    )  # fmt: skip
    return {attnum for attnum, items in given if role.may("r", 0, acl.read(items, "c", ""))}


def _there(session: InquiryContext, kind: str, value: str, column: Expression) -> bool:
    """Whether an object that is a constant is there, and its column; 42809 for a sequence that is none, 42703 for the name of no column."""
    oid = _known(value)
    if oid is None:
        return True
    catalog = _KINDS[kind][0]
    scope = "" if catalog == "pg_database" else f" AND dbid IN (0, {session.context.database})"
    shown = "relkind, relname" if catalog == "pg_class" else "'', ''"
    found = one(session.cursor, f"SELECT {shown} FROM hg.{catalog} WHERE oid = ?{scope}", [oid])
    if found is None:
        return False
    if kind == "sequence" and found[0] != "S":
        raise PostgresError("42809", f'"{found[1]}" is not a sequence')
    if kind != "column":
        return True
    by_name = column.type.oid in (t.TEXT, t.NAME)
    name = _known(session.sql(column))
    if name is None:
        return True
    attribute = one(
        session.cursor,
        f"SELECT 1 FROM hg.pg_attribute WHERE attrelid = ?{scope} AND NOT attisdropped AND {'attname' if by_name else 'attnum'} = ?",
        [oid, name],
    )
    if attribute is None and by_name:
        raise PostgresError("42703", f'column "{name}" of relation "{found[1]}" does not exist')
    return attribute is not None


def _known(sql: str) -> int | str | None:
    """The number or text that an expression is as it stands; None where it has to be computed, by the rows of the query maybe."""
    while (inside := re.fullmatch(r"CAST\((.*) AS \w+\)", sql)) is not None:
        sql = inside[1]
    if re.fullmatch(r"\d+", sql):
        return int(sql)
    text = re.fullmatch(r"'((?:[^']|'')*)'", sql)
    return None if text is None else text[1].replace("''", "'")


def _right(text: str, kind: str) -> tuple[str, bool]:
    word = text.upper()
    option = word.endswith(" WITH GRANT OPTION")
    found = acl.LETTERS.get(word.removesuffix(" WITH GRANT OPTION"))
    if found is None or found not in _LETTERS[kind]:
        raise PostgresError("22023", f'unrecognized privilege type: "{text}"')
    return found, option


def _role(session: InquiryContext, function: str, value: Expression) -> acl.RoleRights:
    """The role that is named, by name or oid."""
    found = _constant(session, function, value)
    if isinstance(found, int):
        return acl.role(session.cursor, acl.role_name(session.cursor, found))
    return acl.EVERYBODY if found == "public" else acl.role(session.cursor, str(found))


def _constant(session: InquiryContext, function: str, value: Expression) -> object:
    """An argument's value; 0A000 where it depends on the rows of the query: what cannot be decided is never true."""
    if isinstance(value, Const) and value.type.oid in (t.TEXT, t.NAME) and value.value is not None:
        return value.value
    try:
        found = one(session.cursor, f"SELECT {session.sql(value)}")
    except PostgresError as error:
        raise not_supported(f"{function} of a name that is no constant is not supported") from error
    if found is None or found[0] is None:
        raise not_supported(f"{function} of NULL is not supported")
    return found[0]


def _target(session: InquiryContext, kind: str, target: Expression, regtype: int) -> str:
    """The object as an oid."""
    named, sql = target.type.oid in (t.TEXT, t.NAME), session.sql(target)
    if kind == "database" and named:
        name = _known(sql)
        if name is not None and not one(session.cursor, "SELECT 1 FROM hg.pg_database WHERE datname = ?", [name]):
            raise PostgresError("3D000", f'database "{name}" does not exist')
        return f"(SELECT _d.oid FROM hg.pg_database _d WHERE _d.datname = {sql})"
    if kind == "schema" and named and _known(sql) is None:
        return f"(SELECT _n.oid FROM hg.pg_namespace _n WHERE _n.nspname = {sql} AND _n.dbid IN (0, {session.context.database}))"
    if kind == "function" and named:
        return _function(session, str(_constant(session, "has_function_privilege", target)))
    if named and regtype == t.REGCLASS and any(isinstance(each, ColumnRef) for each in walk(target)):
        return session.sql(CoerceViaIO(type=TypeRef(regtype), arg=target, form=Form.IMPLICIT))
    if named:
        return f"CAST({session.resolve(str(_constant(session, f'has_{kind}_privilege', target)), regtype, None)} AS UINTEGER)"
    return sql


def _function(session: InquiryContext, text: str) -> str:
    """The oid of a function that is named with its arguments; of several of one name any, as what one may do with them is the same."""
    name, opened, _ = text.partition("(")
    if not opened:
        raise PostgresError("22P02", "expected a left parenthesis")
    called = (split_identifiers(name, ".") or [name])[-1]
    found = rows(
        session.cursor, "SELECT oid, proacl FROM hg.pg_proc WHERE dbid IN (0, ?) AND proname = ?", [session.context.database, called]
    )
    if not found:
        raise PostgresError("42883", f'function "{text}" does not exist')
    if any(given != found[0][1] for _, given in found):
        raise not_supported(f'has_function_privilege of "{text}" is not supported', hint="Give the function's oid.")
    return str(found[0][0])


def _allowed(session: InquiryContext, kind: str, role: acl.RoleRights, rights: Iterable[tuple[str, bool]]) -> set[int]:
    catalog, oid, owner, column, default, _ = _KINDS[kind]
    where = "" if catalog == "pg_database" else f" WHERE dbid IN (0, {session.context.database})"
    owners = dict(rows(session.cursor, "SELECT oid, rolname FROM hg.pg_authid"))
    kinds = ", relkind" if catalog == "pg_class" else ", ''"
    wanted = list(rights)
    found = set()
    for each, owned_by, given, relkind in rows(session.cursor, f"SELECT {oid}, {owner}, {column}{kinds} FROM hg.{catalog}{where}"):
        items = acl.read(given, "s" if relkind == "S" else default, owners.get(owned_by, ""))
        by_role = _of_all_data(role, catalog, each, relkind)
        if any(role.may(right, owned_by, items, option=option) or (right in by_role and not option) for right, option in wanted):
            found.add(each)
    return found


def allowed(session: InquiryContext, kind: str, rights: Iterable[str]) -> set[int]:
    """Return the objects of a kind ("sequence", "database", …) on which the session's user has one of the rights."""
    role = acl.role(session.cursor, session.context.user)
    return _allowed(session, kind, role, [_right(each, kind) for each in rights])


def _of_all_data(role: acl.RoleRights, catalog: str, oid: int, relkind: str) -> str:
    """Return the rights (letters) that members of pg_read_all_data and pg_write_all_data have on an object (pg_class_aclmask)."""
    reads, writes = READ_ALL_DATA in role.roles, WRITE_ALL_DATA in role.roles
    if catalog == "pg_namespace":
        return "U" if reads or writes else ""
    if catalog != "pg_class":
        return ""
    changes_data = writes and (oid >= t.FIRST_USER_OID or relkind == "v")
    return ("r" if reads else "") + ("awd" if changes_data else "")


def _columns(session: InquiryContext, role: acl.RoleRights, rights: Sequence[tuple[str, bool]]) -> list[tuple[int, int, str]]:
    """(relation, attnum, name) of the columns on which the role has one of the rights by a grant on the column."""
    found = []
    for relation, attnum, name, given in rows(
        session.cursor,
        "SELECT attrelid, attnum, attname, attacl FROM hg.pg_attribute WHERE dbid IN (0, ?) AND attacl IS NOT NULL",
        [session.context.database],
    ):
        if any(role.may(right, 0, acl.read(given, "c", ""), option=option) for right, option in rights):
            found.append((relation, attnum, name))
    return found


def among(value: str, oids: Iterable[int]) -> str:
    """Return the SQL test whether an oid is one of these."""
    listed = ", ".join(str(each) for each in sorted(oids))
    return f"{value} IN ({listed})" if listed else "FALSE"


def _column(value: str, sql: str, columns: Sequence[tuple[int, int, str]], *, by_name: bool) -> str:
    tests = []
    for relation, attnum, name in columns:
        quoted = name.replace("'", "''")
        shown = f"'{quoted}'" if by_name else str(attnum)
        tests.append(f"({value} = {relation} AND {sql} = {shown})")
    return " OR ".join(tests) or "FALSE"


def _has_role(session: InquiryContext, arguments: Sequence[Expression]) -> str:
    role = acl.role(session.cursor, session.context.user)
    target, wanted = arguments[-2:]
    if len(arguments) > 2 and all(each.type.oid == t.OID for each in arguments[:2]) and not isinstance(arguments[0], Const):
        return _whose_role(session, arguments[0], target, wanted)
    if len(arguments) > 2:
        role = _role(session, "pg_has_role", arguments[0])
    by_name, sql = target.type.oid in (t.TEXT, t.NAME), session.sql(target)
    if by_name and (name := _known(sql)) is not None:
        roles.get(session.cursor, str(name))
    ways = _ways(session, wanted)
    if role.superuser:
        return f"({sql} IS NOT NULL OR NULL)"
    reached = {oid for way in ways for oid in _reached(session, role, way)}
    if by_name:
        listed = ", ".join("'" + acl.role_name(session.cursor, oid).replace("'", "''") + "'" for oid in sorted(reached)) or "NULL"
        return f"coalesce({sql} IN ({listed}), FALSE)"
    return f"CASE WHEN {sql} IS NOT NULL THEN {among(sql, reached)} END"


def _ways(session: InquiryContext, wanted: Expression) -> list[str]:
    """What pg_has_role is asked."""
    found = [_WAYS.get(each.strip().upper()) for each in str(_constant(session, "pg_has_role", wanted)).split(",")]
    if None in found:
        raise PostgresError("22023", f'unrecognized privilege type: "{_constant(session, "pg_has_role", wanted)}"')
    return [str(each) for each in found]


def _whose_role(session: InquiryContext, whose: Expression, target: Expression, wanted: Expression) -> str:
    """pg_has_role of a role that differs by the row: a case for each role that there is."""
    sql, ways, cases = session.sql(target), _ways(session, wanted), []
    for oid, name in rows(session.cursor, "SELECT oid, rolname FROM hg.pg_authid"):
        role = acl.role(session.cursor, name)
        reached = {each for way in ways for each in _reached(session, role, way)}
        cases.append(f"WHEN {oid} THEN {'TRUE' if role.superuser else among(sql, reached)}")
    asked = session.sql(whose)
    return f"CASE WHEN {asked} IS NOT NULL AND {sql} IS NOT NULL THEN CASE {asked} {' '.join(cases)} ELSE FALSE END END"


def _reached(session: InquiryContext, role: acl.RoleRights, way: str) -> set[int]:
    """The roles whose rights a role has (USAGE), of which it is a member, or whose memberships it may give (ADMIN)."""
    member = roles.memberships(session.cursor, role.oid)
    if way == "ADMIN":
        given = rows(session.cursor, "SELECT roleid, member FROM hg.pg_auth_members WHERE admin_option")
        return {oid for oid, admin in given if admin in member and oid != role.oid}
    found = set(role.roles) if way == "USAGE" else member
    owner = one(session.cursor, "SELECT datdba FROM hg.pg_database WHERE oid = ?", [session.context.database])
    return found | {namespace.DATABASE_OWNER} if owner is not None and owner[0] in found else found


def _row_security_active(session: InquiryContext, arguments: Sequence[Expression]) -> str:
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
