"""CREATE, ALTER and DROP of functions and procedures (manual, 38.3; PostgreSQL's functioncmds.c).

A PL/pgSQL function is compiled when it is created (plpgsql_validator), an SQL function is parsed. The names in them are resolved when they
run. Languages that could access the host are rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog import namespace as namespaces
from headgate.catalog.function import Argument, UserFunction
from headgate.catalog.physical import Cursor, update
from headgate.catalog.security import acl
from headgate.commands import default_privilege, dependency, lookup, privilege, stored_expression
from headgate.commands.function import body, definition_text, dependant, permission, row_call
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder, user_function
from headgate.expression.binding.coercion import to_specific
from headgate.expression.binding.scope import EMPTY
from headgate.expression.binding.signature import (
    ANYCOMPATIBLE,
    ANYCOMPATIBLEARRAY,
    ANYCOMPATIBLEMULTIRANGE,
    ANYCOMPATIBLENONARRAY,
    ANYCOMPATIBLERANGE,
    ANYNONARRAY,
    POLYMORPHIC,
)
from headgate.expression.deparsing import deparse
from headgate.expression.node import TypeRef
from headgate.sql import names, setting
from headgate.sql.options import Option, options
from headgate.sql.parser import ParseNode, unwrap
from headgate.types import registry

_MODES = {pb.FUNC_PARAM_IN: "i", pb.FUNC_PARAM_OUT: "o", pb.FUNC_PARAM_INOUT: "b", pb.FUNC_PARAM_VARIADIC: "v", pb.FUNC_PARAM_TABLE: "t",
          pb.FUNC_PARAM_DEFAULT: "i"}  # fmt: skip
ROUTINES = {pb.OBJECT_FUNCTION: "function", pb.OBJECT_PROCEDURE: "procedure", pb.OBJECT_ROUTINE: "routine"}
"""The names of the routine kinds in statements."""
_VOLATILITY = {"immutable": "i", "stable": "s", "volatile": "v"}
_PARALLEL = {"safe": "s", "restricted": "r", "unsafe": "u"}


def create(node: pb.CreateFunctionStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    kind = "p" if node.is_procedure else "f"
    schema, name = names.split_name(node.funcname, context.database_name)
    namespace, schema = lookup.creation_schema(cursor, context, schema or "")
    options_by_name = _unique(node.options)
    language = _language(options_by_name, node)
    permission.check_language(session, language)
    arguments = _arguments(node.parameters, session)
    result, is_set = _result(node, arguments, kind)
    _check_polymorphic(arguments, result)
    function = UserFunction(
        0, schema, namespace, name, privilege.role_oid(cursor, context.user), language, kind, arguments, result, is_set,
        _body(options_by_name, language), cost=100, rows=1000 if is_set else 0,
    )  # fmt: skip
    function = _with_options(function, options_by_name.values(), session)
    existing = next(
        (
            candidate
            for candidate in functions.named(cursor, context.database, name)
            if candidate.namespace == namespace and candidate.types == function.types
        ),
        None,
    )
    if existing is not None:
        function = _replacing(function, existing, session, replaces=node.replace)
    else:
        function = replace(function, oid=transaction.catalog.next_oid())
    if session.settings.text("check_function_bodies") != "off":
        body.check(function, session)
    _write(cursor, context.database, function)
    acl = default_privilege.default_acl(cursor, context.database, context.user, namespace, "f") if existing is None else None
    if acl is not None:
        update(cursor, "pg_proc", {"dbid": context.database, "oid": function.oid}, proacl=acl)
    return CommandResult("CREATE PROCEDURE" if kind == "p" else "CREATE FUNCTION")


def _write(cursor: Cursor, database: int, function: UserFunction) -> None:
    texts = functions.Texts(
        definition_text.definition(function), definition_text.arguments(function), definition_text.arguments(function, defaults=False),
        definition_text.result(function),
    )  # fmt: skip
    functions.write(cursor, database, function, texts)


def _unique(nodes: Sequence[pb.Node]) -> dict[str, Option]:
    by_name: dict[str, Option] = {}
    for place, option in enumerate(_options(nodes)):
        key = f"set {place}" if option.name == "set" else option.name
        if key in by_name:
            raise PostgresError("42601", "conflicting or redundant options", location=option.location)
        by_name[key] = option
    return by_name


def _options(nodes: Iterable[pb.Node]) -> Iterator[Option]:
    """Yield the options; those of AS and SET have nodes of their own, and no text."""
    for node in nodes:
        element = unwrap(node)
        if element.defname in ("as", "set"):
            yield Option(element.defname, None, element.location, unwrap(element.arg))
        else:
            yield from options([node])


def _language(options: dict[str, Option], node: ParseNode) -> int:
    if "language" not in options:
        if node.HasField("sql_body"):
            raise not_supported("a function body in SQL syntax is not supported", hint="Write the body as a string: AS $$ … $$.")
        raise PostgresError("42P13", "no language specified")
    name = options.pop("language").text().lower()
    if name in ("c", "internal"):
        raise not_supported(f'language "{name}" is not supported', detail="No code of a client's runs on the node's machine.")
    if name not in functions.LANGUAGES:
        raise PostgresError("42704", f'language "{name}" does not exist')
    if node.HasField("sql_body"):
        raise not_supported("a function body in SQL syntax is not supported", hint="Write the body as a string: AS $$ … $$.")
    return functions.LANGUAGES[name]


def _body(options: dict[str, Option], language: int) -> str:
    if "as" not in options:
        raise PostgresError("42P13", "no function body specified")
    node = options.pop("as").node
    assert node is not None
    texts = [unwrap(item).sval for item in node.items]
    if len(texts) > 1:
        named = next(name for name, oid in functions.LANGUAGES.items() if oid == language)
        raise PostgresError("42P13", f'only one AS item needed for language "{named}"')
    return str(texts[0])


def _arguments(nodes: Sequence[pb.Node], session: Session) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    used_names: set[tuple[str, str]] = set()
    for item in nodes:
        parameter = unwrap(item)
        oid = _type(parameter.arg_type)
        argument = Argument(_MODES[parameter.mode], parameter.name, oid, _default(parameter, oid, session))
        if arguments and arguments[-1].mode == "v" and argument.is_input:
            raise PostgresError("42P13", "VARIADIC parameter must be the last input parameter")
        if argument.mode == "v" and oid not in (registry.ANYARRAY, ANYCOMPATIBLEARRAY) and not registry.known().by_oid(oid).is_array:
            raise PostgresError("42P13", "VARIADIC parameter must be an array")
        if argument.is_input and argument.default is None and any(earlier.default is not None for earlier in arguments):
            raise PostgresError("42P13", "input parameters after one with a default value must also have defaults")
        if argument.default is not None and not argument.is_input:
            raise PostgresError("42P13", "only input parameters can have default values")
        sides = {("in", argument.name)} if argument.is_input else set()
        sides |= {("out", argument.name)} if argument.is_output else set()
        if argument.name and sides & used_names:
            raise PostgresError("42P13", f'parameter name "{argument.name}" used more than once')
        used_names |= sides
        arguments.append(argument)
    return tuple(arguments)


def _default(node: ParseNode, oid: int, session: Session) -> str | None:
    if not node.HasField("defexpr"):
        return None
    context = stored_expression.context(session.context.forms).within(
        construct="DEFAULT expressions", refuse_subquery="cannot use subquery in DEFAULT expression"
    )
    with user_function.resolving(row_call.Resolver(session, computes=False)):  # a host evaluates the text
        bound = binder.bind_raw(node.defexpr, EMPTY, context)
    kind = TypeRef(oid, -1, context.collation_of_type(oid))
    return deparse.stored(bound if oid in POLYMORPHIC else to_specific(bound, kind, "DEFAULT", context))


def _type(node: pb.TypeName) -> int:
    plain = pb.TypeName()
    plain.CopyFrom(node)
    plain.setof = False
    return names.type_name(plain)[0]


_FAMILIES = (
    (registry.ANYRANGE, registry.ANYMULTIRANGE),
    (ANYCOMPATIBLERANGE, ANYCOMPATIBLEMULTIRANGE),
    (registry.ANYELEMENT, registry.ANYARRAY, ANYNONARRAY, registry.ANYENUM, registry.ANYRANGE, registry.ANYMULTIRANGE),
    (ANYCOMPATIBLE, ANYCOMPATIBLEARRAY, ANYCOMPATIBLENONARRAY, ANYCOMPATIBLERANGE, ANYCOMPATIBLEMULTIRANGE),
)
"""Types of results, each with the types of inputs that determine it: the first family that has the type."""


def _check_polymorphic(arguments: Sequence[Argument], result: int) -> None:
    """Raise 42P13 for a polymorphic result or output without an input that determines it (check_valid_polymorphic_signature)."""
    inputs = {argument.type_oid for argument in arguments if argument.is_input}
    for oid in (*(argument.type_oid for argument in arguments if argument.is_output), result):
        if oid not in POLYMORPHIC:
            continue
        family = next(family for family in _FAMILIES if oid in family)
        if not inputs.isdisjoint(family):
            continue
        *first, last = map(registry.format_type, family)
        shown = f"{', '.join(first)}{',' if len(first) > 1 else ''} or {last}"
        detail = f"A result of type {registry.format_type(oid)} requires at least one input of type {shown}."
        raise PostgresError("42P13", "cannot determine result data type", detail=detail)


def _result(node: pb.CreateFunctionStmt, arguments: Sequence[Argument], kind: str) -> tuple[int, bool]:
    outputs = [argument for argument in arguments if argument.is_output]
    by_name = 0 if not outputs else outputs[0].type_oid if len(outputs) == 1 and kind == "f" else registry.RECORD
    if kind == "p":
        return (registry.RECORD if outputs else registry.VOID), False
    if not node.HasField("return_type"):
        if not outputs:
            raise PostgresError("42P13", "function result type must be specified")
        return by_name, False
    if any(output.mode == "t" for output in outputs):
        return by_name, True
    oid = _type(node.return_type)
    if outputs and oid != by_name:
        raise PostgresError("42P13", f"function result type must be {registry.format_type(by_name)} because of OUT parameters")
    return oid, node.return_type.setof


def _with_options(function: UserFunction, options: Iterable[Option], session: Session) -> UserFunction:
    for option in options:
        if function.kind == "p" and option.name not in ("security", "set"):
            raise PostgresError("42P13", "invalid attribute in procedure definition", location=option.location)
        match option.name:
            case "volatility":
                function = replace(function, volatility=_VOLATILITY[option.text()])
            case "strict":
                function = replace(function, strict=option.boolean())
            case "security":
                function = replace(function, security_definer=option.boolean())
            case "leakproof":
                if option.boolean() and not session.context.superuser:
                    raise PostgresError("42501", "only superuser can define a leakproof function")
                function = replace(function, leakproof=option.boolean())
            case "parallel":
                if option.text() not in _PARALLEL:
                    raise PostgresError("42601", 'parameter "parallel" must be SAFE, RESTRICTED, or UNSAFE')
                function = replace(function, parallel=_PARALLEL[option.text()])
            case "cost":
                if float(option.text()) <= 0:
                    raise PostgresError("22023", "COST must be positive")
                function = replace(function, cost=float(option.text()))
            case "rows":
                if not function.is_set:
                    raise PostgresError("22023", "ROWS is not applicable when function does not return a set")
                function = replace(function, rows=float(option.text()))
            case "set":
                function = replace(function, config=_config(function.config, option, session))
            case _:
                raise not_supported(f"the function option {option.name.upper()} is not supported", location=option.location)
    return function


def _config(before: tuple[str, ...], option: Option, session: Session) -> tuple[str, ...]:
    node = option.node
    assert node is not None
    remaining = tuple(entry for entry in before if entry.partition("=")[0] != node.name)
    if node.kind in (pb.VAR_RESET, pb.VAR_SET_DEFAULT):
        return remaining
    if node.kind == pb.VAR_RESET_ALL:
        return ()
    if node.kind == pb.VAR_SET_CURRENT:
        return (*remaining, f"{node.name}={session.settings.text(node.name)}")
    texts = setting.values(node.args)
    if node.name == "search_path":
        texts = [names.quote_ident(schema) for schema in texts]
    return (*remaining, f"{node.name}={', '.join(texts)}")


def _replacing(function: UserFunction, before: UserFunction, session: Session, *, replaces: bool) -> UserFunction:
    """Return the replacement of a function. Raise an error for changes that CREATE OR REPLACE does not allow (ProcedureCreate)."""
    if not replaces:
        raise PostgresError("42723", f'function "{function.name}" already exists with same argument types')
    privilege.check_owner(session.begin_statement().cursor, session.context.user, before.owner, _KINDS[before.kind], function.name)
    if function.kind != before.kind:
        raise PostgresError("42809", "cannot change routine kind", detail=f'"{function.name}" is a {_KINDS[before.kind]}.')
    shown = definition_text.signature(before)
    hint = f"Use DROP {_KINDS[before.kind].upper()} {shown} first."
    if (function.result, function.is_set) != (before.result, before.is_set):
        raise PostgresError("42P13", "cannot change return type of existing function", hint=hint)
    for old, new in zip(before.inputs, function.inputs, strict=True):
        if old.name and old.name != new.name:
            raise PostgresError("42P13", f'cannot change name of input parameter "{old.name}"', hint=hint)
        if old.default is not None and new.default is None:
            raise PostgresError("42P13", "cannot remove parameter defaults from existing function", hint=hint)
    return replace(function, oid=before.oid, owner=before.owner)


_KINDS = {"f": "function", "p": "procedure"}


# ---- other statements ---------------------------------------------------------------------------------------


def drop(node: pb.DropStmt, session: Session) -> CommandResult:
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    word = ROUTINES[node.remove_type]
    dropped: list[UserFunction] = []
    for item in node.objects:
        function = named(unwrap(item), session, cursor, word, missing_ok=node.missing_ok)
        if function is None:
            continue
        privilege.check_owner(cursor, context.user, function.owner, word, function.name)
        dropped.append(function)
    dependants = [entry for function in dropped for entry in dependant.of_function(session, function)]
    dependency.settle(
        transaction, dependants, [dependant.shown(session, function) for function in dropped], session.notices,
        cascade=node.behavior == pb.DROP_CASCADE, going=[(dependant.PROC, function.oid) for function in dropped],
    )  # fmt: skip
    for function in dropped:
        functions.drop(cursor, context.database, function.oid)
    return CommandResult(f"DROP {word.upper()}")


def named(node: ParseNode, session: Session, cursor: Cursor, word: str, *, missing_ok: bool = False) -> UserFunction | None:
    """Return the function that an ObjectWithArgs names. Raise 42883 if there is none, and 42725 if there are several."""
    name = names.strings(node.objname)[-1]
    functions_found = lookup.functions_named(cursor, session.context, node.objname)
    if not node.args_unspecified:
        types = tuple(_type(unwrap(type_node)) for type_node in node.objargs)
        functions_found = [function for function in functions_found if function.types == types]
    candidates = [function for function in functions_found if word in ("routine", _KINDS[function.kind])]
    if len(candidates) == 1:
        return candidates[0]
    shown = (
        name
        if node.args_unspecified
        else f"{name}({', '.join(registry.format_type(_type(unwrap(type_node))) for type_node in node.objargs)})"
    )
    if functions_found and not candidates and not node.args_unspecified:
        raise PostgresError("42809", f"{shown} is not a {word}")
    if len(candidates) > 1:
        hint = f"Specify the argument list to select the {word} unambiguously."
        raise PostgresError("42725", f'{word} name "{name}" is not unique', hint=hint)
    if missing_ok:
        if not node.args_unspecified:
            shown = f"{name}({','.join(names.shown_type(unwrap(type_node)) for type_node in node.objargs)})"
        session.notices.notice(f"{word} {shown} does not exist, skipping")
        return None
    if node.args_unspecified:
        raise PostgresError("42883", f'could not find a {word} named "{name}"')
    raise PostgresError("42883", f"{word} {shown} does not exist")


def alter(node: pb.AlterFunctionStmt, session: Session) -> CommandResult:
    word = ROUTINES[node.objtype]
    function = _owned(node.func, session, word)
    cursor = session.begin_statement().cursor
    _write(cursor, session.context.database, _with_options(function, _options(node.actions), session))
    return CommandResult(f"ALTER {word.upper()}")


def _owned(node: ParseNode, session: Session, word: str) -> UserFunction:
    cursor = session.begin_statement().cursor
    function = named(node, session, cursor, word)
    assert function is not None
    privilege.check_owner(cursor, session.context.user, function.owner, word, function.name)
    return function


def rename(node: pb.RenameStmt, session: Session) -> CommandResult:
    word = ROUTINES[node.rename_type]
    function = _owned(unwrap(node.object), session, word)
    cursor, context = session.begin_statement().cursor, session.context
    privilege.check_create_in_schema(cursor, context.user, context.database, function.namespace)
    return _moved(replace(function, name=node.newname), session, word)


def set_schema(node: pb.AlterObjectSchemaStmt, session: Session) -> CommandResult:
    word = ROUTINES[node.object_type]
    function = _owned(unwrap(node.object), session, word)
    cursor, context = session.begin_statement().cursor, session.context
    namespace = lookup.used_namespace(cursor, context.database, node.newschema)
    privilege.check_create_in_schema(cursor, context.user, context.database, namespace)
    return _moved(replace(function, namespace=namespace), session, word)


def _moved(new_function: UserFunction, session: Session, word: str) -> CommandResult:
    cursor, database = session.begin_statement().cursor, session.context.database
    if any(
        function.namespace == new_function.namespace and function.types == new_function.types
        for function in functions.named(cursor, database, new_function.name)
    ):
        shown = f"{new_function.name}({', '.join(map(registry.format_type, new_function.types))})"
        schema = namespaces.name_of(cursor, database, new_function.namespace)
        raise PostgresError("42723", f'function {shown} already exists in schema "{schema}"')
    _write(cursor, database, new_function)
    return CommandResult(f"ALTER {word.upper()}")


def change_owner(node: pb.AlterOwnerStmt, session: Session) -> CommandResult:
    word = ROUTINES[node.object_type]
    cursor, context = session.begin_statement().cursor, session.context
    name, owner = privilege.new_owner(cursor, context, node.newowner)
    function = named(unwrap(node.object), session, cursor, word)
    assert function is not None
    if owner != function.owner and not context.superuser:
        privilege.check_may_give(cursor, context.user, function.owner, word, function.name, name)
        privilege.check_create_in_schema(cursor, name, context.database, function.namespace)
    acl.give(cursor, "pg_proc", function.oid, owner, context.database)
    return CommandResult(f"ALTER {word.upper()}")
