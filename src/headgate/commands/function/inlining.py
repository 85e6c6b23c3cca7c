"""Replace a call of an SQL function of one expression by that expression (PostgreSQL's inline_function)."""

from __future__ import annotations

from dataclasses import replace

from postgast import pg_query_pb2 as pb

from headgate.catalog.function import UserFunction
from headgate.commands.function.variable_reference import References
from headgate.errors import PostgresError, not_supported
from headgate.expression import rewriting
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY
from headgate.expression.node import Expression, Param
from headgate.plpgsql.scope import Scope, Variable, type_of
from headgate.sql import names
from headgate.sql.parser import parse

_PLAIN_SELECT = frozenset({"target_list", "limit_option", "op"})


def body(function: UserFunction, context: BindContext, location: int) -> Expression:
    """Return the expression of an SQL function, over its arguments as parameters. Raise 0A000 if its body is not one expression.

    `location`: the place of the call, for the error.
    """
    refusal = not_supported(
        f"calling the function {names.quote_ident(function.name)} for each row is not supported",
        detail="Its body is more than the SELECT of one expression.", location=location
    )  # fmt: skip
    statements = parse(function.body)
    if len(statements) != 1 or statements[0].kind != "SelectStmt":
        raise refusal
    select = pb.SelectStmt()
    select.CopyFrom(statements[0].node)
    if {field.name for field, _ in select.ListFields()} - _PLAIN_SELECT or len(select.target_list) != 1:
        raise refusal
    scope = Scope(function.name)
    for number, argument in enumerate(function.inputs, 1):
        variable = Variable(f"${number}", type_of(argument.type_oid), None)
        scope.names.update({f"${number}": variable} | ({argument.name: variable} if argument.name else {}))
    try:
        references = References(scope, lambda _: ())
        references.replace(select)
        used = [scope.names[parts[-1]] for parts in references.found]
        kinds = {place: variable.type.oid for place, variable in enumerate(used, 1)}
        inner = BindContext(types=context.types, forms=context.forms, parameters=kinds)
        bound = binder.bind_raw(select.target_list[0].res_target.val, EMPTY, inner)
        result = binder.assign(bound, type_of(function.result), function.name, inner)
    except PostgresError as error:
        error.position = None
        raise error.within(f'SQL function "{function.name}" during inlining') from error
    numbers = [int(variable.name[1:]) for variable in used]
    return rewriting.rewrite(result, lambda node: replace(node, number=numbers[node.number - 1]) if isinstance(node, Param) else None)
