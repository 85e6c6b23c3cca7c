"""Functions that need the session (current_user, current_setting, to_regclass, has_…_privilege, now()) and functions with side effects.

A function with side effects (pg_drop_replication_slot, set_config, pg_sleep, …) is a Python callable that the caller provides. It is
called outside of the SQL: in FROM before the query (`from_item.call_functions`), in the SELECT list once per row (`volatile_function`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import duckdb

from headgate.catalog import database as databases
from headgate.catalog import procedure
from headgate.catalog.physical import one
from headgate.catalog.procedure import Procedure
from headgate.catalog.security import acl
from headgate.catalog.security import role as roles
from headgate.catalog.security.role import READ_ALL_SETTINGS
from headgate.catalog.session import SessionContext
from headgate.commands.query import instant
from headgate.commands.query.catalog import privilege_inquiry, regname
from headgate.commands.query.catalog.planner import CatalogPlanner
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.duckdb import call, literal
from headgate.expression.duckdb.value import duckdb_type, element_of, null, quote, raised
from headgate.expression.implementation.implementations import IMPLEMENTATIONS
from headgate.expression.node import ArrayExpr, ColumnRef, Const, Expression, FuncExpr, SqlValue, TypeRef, walk
from headgate.lsn import Lsn
from headgate.settings import definition
from headgate.storage.spark import failure
from headgate.types import registry as t

SERVER_VERSION = "15.18"

STABLE = frozenset(
    "pg_current_wal_lsn pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_last_wal_receive_lsn pg_last_wal_replay_lsn txid_current"
    " pg_current_xact_id pg_current_xact_id_if_assigned txid_current_if_assigned pg_postmaster_start_time pg_conf_load_time"
    " pg_last_xact_replay_timestamp pg_export_snapshot pg_replication_origin_progress pg_current_snapshot pg_current_logfile"
    " pg_replication_origin_oid pg_replication_origin_session_is_setup pg_replication_origin_session_progress".split()
)
"""Caller-provided functions that only read. With constant arguments they are called once, wherever they are used."""
_ACTING_ALWAYS = frozenset(
    "pg_terminate_backend pg_cancel_backend pg_reload_conf set_config pg_sleep pg_drop_replication_slot pg_replication_slot_advance"
    " pg_create_logical_replication_slot pg_current_wal_lsn pg_replication_origin_advance".split()
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TO_REGISTERED = {
    "to_regclass": t.REGCLASS, "to_regtype": t.REGTYPE, "to_regnamespace": t.REGNAMESPACE, "to_regrole": t.REGROLE, "to_regproc": t.REGPROC,
}  # fmt: skip


_TYPE_SHOWN = """CASE WHEN {o} IS NULL THEN NULL WHEN {o} = 0 THEN '-' ELSE coalesce(CASE WHEN {m} IS NULL THEN {x}.plain
 WHEN {m} < 0 OR NOT {x}.has_typmod THEN {x}.unmodified ELSE {x}.head || hg.typmod_text({x}.base, {m}) || {x}.tail END,
 CASE WHEN list_contains({p}, {n}.typnamespace) THEN '' ELSE hg.quote_ident({n}.nspname) || '.' END || hg.quote_ident({n}.typname)
 || {n}.brackets, '???') END"""
"""The SQL of hg.format_type if the rows that it looks up are joined to the query."""


def called(node: FuncExpr) -> str:
    """Return the name of a function among the caller's functions."""
    function = builtin.function(node.function)
    return function.key if function.schema == procedure.OWN_SCHEMA else function.name


def session_call(planner: CatalogPlanner, node: FuncExpr) -> str | None:
    """Return the SQL of a session function's value, or None for other functions."""
    name = called(node)
    if name in planner.functions or name in _ACTING_ALWAYS:
        return _call_stable(planner, name, node)
    if privilege_inquiry.knows(name):
        return _privilege(planner, name, node)
    if name in instant.FUNCTIONS:
        return _moment(planner, name, node.type)
    if name in _TO_REGISTERED:
        return _to_registered(planner, node, _TO_REGISTERED[name])
    if name in _FIXED:
        return _FIXED[name](planner.context)
    if name in _CURRENT:
        planner.kept_view = False
        return _CURRENT[name](planner.context)
    function = _FUNCTIONS.get(name)
    return None if function is None else function(planner, node.args, node)


def acts(node: FuncExpr, functions: Collection[str]) -> bool:
    """Return whether a call has side effects. `functions`: the names of the caller's functions."""
    name = called(node)
    return (name in functions or name in _ACTING_ALWAYS) and name not in STABLE


def has_form(node: FuncExpr, functions: Collection[str]) -> bool:
    """Return whether the catalogs compute a call without side effects. `functions`: the names of the caller's functions."""
    name = called(node)
    if name in functions or name in _ACTING_ALWAYS:
        return name in STABLE and name in functions
    if privilege_inquiry.knows(name) or any(name in table for table in (instant.FUNCTIONS, _TO_REGISTERED, _FIXED, _CURRENT, _FUNCTIONS)):
        return True
    entry = IMPLEMENTATIONS.get(builtin.function(node.function).key)
    return entry is not None and entry.duckdb is not None


def session_value(planner: CatalogPlanner, node: SqlValue) -> str:
    """Return the SQL of CURRENT_USER, CURRENT_DATE and similar values."""
    if node.type.oid != t.NAME:
        return _moment(planner, "now", node.type)
    context = planner.context
    words = {"SESSION_USER": context.session_user, "CURRENT_CATALOG": context.database_name}
    return _current_schema(planner) if node.name == "CURRENT_SCHEMA" else quote(words.get(node.name, context.user))


def _moment(planner: CatalogPlanner, function: str, target: TypeRef) -> str:
    planner.kept_view = False
    return literal.constant(instant.constant(planner.context, target, planner.binding, function), planner)


def moment(planner: CatalogPlanner, node: Expression) -> int | None:
    """Return now() and similar timestamptz values in microseconds since 1970, or None for other expressions."""
    if isinstance(node, SqlValue):
        function = "now"
    elif isinstance(node, FuncExpr) and called(node) in instant.FUNCTIONS:
        function = called(node)
    else:
        return None
    if node.type.oid != t.TIMESTAMPTZ:
        return None
    planner.kept_view = False
    return (planner.context.moment(function) - _EPOCH) // datetime.timedelta(microseconds=1)


def _to_registered(planner: CatalogPlanner, node: FuncExpr, kind: int) -> str:
    text = _constant(planner, node.args[0])
    if text is None:
        return null(t.OID)
    try:
        return f"CAST({resolve(planner, str(text), kind, None)} AS UINTEGER)"
    except PostgresError as error:
        if error.sqlstate == "42501":
            raise
        return null(t.OID)


def resolve(planner: CatalogPlanner, text: str, kind: int, where: int | None) -> int:
    """Return the oid for the text of a reg… literal, resolved with the session's search path (`regname`)."""
    oid = regname.resolve(planner.cursor, planner.context, lambda: list(planner.schema_oids()), text, kind, where)
    if oid >= t.FIRST_USER_OID:
        planner.kept_view = False  # with the search path pg_catalog of a view's body, system oids do not change
    return oid


# ---- privileges ------------------------------------------------------------------------------------------------------------


def _privilege(planner: CatalogPlanner, name: str, node: FuncExpr) -> str:
    if not planner.context.superuser or (name == "pg_has_role" and len(node.args) > 2):
        planner.kept_view = False
    return privilege_inquiry.call(planner, name, node.args)


# ---- functions that act ---------------------------------------------------------------------------------------------------


def _call_stable(planner: CatalogPlanner, name: str, node: FuncExpr) -> str:
    """Call a function that only reads, and return its value. Raise 0A000 for a function with side effects."""
    chosen = procedure.procedures()[node.function]
    callee = planner.functions.get(name)
    if callee is None:
        raise not_supported(f"function {name} is not supported", location=node.location)
    if name not in STABLE:
        raise not_supported(f"function {name} is only supported in FROM or as a column of its own", location=node.location)
    check_right(planner, chosen)
    planner.kept_view = False
    return constant(callee(*given_values(planner, node)), chosen.result)


def check_right(planner: CatalogPlanner, procedure: Procedure) -> None:
    """Raise 42501 for a function that PUBLIC may not execute, unless the user has been granted it."""
    if procedure.granted is None or planner.context.superuser:
        return
    role = acl.role(planner.cursor, planner.context.user)
    if not any(role.owns(roles.get(planner.cursor, grantee).oid) for grantee in procedure.granted):
        raise PostgresError("42501", f"permission denied for function {procedure.name}")


def check_arguments(planner: CatalogPlanner, node: FuncExpr) -> None:
    """Raise 42704 for a constant name of a publication that does not exist."""
    if builtin.function(node.function).name != "pg_get_publication_tables" or not isinstance(node.args[0], Const):
        return
    if node.function == procedure.PUBLICATION_TABLES:
        return
    planner.kept_view = False
    sql = "SELECT 1 FROM hg.pg_publication WHERE dbid = ? AND pubname = ?"
    if one(planner.cursor, sql, [planner.context.database, node.args[0].value]) is None:
        raise PostgresError("42704", f'publication "{node.args[0].value}" does not exist')


def given_values(planner: CatalogPlanner, node: FuncExpr) -> list[object]:
    """Return the Python values of a call's arguments, which must be constants."""
    return [_constant(planner, argument) for argument in spread(node)]


def _constant(planner: CatalogPlanner, expression: Expression) -> object:
    """Return the Python value of an expression without columns. Raise 0A000 if it has columns."""
    if isinstance(expression, Const) and (expression.value is None or expression.type.oid in (t.TEXT, t.NAME)):
        return expression.value
    try:
        [row] = planner.cursor.execute(f"SELECT {planner.sql(expression)}").fetchall()
    except duckdb.Error as error:
        raise not_supported("an argument of this function must be a constant") from error
    return python_value(row[0], expression.type.oid)


def _current_schema(env: CatalogPlanner, _args: Sequence[Expression] = (), _node: FuncExpr | None = None) -> str:
    env.kept_view = False
    schemas = [name for name in env.schema_oids() if name != env.context.temp_schema]
    return quote(schemas[0]) if schemas else null(t.NAME)


def _current_schemas(env: CatalogPlanner, args: Sequence[Expression], _node: FuncExpr) -> str:
    env.kept_view = False
    schemas = [name for name in env.schema_oids() if name != env.context.temp_schema]
    if _constant(env, args[0]):
        schemas = schemas if "pg_catalog" in schemas else ["pg_catalog", *schemas]
        schemas = schemas if env.context.temp_schema is None else [env.context.temp_schema, *schemas]
    return f"CAST([{', '.join(quote(schema) for schema in schemas)}] AS VARCHAR[])"


def _pg_my_temp_schema(env: CatalogPlanner, _args: Sequence[Expression], _node: FuncExpr) -> str:
    env.kept_view = env.kept_view and env.context.temp_schema is None
    return f"CAST({env.schema_oids().get(env.context.temp_schema or '', 0)} AS UINTEGER)"


def _pg_is_wal_replay_paused(env: CatalogPlanner, _args: Sequence[Expression], node: FuncExpr) -> str:
    hint = "Recovery control functions can only be executed during recovery."  # pgAdmin asks behind CASE WHEN pg_is_in_recovery()
    return raised("55000", failure.with_fields("recovery is not in progress", hint=hint), node.type.oid)


def _age(env: CatalogPlanner, args: Sequence[Expression], node: FuncExpr) -> str | None:
    """Return the SQL of age(timestamptz), relative to midnight of the current date."""
    if builtin.function(node.function).key != "age/1184" or not env.in_utc:
        return None
    return f"age({_moment(env, 'now', TypeRef(t.DATE))}, {env.sql(args[0])})"


def _current_setting(env: CatalogPlanner, args: Sequence[Expression], _node: FuncExpr) -> str:
    env.kept_view = False
    reads_all = acl.role(env.cursor, env.context.user).owns(READ_ALL_SETTINGS)
    if any(isinstance(node, ColumnRef) for node in walk(args[0])):
        visible = [(key, value) for key, value in env.context.settings.items() if reads_all or not definition.is_guarded(key)]
        entries = ", ".join(f"{quote(key.lower())}: {quote(value)}" for key, value in visible)
        return f"(MAP {{{entries}}})[lower({env.sql(args[0])})]" if entries else null(t.TEXT)
    name = _constant(env, args[0])
    if name is None:
        return null(t.TEXT)
    by_name = {key.lower(): value for key, value in env.context.settings.items()}
    if str(name).lower() in by_name:
        if definition.is_guarded(str(name)) and not reads_all:
            raise definition.guarded(str(name).lower())
        return quote(by_name[str(name).lower()])
    defaults = {"server_version": SERVER_VERSION, "server_version_num": "150018", "search_path": ", ".join(env.context.search_path)}
    if str(name).lower() in defaults:
        return quote(defaults[str(name).lower()])
    if len(args) > 1 and _constant(env, args[1]):
        return null(t.TEXT)
    raise PostgresError("42704", f'unrecognized configuration parameter "{name}"')


def _format_type(env: CatalogPlanner, args: Sequence[Expression], _node: FuncExpr) -> str | None:
    """Join the type's texts to the rows. User-defined types (and rows of catalogs) have no text, so their names are joined too."""
    key = _looked_up(env, args[0])
    if key is None:
        return None
    text = _join_lookup(env, "SELECT * FROM hg.type_text", key)
    named = _join_lookup(env, f"SELECT * FROM hg.type_name WHERE dbid IN (0, {env.database})", key)
    return _TYPE_SHOWN.format(o=key, m=env.sql(args[1]), x=text, n=named, p=env.path)


def _pg_get_userbyid(env: CatalogPlanner, args: Sequence[Expression], _node: FuncExpr) -> str | None:
    key = _looked_up(env, args[0])
    if key is None:
        return None
    role = _join_lookup(env, "SELECT oid, rolname FROM hg.pg_authid", key)
    return f"coalesce({role}.rolname, 'unknown (OID=' || CAST({key} AS VARCHAR) || ')')"


def _looked_up(env: CatalogPlanner, oid: Expression) -> str | None:
    """Return the key of a column to which lookup rows can be joined, or None for any other expression."""
    if env.lookups is None or not isinstance(oid, ColumnRef) or oid.key not in env.lookups.keys:
        return None
    return env.column(oid.key)


def _join_lookup(env: CatalogPlanner, rows: str, key: str) -> str:
    """Return the alias of lookup rows that are left-joined to the SELECT by their oid."""
    assert env.lookups is not None
    return env.lookups.joined.setdefault((rows, key), env.alias("n"))


def _pg_get_expr(env: CatalogPlanner, args: Sequence[Expression], node: FuncExpr) -> str | None:
    """Read the pretty-printed form from its own column."""
    if len(args) < 3 or not (isinstance(args[2], Const) and args[2].value == "t"):
        return None
    sqls = [env.sql(argument) for argument in args]
    sqls[0] = re.sub(r'"(adbin|conbin|indpred)"\Z', r'"\1pretty"', sqls[0])
    return call.apply(node.function, node, args, sqls, env)


def _pg_sequence_last_value(env: CatalogPlanner, args: Sequence[Expression], node: FuncExpr) -> str | None:
    name = "SELECT _c.relname FROM hg.pg_class _c WHERE _c.dbid IN (0, {db}) AND _c.oid = {oid}"
    return _guard(env, args, node, "sequence", ("USAGE", "SELECT"), name)


def _pg_database_size(env: CatalogPlanner, args: Sequence[Expression], node: FuncExpr) -> str | None:
    database_name = args[0].value if isinstance(args[0], Const) and args[0].type.oid in (t.TEXT, t.NAME) else None
    if database_name is not None and databases.lookup(env.cursor, str(database_name)) is None:
        raise PostgresError("3D000", f'database "{database_name}" does not exist')
    if acl.role(env.cursor, env.context.user).owns(roles.READ_ALL_STATS):
        return None
    named = args[0].type.oid in (t.TEXT, t.NAME)
    name = "SELECT _d.datname FROM hg.pg_database _d WHERE _d.oid = {oid}"
    return _guard(env, args, node, "database", ("CONNECT",), name, _database_oid if named else None)


def _database_oid(name: str) -> str:
    return f"(SELECT _d.oid FROM hg.pg_database _d WHERE _d.datname = {name})"


def _guard(
    env: CatalogPlanner,
    args: Sequence[Expression],
    node: FuncExpr,
    kind: str,
    rights: Sequence[str],
    name: str,
    to_oid: Callable[[str], str] | None = None,
) -> str | None:
    """Return the call if the user has one of the rights on its object, otherwise 42501. None for a superuser, who needs no right.

    `name` is the query for the object's name, with {oid} and {db}. `to_oid` returns the SQL of the object's oid for the argument.
    """
    if env.context.superuser:
        return None
    env.kept_view = False
    value = env.sql(args[0])
    oid = value if to_oid is None else to_oid(value)
    allowed = privilege_inquiry.allowed(env, kind, rights)
    name_query = name.format(db=env.database, oid=oid)
    if not any(isinstance(node, ColumnRef) for node in walk(args[0])):
        # raised here, because an error in DuckDB would abort its transaction
        row = one(env.cursor, f"SELECT {oid}, ({name_query})")
        if row is not None and row[1] is not None and row[0] not in allowed:
            raise PostgresError("42501", f"permission denied for {kind} {row[1]}")
        return None
    error_sql = raised("42501", f"permission denied for {kind} ", node.type.oid, tail=f"({name_query})")
    call_sql = call.apply(node.function, node, args, [value], env)
    return f"CASE WHEN {privilege_inquiry.among(oid, allowed)} OR NOT EXISTS ({name_query}) THEN {call_sql} ELSE {error_sql} END"


_FIXED: Mapping[str, Callable[[SessionContext], str]] = {
    "current_database": lambda context: quote(context.database_name),
    "current_user": lambda context: quote(context.user),
    "session_user": lambda context: quote(context.session_user),
    "version": lambda context: quote(f"PostgreSQL {(context.setting('server_version') or SERVER_VERSION).split()[0]} (headgate)"),
}
"""Functions of the session whose values a kept view may contain (`kept_view`)."""
_CURRENT: Mapping[str, Callable[[SessionContext], str]] = {
    "inet_client_addr": lambda context: null(t.INET) if context.client_addr is None else quote(context.client_addr),
    "inet_client_port": lambda context: f"CAST({context.client_port or 'NULL'} AS INTEGER)",
    "inet_server_addr": lambda context: null(t.INET) if context.server_addr is None else quote(context.server_addr),
    "inet_server_port": lambda context: f"CAST({context.server_port or 'NULL'} AS INTEGER)",
    "pg_backend_pid": lambda context: str(context.pid),
    "pg_client_encoding": lambda context: quote(context.setting("client_encoding") or "UTF8"),
    "pg_trigger_depth": lambda context: str(context.trigger_depth),
    "timeofday": lambda context: quote(context.moment("timeofday").strftime("%a %b %d %H:%M:%S.%f %Y UTC")),
}
"""Functions of the session whose values a kept view must not contain."""
_FUNCTIONS: Mapping[str, Callable[[CatalogPlanner, Sequence[Expression], FuncExpr], str | None]] = {
    "age": _age,
    "current_schema": _current_schema,
    "current_schemas": _current_schemas,
    "current_setting": _current_setting,
    "format_type": _format_type,
    "pg_database_size": _pg_database_size,
    "pg_get_expr": _pg_get_expr,
    "pg_get_userbyid": _pg_get_userbyid,
    "pg_is_wal_replay_paused": _pg_is_wal_replay_paused,
    "pg_my_temp_schema": _pg_my_temp_schema,
    "pg_sequence_last_value": _pg_sequence_last_value,
}
"""Functions that need more of the session. They return None for a call that the compiler translates like any other."""


def spread(node: FuncExpr) -> tuple[Expression, ...]:
    """Return the arguments of a call, with the elements of a variadic array as separate arguments."""
    function = builtin.function(node.function)
    if not function.variadic or node.variadic or not node.args:
        return node.args
    *fixed, last = node.args
    return (*fixed, *last.elements) if isinstance(last, ArrayExpr) else node.args


def python_value(value: object, kind: int) -> object:
    """Convert a DuckDB value to the argument of a Python function: pg_lsn becomes Lsn."""
    return Lsn(value) if kind == t.PG_LSN and isinstance(value, int) else value


def constant(value: object, kind: int) -> str:
    """Return a Python value as an SQL constant of a type."""
    if value is None:
        return null(kind)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"CAST({int(value)} AS {duckdb_type(kind)})"
    if isinstance(value, list | tuple):
        element = element_of(kind) or t.TEXT
        return f"CAST([{', '.join(constant(item, element) for item in value)}] AS {duckdb_type(kind)})"
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
        return f"CAST({quote(moment.isoformat(sep=' '))} AS TIMESTAMP)"
    return f"CAST({quote(str(value))} AS {duckdb_type(kind)})"


def result_rows(callee: Callable[..., object], values: Iterable[object], procedure: Procedure) -> list[tuple[object, ...]]:
    """Call a caller-provided function and return its rows.

    A scalar result is a row of one column, a tuple is a row, and a void result is not NULL.
    """
    result = callee(*values)
    if procedure.result == t.VOID and not procedure.is_set and not procedure.outputs:
        return [("",)]
    if not procedure.is_set and not procedure.outputs:
        return [(result,)]
    assert isinstance(result, Iterable)
    if procedure.is_set:
        return [tuple(row) if isinstance(row, list | tuple) else (row,) for row in result]
    return [tuple(result)]
