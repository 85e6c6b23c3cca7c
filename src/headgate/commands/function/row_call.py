"""Calls of functions that users made where each row has its own arguments: in a select list, in WHERE, in a DEFAULT, in a CHECK.

`Resolver` gives the binder (`expression.binding.user_function`) the functions of a session's database. The server puts it in
force together with the session's types. A bound call has one of two forms:

    an SQL function of one expression     its body, which stands in the place of the call (`inlining`)
    a function in PL/pgSQL                `RowFunction`, which runs the interpreter for each row: in Spark's tasks, or in the node

Tasks do not have a session. So such a function may only compute: it cannot read tables, write, or send messages. Any other function is
refused here (0A000); `user_call` still calls it once for a statement if its arguments do not depend on rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog.function import PLPGSQL, UserFunction
from headgate.commands import lookup
from headgate.commands.function import body, call, inlining
from headgate.commands.function.function_choice import chosen
from headgate.commands.function.host import Prepared, SessionHost
from headgate.commands.function.permission import check_execute
from headgate.commands.function.row_function import Library, Program, RowFunction
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding.context import BindContext
from headgate.expression.node import Expression, FuncExpr, Param, UserCall, walk
from headgate.plpgsql import reach
from headgate.plpgsql.scope import type_of
from headgate.sql import names


class Resolver:
    """The functions of a session's database. A call needs EXECUTE."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inlined: list[int] = []
        """The SQL functions whose bodies are being bound, from the outside in."""

    def __call__(self, node: pb.FuncCall, args: Sequence[Expression], context: BindContext) -> Expression | None:
        """Return the bound call; None if no user made a function of this name."""
        session = self._session
        if not functions.exist(session.begin_statement().cursor, session.context.database):
            return None
        candidates = self._named(names.strings(node.funcname), anywhere=context.types.path is None)
        if not candidates:
            return None
        function, given = chosen(node, candidates, args, context)
        check_execute(self._session, function)
        return self._bound(function, given, node, context)

    def _named(self, parts: Sequence[str], *, anywhere: bool) -> list[UserFunction]:
        """Return the functions that a name may mean. `anywhere`: the text is the catalog's, so the search path does not matter."""
        cursor, context = self._session.begin_statement().cursor, self._session.context
        if not anywhere or len(parts) > 1:
            return lookup.functions_named(cursor, context, [pb.Node(string=pb.String(sval=part)) for part in parts])
        path = lookup.search_path(cursor, context)
        found = functions.named(cursor, context.database, parts[-1])
        return sorted(found, key=lambda each: path.index(each.schema) if each.schema in path else len(path))

    def _bound(self, function: UserFunction, given: Sequence[Expression], node: pb.FuncCall, context: BindContext) -> UserCall:
        session = self._session
        where = context.position(node.location)
        if function.is_set:
            raise not_supported("a set-returning function of one's own is only supported in FROM", position=where)
        host = SessionHost(session, Prepared())
        kinds = [type_of(each) for each in (*function.types, function.result)]
        if function.outputs or any(host.is_row(each) for each in kinds):
            raise not_supported(f"calling the function {names.quote_ident(function.name)} for each row is not supported",
                                detail="It has OUT parameters, or takes or returns rows.", position=where)  # fmt: skip
        visible = function.schema in lookup.search_path(session.begin_statement().cursor, session.context)
        made = UserCall(
            type=kinds[-1], function=function.oid, schema="" if visible else function.schema, name=function.name, args=tuple(given),
            volatility=function.volatility, strict=function.strict, location=node.location,
        )  # fmt: skip
        if function.language == PLPGSQL:
            return replace(made, compute=self._row_function(function, where))
        if function.oid in self._inlined:
            raise PostgresError("54001", "stack depth limit exceeded", hint="An SQL function calls itself.")
        self._inlined.append(function.oid)
        try:
            with call.acting(function, session):
                found = inlining.body(function, context, where)
        finally:
            self._inlined.pop()
        uses = [each.number for each in walk(found) if isinstance(each, Param)]
        if any(uses.count(number) != 1 and _is_volatile(each) for number, each in enumerate(given, 1)):
            detail = "An argument is volatile, and the function uses it more than once."
            raise not_supported(f"calling the function {names.quote_ident(function.name)} for each row is not supported", detail=detail)
        return replace(made, body=found)

    def _row_function(self, function: UserFunction, where: int | None) -> RowFunction:
        """Return what computes a function in PL/pgSQL for rows, with the functions that it calls."""
        evaluation = Evaluation(self._session)
        programs: dict[int, Program] = {}
        known: dict[tuple[str, ...], list[UserFunction]] = {}
        waiting = [function]
        while waiting:
            each = waiting.pop()
            if each.oid in programs:
                continue
            with call.acting(each, self._session):
                tree = body.of(each, self._session).function if each.language == PLPGSQL else None
                texts = reach.texts(tree) if tree is not None else []
                if texts is None:
                    raise not_supported(
                        f"calling the function {names.quote_ident(each.name)} for each row is not supported",
                        detail="It does more than compute: it runs statements, sends messages, or needs the session.",
                        hint="A node can call it once for a statement, with arguments that do not depend on rows.",
                        position=where,
                    )  # fmt: skip
                called = reach.calls(each.body.strip().removeprefix("SELECT")) if tree is None else set()
                for parts in called.union(*map(reach.calls, texts)) - known.keys():
                    known[parts] = self._named(parts, anywhere=False)
                    for found in known[parts]:
                        check_execute(self._session, found)
                    waiting += known[parts]
                programs[each.oid] = Program(each, call.shown(each, self._session), tree)
        return RowFunction(function, Library(programs, known, evaluation.time, evaluation.context))


def _is_volatile(expression: Expression) -> bool:
    return any(isinstance(each, FuncExpr) and builtin.function(each.function).volatility == "v" for each in walk(expression))
