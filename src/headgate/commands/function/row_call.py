"""Calls of user-defined functions whose arguments depend on the row: in a SELECT list, WHERE, DEFAULT or CHECK.

`Resolver` provides the binder (`expression.binding.user_function`) with the functions of a session's database. The server activates it
together with the session's types. A bound call has one of three forms:

    an SQL function of one expression             its body, which replaces the call (`inlining`)
    a PL/pgSQL function that only computes        `RowFunction`, which runs the interpreter for each row: in Spark's tasks, or in the node
    any other function                            `SessionFunction`, which the driver calls for each row (`commands.query.row_by_row`)

Tasks do not have a session. So a function that they call cannot read tables, write, or send messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog.function import PLPGSQL, UserFunction
from headgate.commands import lookup, stored_expression
from headgate.commands.function import body, call, inlining
from headgate.commands.function.function_choice import as_builtin, choose_bound, passed
from headgate.commands.function.host import SessionHost
from headgate.commands.function.permission import check_execute
from headgate.commands.function.prepared_text import Prepared
from headgate.commands.function.row_function import Library, Program, RowFunction
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding import named_argument, overload_resolution
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.function_call import clause
from headgate.expression.node import Expression, Param, TypeRef, UserCall, walk
from headgate.plpgsql import reach
from headgate.plpgsql.scope import Row, Value, type_of
from headgate.sql import names
from headgate.sql.parser import parse, unwrap
from headgate.sql.parser import walk as parts_of
from headgate.types import registry
from headgate.types.text import record


class SessionFunction:
    """A function that needs a session."""

    needs_session = True

    def __init__(self, function: UserFunction, session: Session) -> None:
        self._function, self._session = function, session

    def of_row(self, row: Sequence[str | None]) -> str | None:
        function = self._function
        if function.strict and None in row:
            return None
        execution = call.run(function, [Value(type_of(oid), text) for oid, text in zip(function.types, row, strict=True)], self._session)
        if function.result == registry.VOID:
            return ""
        if function.outputs:
            texts = [value.text for value in execution.rows[0]] if execution.rows else []
            return record.print_record(texts) if len(texts) > 1 else next(iter(texts), None)
        result = execution.result
        if isinstance(result, Row):
            result = execution.host.types.value_of(result)
        return None if result is None else result.text


class Resolver:
    """The functions of a session's database. A call needs EXECUTE."""

    def __init__(self, session: Session, *, computes: bool = True) -> None:
        """Create the resolver. Without `computes`, calls are bound for their types and texts, without a check of EXECUTE."""
        self._session, self._computes = session, computes
        self._inlined: list[int] = []
        """The SQL functions whose bodies are being bound, the outermost first."""

    def __call__(self, node: pb.FuncCall, args: Sequence[Expression], context: BindContext) -> Expression | None:
        """Return the bound call, or None if there is no user-defined function of this name, or a built-in one fits better.

        A text of the catalog has references to user-defined functions, so a plain name in it is that of a built-in function.
        """
        session = self._session
        if not functions.exist(session.begin_statement().cursor, session.context.database):
            return None
        is_stored = context.stored or registry.is_unguarded()
        parts = names.strings(node.funcname)
        candidates = [] if is_stored and len(parts) == 1 else self._named(parts)
        if not candidates or self._means_builtin(node, candidates, args, context):
            return None
        function, arguments = choose_bound(node, candidates, args, context)
        if self._computes:
            check_execute(self._session, function)
        return self._bound(function, arguments, node, context)

    def _means_builtin(
        self, node: pb.FuncCall, candidates: Sequence[UserFunction], args: Sequence[Expression], context: BindContext
    ) -> bool:
        """Return whether a call of a name that built-in functions have too means one of them."""
        parts = names.strings(node.funcname)
        is_named = any(named_argument.is_named(unwrap(argument)) for argument in node.args)
        same_named = builtin.builtins().functions_named.get(parts[-1], ()) if len(parts) == 1 else ()
        if not same_named or is_named:
            return bool(same_named)
        types = [arg.type.oid for arg in args]
        is_cast = len(args) == 1 and context.types.find_name(parts[0], "pg_catalog") is not None
        path = lookup.search_path(self._session.begin_statement().cursor, self._session.context)
        place = path.index("pg_catalog") if "pg_catalog" in path else 0
        before = [candidate for candidate in candidates if path.index(candidate.schema) < place]
        after = [candidate for candidate in candidates if candidate not in before]
        offered = [*map(as_builtin, before), *same_named, *map(as_builtin, after)]
        chosen = overload_resolution.among(offered, types, context, variadic=node.func_variadic)
        if chosen is None or chosen.function is None:
            return True
        return chosen.function.oid < registry.FIRST_USER_OID or (is_cast and list(chosen.arguments) != types)

    def _named(self, parts: Sequence[str]) -> list[UserFunction]:
        """Return the functions that a name can denote, in the order of the search path."""
        cursor, context = self._session.begin_statement().cursor, self._session.context
        return lookup.functions_named(cursor, context, [pb.Node(string=pb.String(sval=part)) for part in parts])

    def _bound(self, function: UserFunction, inputs: Sequence[Expression], node: pb.FuncCall, context: BindContext) -> UserCall:
        session = self._session
        location = node.location
        if function.is_set and not context.sets:
            raise PostgresError("0A000", f"set-returning functions are not allowed in {clause(context)}", location=location)
        if function.is_set:
            raise not_supported("a set-returning function of one's own is only supported in FROM", location=location)
        cursor = session.begin_statement().cursor
        visible = function.schema in lookup.search_path(cursor, session.context)
        same_named = builtin.builtins().functions_named.get(function.name, ())
        hides_builtin = overload_resolution.among(same_named, [argument.type.oid for argument in inputs], context) is not None
        fields = tuple((output.name, type_of(output.type_oid)) for output in function.outputs) if function.result == registry.RECORD else ()
        bound_call = UserCall(
            type=replace(type_of(function.result), fields=fields), function=function.oid, name=function.name,
            schema="" if visible and not hides_builtin else function.schema, args=tuple(inputs),
            passed=passed(node, function), variadic=bool(function.inputs) and function.inputs[-1].mode == "v",
            volatility=function.volatility, strict=function.strict, location=node.location,
        )  # fmt: skip
        if not self._computes:
            return bound_call
        if self._has_rows(function):
            return replace(bound_call, compute=SessionFunction(function, session))
        if function.language == PLPGSQL:
            return replace(bound_call, compute=self._row_function(function) or SessionFunction(function, session))
        if function.oid in self._inlined:
            raise PostgresError("54001", "stack depth limit exceeded", hint="An SQL function calls itself.")
        self._inlined.append(function.oid)
        try:
            with call.acting(function, session):
                inlined = inlining.body(function, context, location)
        except PostgresError as error:
            if error.sqlstate != "0A000":
                raise
            return replace(bound_call, compute=SessionFunction(function, session))
        finally:
            self._inlined.pop()
        uses = [node_part.number for node_part in walk(inlined) if isinstance(node_part, Param)]
        if any(uses.count(number) != 1 and stored_expression.volatile(argument) for number, argument in enumerate(inputs, 1)):
            return replace(bound_call, compute=SessionFunction(function, session))
        return replace(bound_call, body=inlined)

    def _has_rows(self, function: UserFunction) -> bool:
        host = SessionHost(self._session, Prepared())
        return any(host.types.is_row(TypeRef(oid)) for oid in (*function.types, function.result))

    def _row_function(self, function: UserFunction) -> RowFunction | None:
        """Return the object that computes a PL/pgSQL function in tasks, with the functions that it calls. None if it needs the session."""
        cursor, database = self._session.begin_statement().cursor, self._session.context.database
        if function.outputs or functions.distinct_names(cursor, database) & builtin.builtins().functions_named.keys():
            return None  # tasks find only built-in functions by such a name
        evaluation = Evaluation(self._session)
        programs: dict[int, Program] = {}
        functions_by_name: dict[tuple[str, ...], list[UserFunction]] = {}
        pending = [function]
        while pending:
            current = pending.pop()
            if current.oid in programs:
                continue
            with call.acting(current, self._session):
                tree = body.of(current, self._session).function if current.language == PLPGSQL else None
                texts = reach.texts(tree) if tree is not None else []
                defaults = [argument.default for argument in current.inputs if argument.default is not None]
                if texts is None or (tree is None and _reads(current.body)) or any(map(reach.is_session_needed, defaults)):
                    return None
                called = reach.calls(current.body.strip().removeprefix("SELECT")) if tree is None else set()
                for parts in called.union(*map(reach.calls, [*texts, *defaults])) - functions_by_name.keys():
                    functions_by_name[parts] = self._named(parts)
                    for callee in functions_by_name[parts]:
                        check_execute(self._session, callee)
                    pending += functions_by_name[parts]
                programs[current.oid] = Program(current, call.shown(current, self._session), tree)
        return RowFunction(function, Library(programs, functions_by_name, evaluation.time, evaluation.context))


def _reads(text: str) -> bool:
    """Return whether the body of an SQL function is more than a query without tables and subqueries."""
    statements = parse(text)
    return len(statements) != 1 or any(part.DESCRIPTOR.name in ("RangeVar", "SubLink") for part in parts_of(statements[0].node))
