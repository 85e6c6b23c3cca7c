"""Call user-defined functions, and run CALL and DO.

A call runs with the rights of the caller, or of the function's owner if it is SECURITY DEFINER. The function's SET clauses apply while it
runs. The nesting depth is limited (54001).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog.function import PLPGSQL, Argument, UserFunction
from headgate.commands import lookup, privilege
from headgate.commands.function import body, definition_text, permission
from headgate.commands.function.function_choice import CALL_ARGUMENTS, choose_procedure
from headgate.commands.function.host import SessionHost, of_parameters, only_reads
from headgate.commands.function.prepared_text import Prepared
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression.binding import named_argument
from headgate.expression.binding.signature import POLYMORPHIC
from headgate.expression.node import BOOLEAN, TypeRef
from headgate.plpgsql import interpreter
from headgate.plpgsql import tree as trees
from headgate.plpgsql.host import Host
from headgate.plpgsql.interpreter import Execution
from headgate.plpgsql.scope import Scope, Value, Variable, type_of
from headgate.plpgsql.tree import Sql
from headgate.sql import command_tag, names
from headgate.sql.parser import beginning, parse, position, unwrap
from headgate.types import registry
from headgate.types.resultset import ResultColumn, ResultSet, of_rows
from headgate.types.text import record

DEEPEST = 60
"""Maximum nesting depth of function calls in a session. Each call takes about 25 frames of Python's stack."""
INLINE = "inline_code_block"


def do(node: pb.DoStmt, session: Session) -> CommandResult:
    session.begin_statement()
    options = {unwrap(option).defname: unwrap(unwrap(option).arg).sval for option in node.args}
    language = options.get("language", "plpgsql").lower()
    if language != "plpgsql":
        if language not in (*functions.LANGUAGES, "c", "internal"):
            raise PostgresError("42704", f'language "{language}" does not exist')
        raise PostgresError("0A000", f'language "{language}" does not support inline code execution')
    if "as" not in options:
        raise PostgresError("42601", "no inline code specified")
    permission.check_language(session, PLPGSQL)
    inline = UserFunction(0, "", 0, INLINE, 0, PLPGSQL, "f", (), registry.VOID, False, options["as"])
    run(inline, (), session, may_end_transaction=_is_outermost(session))
    return CommandResult("DO")


def _is_outermost(session: Session) -> bool:
    """Return whether a client runs the statement outside a transaction block, or a procedure that may end the transaction runs it."""
    return session.context.may_end_transaction if session.context.function_depth else not session.in_block


def call(node: pb.CallStmt, session: Session) -> CommandResult | ResultSet:
    """Run CALL. The arguments are evaluated after the procedure has been found. Its OUT parameters are returned as a row.

    The arguments of OUT parameters are not evaluated, but a literal must be valid for its parameter.
    """
    host, scope = SessionHost(session, Prepared()), of_parameters(session)
    types = {number: parameter.type_oid for number, parameter in enumerate(session.parameters, 1)}
    described: list[tuple[Value, pb.Node]] = []

    def value_of(argument: pb.Node) -> Value:
        described.append((host.described_node(argument, types, **CALL_ARGUMENTS), argument))
        return described[-1][0]

    def node_of(value: Value) -> pb.Node:
        return next(argument for other, argument in described if other is value)

    def evaluated(value: Value) -> Value:
        return host.evaluate_node(node_of(value), scope)

    def unused(value: Value, oid: int) -> Value:
        if value.type.oid == registry.UNKNOWN:
            try:
                host.cast(evaluated(value), type_of(oid))
            except PostgresError as error:
                error.position = position(beginning(node_of(value)))
                raise
        return value

    procedure, choice = choose_procedure(node.funccall, session, value_of)
    given = [
        None if value is None else evaluated(value) if argument.is_input else unused(value, argument.type_oid)
        for value, argument in zip(choice.given, procedure.arguments, strict=True)
    ]
    choice = replace(choice, given=given, spread=[evaluated(value) for value in choice.spread])
    values = choice.arguments(host.array_of, host.evaluate_text)
    inputs = [value for argument, value in zip(procedure.arguments, values, strict=True) if argument.is_input]
    may_end_transaction = _is_outermost(session) and not procedure.security_definer and not procedure.config
    execution = run(procedure, inputs, session, may_end_transaction=may_end_transaction)
    columns = _columns(procedure)
    if columns is None:
        return CommandResult("CALL")
    row = execution.rows[0] if execution.rows else []
    return of_rows(columns, [[value.text for value in row]], "CALL")


def described(node: pb.CallStmt, session: Session, parameters: dict[int, int]) -> tuple[ResultColumn, ...] | None:
    """Return the columns of CALL without running it. `parameters` receives the types of the parameters that are arguments."""
    host = SessionHost(session, Prepared())

    def value_of(argument: pb.Node) -> Value:
        try:
            return host.described_node(argument, parameters)
        except PostgresError:
            return Value(TypeRef(registry.UNKNOWN), None)

    procedure, _ = choose_procedure(node.funccall, session, value_of)
    by_name = {argument.name: argument for argument in procedure.arguments}
    for item, positional in zip(map(unwrap, node.funccall.args), procedure.arguments, strict=False):
        is_named = named_argument.is_named(item)
        inner, argument = (unwrap(item.arg), by_name[item.name]) if is_named else (item, positional)
        if inner.DESCRIPTOR.name == "ParamRef" and parameters.get(inner.number) in (0, registry.UNKNOWN):
            parameters[inner.number] = argument.type_oid
    columns = _columns(procedure)
    return None if columns is None else tuple(columns)


def _columns(procedure: UserFunction) -> list[ResultColumn] | None:
    return [ResultColumn(output.name, output.type_oid) for output in procedure.outputs] or None


def run(function: UserFunction, inputs: Sequence[Value], session: Session, *, may_end_transaction: bool = False) -> Execution:
    """Run a function with the values of its input arguments. The execution has its result, with OUT parameters in its first row."""
    execution = Execution(
        SessionHost(session, Prepared("use_column")),  # as SQL functions read names; PL/pgSQL replaces the host
        shown(function, session),
        is_set=function.is_set,
        outputs=tuple(
            argument.name or f"${number}" for number, argument in enumerate(function.arguments, 1) if argument in function.outputs
        ),
    )
    if function.language != PLPGSQL:
        with acting(function, session):
            _run_sql(function, inputs, execution)
        return execution
    function_body = body.of(function, session)
    execution.host = SessionHost(session, function_body.prepared)
    with acting(function, session, may_end_transaction=may_end_transaction):
        interpret(function, function_body.function, inputs, execution)
    return execution


def _columns_of_set(function: UserFunction, host: Host) -> Sequence[TypeRef] | None:
    """Return the types of the columns that RETURN QUERY must give, None for records and polymorphic types."""
    kinds = [TypeRef(output.type_oid) for output in function.outputs] or [TypeRef(function.result)]
    if not function.outputs and host.types.is_row(kinds[0]) and function.result != registry.RECORD:
        return [kind for _, kind in host.types.fields(kinds[0])]
    return None if any(kind.oid == registry.RECORD or kind.oid in POLYMORPHIC for kind in kinds) else kinds


def interpret(function: UserFunction, tree: trees.Function, inputs: Sequence[Value], execution: Execution) -> None:
    """Run the tree of a PL/pgSQL function. The execution then has its result."""
    host = execution.host
    execution.result_is_row = host.types.is_row(TypeRef(function.result))
    execution.columns = _columns_of_set(function, host)
    scope = root_scope(function.name)
    _give(function.arguments, inputs, host, scope)
    interpreter.run(tree, execution, scope)
    if function.outputs and not function.is_set:
        execution.rows.append(interpreter.output(execution, scope))
    elif not execution.has_returned and function.kind == "f" and function.result != registry.VOID and not function.is_set:
        raise PostgresError("2F005", "control reached end of function without RETURN", context=f"PL/pgSQL function {execution.shown}")
    if isinstance(execution.result, Value) and not function.is_set and function.result != registry.VOID:
        execution.line, execution.doing = 0, "while casting return value to function's return type"
        try:
            execution.result = host.cast(execution.result, type_of(function.result))
        except PostgresError as error:
            raise error.within(interpreter.context(execution)) from error


def _give(arguments: Sequence[Argument], inputs: Sequence[Value], host: Host, scope: Scope) -> None:
    """Add a function's arguments to the scope as variables, by number and by name. `inputs`: the values of the input arguments."""
    values = iter(inputs)
    for number, argument in enumerate(arguments, 1):
        kind = type_of(argument.type_oid)
        variable = Variable(argument.name or f"${number}", kind, None, host.types.is_row(kind))
        if argument.is_input:
            value = host.cast(next(values), kind)
            variable.value = host.types.row_of(value) if variable.row else value
        elif not variable.row:
            variable.value = Value(kind, None)
        scope.names[f"${number}"] = variable
        if argument.name:
            scope.names[argument.name] = variable


def root_scope(label: str) -> Scope:
    """Return the scope that every function starts with: FOUND."""
    scope = Scope(label)
    scope.names["found"] = Variable("found", BOOLEAN, Value(BOOLEAN, "f"))
    return scope


def _run_sql(function: UserFunction, inputs: Sequence[Value], execution: Execution) -> None:
    """Run the statements of an SQL function. The rows of the last one are its result."""
    scope = Scope(function.name)
    _give(function.inputs, inputs, execution.host, scope)
    outcome = None
    statements = parse(function.body)
    for statement in statements:
        if statement.kind == "TransactionStmt":
            where = "an SQL function"
        elif function.volatility != "v" and not only_reads(statement.node):
            where = "a non-volatile function"
        else:
            continue
        message = f"{command_tag.of(statement.node)} is not allowed in {where}"
        raise PostgresError("0A000", message, context=f'SQL function "{function.name}" during startup')
    try:
        for statement in statements:
            outcome = execution.host.run(Sql(statement.source, is_statement=True), scope)
    except PostgresError as error:
        error.context = None if error.context is None else error.context.partition("\n")[2] or None
        raise error.within(f'SQL function "{function.name}" statement {len(statements)}') from error
    if outcome is None or outcome.rows is None:
        if function.result != registry.VOID:
            raise PostgresError("42P13", f"return type mismatch in function declared to return {registry.format_type(function.result)}")
        return
    result_rows = [outcome.rows.values(row) for row in outcome.rows.rows]
    if function.is_set:
        execution.rows = list(result_rows)
    elif function.outputs:
        execution.rows = list(result_rows[:1])
    elif result_rows and function.result != registry.VOID:
        execution.result = _result_of(result_rows[0], type_of(function.result), execution.host)


def _result_of(row: Sequence[Value], target: TypeRef, host: Host) -> Value:
    """Return the row of an SQL function's last statement as its result."""
    if len(row) == 1:
        return host.cast(row[0], target)
    fields = host.types.fields(target) if host.types.is_row(target) else ()
    values = [host.cast(value, kind) for value, (_, kind) in zip(row, fields, strict=True)] if len(fields) == len(row) else row
    return Value(target, record.print_record([value.text for value in values]))


def shown(function: UserFunction, session: Session) -> str:
    """Return a function's name in error contexts, with its schema if the search path does not find it (format_procedure)."""
    if not function.oid:
        return INLINE
    return definition_text.visible_signature(function, lookup.search_path(session.begin_statement().cursor, session.context))


@contextlib.contextmanager
def acting(function: UserFunction, session: Session, *, may_end_transaction: bool = False) -> Iterator[None]:
    """Within it the session is the function's: its owner's if it is SECURITY DEFINER, with the function's SETs and no transition tables."""
    context = session.context
    depth = context.function_depth + 1
    if depth > DEEPEST:
        hint = "The calls of functions exceed the nesting depth that a node allows."
        raise PostgresError("54001", "stack depth limit exceeded", hint=hint)
    outer = context.may_end_transaction, context.only_reads
    context.may_end_transaction, context.only_reads = may_end_transaction, function.volatility != "v"
    tables, session.transition_tables = session.transition_tables, {}
    context.function_depth = depth
    try:
        settings = {name: value for name, _, value in (entry.partition("=") for entry in function.config)}
        with contextlib.ExitStack() as within:
            if function.security_definer:
                within.enter_context(privilege.acting_as(function.owner, session.begin_statement().cursor, context))
            if settings.get("role", "none") != "none":
                cursor = session.begin_statement().cursor
                role = privilege.settable_role(cursor, context.session_user, settings["role"])
                within.enter_context(privilege.acting_as(role.oid, cursor, context))
            session.use_types()
            within.enter_context(session.settings.within(settings, superuser=context.superuser))
            if "search_path" in settings:
                within.callback(setattr, context, "search_path", context.search_path)
                context.search(names.split_identifiers(settings["search_path"]) or [])
            within.enter_context(registry.unguarded(elsewhere=False))
            yield
    finally:
        context.function_depth = depth - 1
        context.may_end_transaction, context.only_reads = outer
        session.transition_tables = tables
        session.use_types()
