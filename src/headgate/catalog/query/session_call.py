"""Functions that need the session: current_user, current_setting, to_regclass, has_…_privilege, now(), and those that act.

A function that acts (pg_drop_replication_slot, set_config, pg_sleep, …) is a Python callable that the caller gives. In the select
list it is called per row of the result, after the query; elsewhere it is called once, before.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
from postgast import pg_query_pb2 as pb

from headgate.catalog import namespace
from headgate.catalog.physical import Cursor, duckdb_type
from headgate.catalog.query import privilege_inquiry, regname
from headgate.catalog.query.call import CallWriter
from headgate.catalog.query.cast import CatalogNames, coerce, implicit
from headgate.catalog.query.procedure import Procedure, fitting, procedures
from headgate.catalog.query.scope import QueryScope
from headgate.catalog.query.value import TypedSql, element_of, no_function, null, position, quote
from headgate.catalog.security import acl
from headgate.catalog.security import role as roles
from headgate.catalog.security.role import READ_ALL_SETTINGS
from headgate.catalog.session import SessionContext
from headgate.errors import PostgresError, not_supported
from headgate.lsn import Lsn
from headgate.settings import definition
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry as t

SERVER_VERSION = "15.18"
VERSION = f"PostgreSQL {SERVER_VERSION} (headgate)"

STABLE = frozenset(
    "pg_current_wal_lsn pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_last_wal_receive_lsn pg_last_wal_replay_lsn txid_current"
    " pg_current_xact_id pg_current_xact_id_if_assigned txid_current_if_assigned pg_postmaster_start_time pg_conf_load_time"
    " pg_last_xact_replay_timestamp pg_export_snapshot pg_replication_origin_progress pg_current_snapshot pg_blocking_pids"
    " pg_replication_origin_oid pg_replication_origin_session_is_setup pg_replication_origin_session_progress".split()
)
"""Functions of the caller's that only read: called once, wherever they stand, if their arguments are constants."""


@dataclass(frozen=True)
class Acting:
    """A call that waits for its rows: hidden result columns [first, first + count) hold the arguments."""

    name: str
    keywords: tuple[str | None, ...]
    types: tuple[int, ...]
    result: int
    procedure: Procedure


class SessionFunctions(CallWriter):
    """The functions of a session. Needs `context`, `cursor`, `functions`, `describing`."""

    context: SessionContext
    cursor: Cursor
    functions: Mapping[str, Callable[..., Any]]
    describing: bool
    acting: list[tuple[Acting, list[TypedSql]]]
    names: CatalogNames
    path_cache: dict[tuple[str, ...], dict[str, int]]

    def session_call(self, name: str, node: pb.FuncCall, scope: QueryScope) -> TypedSql | None:
        """The value of a session function; None for a name that is none."""
        if name in self.functions or name in _ACTING_ALWAYS:
            return self._call_given(name, node, scope)
        if name in _MOMENTS:
            return self._moment(name)
        if privilege_inquiry.knows(name):
            return self._privilege(name, node, scope)
        method = getattr(self, f"_fn_{name}", None)
        if method is None:
            return None
        arguments = [] if node is None else self.expressions(node.args, scope)
        found: TypedSql = method(arguments, node)
        return found

    # ---- who and where -----------------------------------------------------------------------------------------------------

    def _fn_current_database(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return TypedSql(quote(self.context.database_name), t.NAME)

    _fn_current_catalog = _fn_current_database

    def _fn_current_user(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return TypedSql(quote(self.context.user), t.NAME)

    _fn_user = _fn_current_role = _fn_current_user

    def _fn_session_user(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return TypedSql(quote(self.context.session_user), t.NAME)

    def _schemas(self) -> list[str]:
        return list(self.schema_oids())

    def schema_oids(self) -> dict[str, int]:
        """The search path's schemas that exist, with their oids; read once per statement and search path."""
        key = tuple(self.context.search_path)
        if key not in self.path_cache:
            self.path_cache[key] = namespace.effective_oids(
                self.cursor, self.context.database, self.context.user, key, self.context.temp_schema
            )
        return self.path_cache[key]

    def _fn_current_schema(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        found = [name for name in self._schemas() if name != self.context.temp_schema]
        return TypedSql(quote(found[0]), t.NAME) if found else TypedSql("CAST(NULL AS VARCHAR)", t.NAME)

    def _fn_current_schemas(self, arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        found = [name for name in self._schemas() if name != self.context.temp_schema]
        if arguments and arguments[0].sql == "TRUE":
            found = found if "pg_catalog" in found else ["pg_catalog", *found]
            found = found if self.context.temp_schema is None else [self.context.temp_schema, *found]
        return TypedSql(f"CAST([{', '.join(quote(each) for each in found)}] AS VARCHAR[])", t.NAME_ARRAY)

    def _fn_pg_client_encoding(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return TypedSql(quote(self.context.setting("client_encoding") or "UTF8"), t.NAME)

    def _fn_pg_my_temp_schema(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        made = self.schema_oids().get(self.context.temp_schema or "", 0)
        return TypedSql(f"CAST({made} AS UINTEGER)", t.OID)

    def _fn_pg_is_wal_replay_paused(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        hint = "Recovery control functions can only be executed during recovery."
        raise PostgresError("55000", "recovery is not in progress", hint=hint)

    def _fn_version(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return TypedSql(quote(VERSION), t.TEXT)

    def _fn_pg_backend_pid(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return TypedSql(str(self.context.pid), t.INT4)

    def _fn_inet_client_addr(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return _text_or_null(self.context.client_addr, t.INET)

    def _fn_inet_server_addr(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return _text_or_null(self.context.server_addr, t.INET)

    def _fn_inet_client_port(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return TypedSql(f"CAST({self.context.client_port or 'NULL'} AS INTEGER)", t.INT4)

    def _fn_inet_server_port(self, _arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return TypedSql(f"CAST({self.context.server_port or 'NULL'} AS INTEGER)", t.INT4)

    def _fn_current_setting(self, arguments: list[TypedSql], node: ParseNode) -> TypedSql:
        reads_all = self.describing or acl.role(self.cursor, self.context.user).owns(READ_ALL_SETTINGS)
        given = arguments[0]
        if given.literal is None and not given.parameter and "." in given.sql and not given.sql.startswith("'"):  # of a column
            seen = [(key, value) for key, value in self.context.settings.items() if reads_all or not definition.is_guarded(key)]
            known = ", ".join(f"{quote(key.lower())}: {quote(value)}" for key, value in seen)
            return TypedSql(f"(MAP {{{known}}})[lower({arguments[0].sql})]", t.TEXT) if known else null(t.TEXT)
        name = self._constant(arguments[0], t.TEXT)
        if name is None:
            return null(t.TEXT)
        by_name = {key.lower(): value for key, value in self.context.settings.items()}
        if str(name).lower() in by_name:
            if definition.is_guarded(str(name)) and not reads_all:
                raise definition.guarded(str(name).lower())
            return TypedSql(quote(by_name[str(name).lower()]), t.TEXT)
        defaults = {"server_version": SERVER_VERSION, "server_version_num": "150018", "search_path": ", ".join(self.context.search_path)}
        if str(name).lower() in defaults:
            return TypedSql(quote(defaults[str(name).lower()]), t.TEXT)
        if (len(arguments) > 1 and arguments[1].sql == "TRUE") or self.describing:
            return TypedSql("CAST(NULL AS VARCHAR)", t.TEXT)
        raise PostgresError("42704", f'unrecognized configuration parameter "{name}"')

    def _fn_pg_get_keywords(self, _arguments: list[TypedSql], node: ParseNode) -> TypedSql:
        raise not_supported("pg_get_keywords is not supported", position=position(node.location))

    # ---- names ---------------------------------------------------------------------------------------------------------------

    def _to_reg(self, arguments: list[TypedSql], kind: int) -> TypedSql:
        text = self._constant(arguments[0], t.TEXT)
        if text is None:
            return TypedSql("CAST(NULL AS UINTEGER)", kind)
        try:
            return TypedSql(f"CAST({self.resolve(str(text), kind, None)} AS UINTEGER)", kind)
        except PostgresError as error:
            if error.sqlstate == "42501":
                raise
            return TypedSql("CAST(NULL AS UINTEGER)", kind)

    def _fn_to_regclass(self, arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return self._to_reg(arguments, t.REGCLASS)

    def _fn_to_regtype(self, arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return self._to_reg(arguments, t.REGTYPE)

    def _fn_to_regnamespace(self, arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return self._to_reg(arguments, t.REGNAMESPACE)

    def _fn_to_regrole(self, arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return self._to_reg(arguments, t.REGROLE)

    def _fn_to_regproc(self, arguments: list[TypedSql], _node: ParseNode) -> TypedSql:
        return self._to_reg(arguments, t.REGPROC)

    def resolve(self, text: str, kind: int, where: int | None) -> int:
        """The oid that the text of a reg… literal stands for along the session's search path (`regname`)."""
        return regname.resolve(self.cursor, self.context, self._schemas, text, kind, where)

    # ---- privileges, time ------------------------------------------------------------------------------------------------------

    def _privilege(self, name: str, node: pb.FuncCall, scope: QueryScope) -> TypedSql:
        given = self.expressions(node.args, scope)
        if len(given) not in privilege_inquiry.widths(name):
            raise no_function(name, given, node.location)
        return privilege_inquiry.call(self, name, given)

    def _moment(self, name: str) -> TypedSql:
        now = self.context.moment(name).replace(tzinfo=None)
        kind = _MOMENTS[name]
        if kind == t.TEXT:
            return TypedSql(quote(now.strftime("%a %b %d %H:%M:%S.%f %Y UTC")), t.TEXT)
        return TypedSql(f"CAST({quote(now.isoformat(sep=' '))} AS {duckdb_type(kind)})", kind)

    # ---- functions that act ---------------------------------------------------------------------------------------------------

    def _call_given(self, name: str, node: pb.FuncCall, scope: QueryScope) -> TypedSql:
        procedure = procedures().get(name)
        if procedure is None:
            raise PostgresError("42883", f"function {name} does not exist", position=position(node.location))
        chosen, arguments, keywords = self._chosen(procedure, node, scope)
        callee = self.functions.get(name)
        if callee is None:
            raise not_supported(f"function {name} is not supported", position=position(node.location))
        if chosen.is_set and not chosen.outputs:
            raise not_supported(f"function {name} is only supported in FROM", position=position(node.location))
        if name in STABLE:
            if self.describing:
                return TypedSql(f"CAST(NULL AS {duckdb_type(chosen.result)})", chosen.result)
            result = callee(*[self._constant(value, value.type) for value in arguments])
            return constant(result, chosen.result)
        self.acting.append((Acting(name, keywords, tuple(value.type for value in arguments), chosen.result, chosen), arguments))
        return TypedSql(f"<acting {len(self.acting) - 1}>", t.RECORD if chosen.outputs else chosen.result, struct=chosen.outputs)

    def _chosen(
        self, candidates: list[Procedure], node: ParseNode, scope: QueryScope
    ) -> tuple[Procedure, list[TypedSql], tuple[str | None, ...]]:
        """The first function of the name that takes the arguments, and these cast to its types; 42883 if none does."""
        possible = fitting(candidates, node)
        for place, each in enumerate(possible):
            try:
                found = (each, *self.acting_arguments(each, node, scope))
            except PostgresError as error:
                if error.sqlstate != "42883" or place == len(possible) - 1:
                    raise
                continue
            self.check_right(each)
            return found
        raise AssertionError

    def check_right(self, procedure: Procedure) -> None:
        """42501 for a function that is not PUBLIC's, unless the user has been granted it."""
        if procedure.granted is None or self.context.superuser:
            return
        role = acl.role(self.cursor, self.context.user)
        if not any(role.owns(roles.get(self.cursor, each).oid) for each in procedure.granted):
            raise PostgresError("42501", f"permission denied for function {procedure.name}")

    def acting_arguments(self, procedure: Procedure, node: pb.FuncCall, scope: QueryScope) -> tuple[list[TypedSql], tuple[str | None, ...]]:
        """The arguments of a function that acts, cast to its declared types; names of those given by name."""
        values: list[TypedSql] = []
        keywords: list[str | None] = []
        for place, each in enumerate(node.args):
            inner = unwrap(each)
            keyword = inner.name if inner.DESCRIPTOR.name == "NamedArgExpr" else None
            value = self.expression(inner.arg if keyword else inner, scope)
            if keyword:
                target = dict(zip(procedure.argument_names, procedure.arguments, strict=False)).get(keyword, t.TEXT)
            elif place < len(procedure.arguments):
                target = procedure.arguments[place]
            else:
                target = procedure.variadic or t.TEXT
            if procedure.variadic and place >= len(procedure.arguments) - 1:
                target = procedure.variadic
            if implicit(value.type, target) is None:
                given = self.expressions([unwrap(a).arg if unwrap(a).DESCRIPTOR.name == "NamedArgExpr" else a for a in node.args], scope)
                raise no_function(procedure.name, given, node.location)
            values.append(coerce(value, target, self.names))
            keywords.append(keyword)
        if len(values) < procedure.required or (len(values) > len(procedure.arguments) and not procedure.variadic):
            raise no_function(procedure.name, values, node.location)
        return values, tuple(keywords)

    def _constant(self, value: TypedSql, kind: int) -> Any:
        """The Python value of an expression without columns."""
        settled = coerce(value, kind, self.names) if value.unknown else value
        try:
            [found] = self.cursor.execute(f"SELECT {settled.sql}").fetchall()
        except duckdb.Error as error:
            raise not_supported("an argument of this function must be a constant") from error
        return python_value(found[0], settled.type)


def python_value(value: Any, kind: int) -> Any:
    """A value of DuckDB's as a function that acts gets it: pg_lsn as Lsn."""
    return Lsn(value) if kind == t.PG_LSN and value is not None else value


def constant(value: Any, kind: int) -> TypedSql:
    """A Python value as SQL of a type."""
    if value is None:
        return TypedSql(f"CAST(NULL AS {duckdb_type(kind)})", kind)
    if isinstance(value, bool):
        return TypedSql("TRUE" if value else "FALSE", kind)
    if isinstance(value, int):
        return TypedSql(f"CAST({int(value)} AS {duckdb_type(kind)})", kind)
    if isinstance(value, list | tuple):
        element = element_of(kind) or t.TEXT
        return TypedSql(f"CAST([{', '.join(constant(each, element).sql for each in value)}] AS {duckdb_type(kind)})", kind)
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
        return TypedSql(f"CAST({quote(moment.isoformat(sep=' '))} AS TIMESTAMP)", kind)
    return TypedSql(f"CAST({quote(str(value))} AS {duckdb_type(kind)})", kind)


_MOMENTS = {
    "now": t.TIMESTAMPTZ, "transaction_timestamp": t.TIMESTAMPTZ, "statement_timestamp": t.TIMESTAMPTZ, "clock_timestamp": t.TIMESTAMPTZ,
    "current_timestamp": t.TIMESTAMPTZ, "localtimestamp": t.TIMESTAMP, "current_date": t.DATE, "timeofday": t.TEXT,
}  # fmt: skip

_ACTING_ALWAYS = frozenset(
    "pg_terminate_backend pg_cancel_backend pg_reload_conf set_config pg_sleep pg_drop_replication_slot pg_replication_slot_advance"
    " pg_create_logical_replication_slot pg_current_wal_lsn pg_replication_origin_advance".split()
)


def _text_or_null(value: str | None, kind: int) -> TypedSql:
    return TypedSql("CAST(NULL AS VARCHAR)" if value is None else quote(value), kind)
