"""PREPARE, EXECUTE and DEALLOCATE as SQL statements (manual, part VI).

They use the same prepared statements as the extended protocol. Called by `utility`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.commands.function.host import SessionHost
from headgate.commands.function.prepared_text import Prepared
from headgate.commands.session import Parameter
from headgate.errors import PostgresError, existing
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.node import TypeRef
from headgate.server.protocol import parameter
from headgate.server.protocol.portal import PreparedStatement
from headgate.sql import grammar, parser
from headgate.sql.parser import ParseNode, Statement
from headgate.sql.setting import constant
from headgate.types import registry
from headgate.types.resultset import ResultSet

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

_UNCHECKED = {"ColumnRef", "FuncCall", "ParamRef", "SubLink"}


def find(session: ClientSession, name: str) -> PreparedStatement:
    """Return the prepared statement of that name. Raise 26000 if it does not exist."""
    return existing(session.prepared.get(name), "26000", f'prepared statement "{name}"')


def prepare(session: ClientSession, node: pb.PrepareStmt, text: str) -> str:
    """Execute PREPARE name [(types)] AS statement. Raise 42P05 if the name is in use."""
    if node.name in session.prepared:
        raise PostgresError("42P05", f'prepared statement "{node.name}" already exists')
    types = tuple(_type(parser.unwrap(type_name)) for type_name in node.argtypes)
    statement = Statement(parser.unwrap(node.query), text, 0, len(text))
    prepared = session.nested_statements.prepare(node.name, text, types, statement)
    prepared.from_sql = True
    session.prepared.keep(node.name, prepared)
    return "PREPARE"


def _type(type_name: pb.TypeName) -> int:
    names = [parser.unwrap(part).sval for part in type_name.names]
    array = "[]" if type_name.array_bounds else ""
    schema, name = (names[0] if len(names) > 1 else None), names[-1]
    return existing(registry.known().find_name(name + array, schema), "42704", f'type "{name}"', location=type_name.location).oid


def execute(session: ClientSession, node: pb.ExecuteStmt, text: str) -> str | ResultSet:
    """Execute EXECUTE name [(values)]. Raise 26000 if it does not exist, 42601 for a wrong number of values."""
    prepared = find(session, node.name)
    if len(node.params) != len(prepared.parameters):
        raise PostgresError(
            "42601",
            f'wrong number of parameters for prepared statement "{node.name}"',
            detail=f"Expected {len(prepared.parameters)} parameters but got {len(node.params)}.",
        )
    if prepared.statement is None:
        return "EXECUTE"
    for number, (param, oid) in enumerate(zip(node.params, prepared.parameters, strict=True), 1):
        _check_type(session, param, number, oid)
    values = [_value(session, parser.unwrap(param), oid) for param, oid in zip(node.params, prepared.parameters, strict=True)]
    session.parameters = tuple(Parameter(oid, value) for oid, value in zip(prepared.parameters, values, strict=True))
    session.analysed.expect(prepared.statement.node)
    result = session.nested_statements.start(prepared.statement)
    if not isinstance(result, ResultSet):
        return session.nested_statements.tag_of(result)
    session.nested_statements.check_unchanged(prepared, prepared.statement, result)
    return result


def _check_type(session: ClientSession, node: pb.Node, number: int, type_oid: int) -> None:
    """Raise 42804 unless a value can be assigned to the parameter. Values with calls, subqueries or parameters are not checked."""
    if any(part.DESCRIPTOR.name in _UNCHECKED for part in parser.walk(node)) or node.a_const.HasField("sval"):
        return
    host = SessionHost(session, Prepared())
    bound, context = host.bound_node(node, {}), host.expressions.context([])
    if coerce(bound, TypeRef(type_oid), Reach.ASSIGNMENT, context) is None:
        given, expected = context.show_type(bound.type.oid), context.show_type(type_oid)
        raise PostgresError(
            "42804",
            f"parameter ${number} of type {given} cannot be coerced to the expected type {expected}",
            hint="You will need to rewrite or cast the expression.",
            location=parser.beginning(node),
        )


def _value(session: ClientSession, node: ParseNode, type_oid: int) -> str | None:
    if str(node.DESCRIPTOR.name) == "A_Const":
        if node.isnull:
            return None
        if node.WhichOneof("val") in ("ival", "fval") and type_oid != registry.NUMERIC:
            return _evaluate(session, node, type_oid)  # a number is cast, as by an assignment
        value = constant(node)
        parameter.check(value, type_oid, session.context.forms)
        return value
    return _evaluate(session, node, type_oid)


def _evaluate(session: ClientSession, node: ParseNode, type_oid: int) -> str | None:
    """Evaluate any other expression: return the single value of SELECT expression::type."""
    from headgate.commands.execute import execute as run

    tree = grammar.parse(f"SELECT NULL::{registry.known().by_oid(type_oid).plain}")
    argument = tree.stmts[0].stmt.select_stmt.target_list[0].res_target.val.type_cast.arg
    field = next(name for name, descriptor in argument.DESCRIPTOR.fields_by_name.items() if descriptor.message_type is node.DESCRIPTOR)
    argument.Clear()
    getattr(argument, field).CopyFrom(node)
    [statement] = parser.parse(grammar.deparse(tree))
    result = run(statement.node, session)
    if not isinstance(result, ResultSet):
        raise PostgresError("XX000", "parameter of EXECUTE gave no row")
    values = [batch.column(0)[0].as_py() for batch in result if batch.num_rows]
    return values[0] if values else None


def deallocate(session: ClientSession, node: pb.DeallocateStmt, text: str) -> str:
    if node.isall or not node.name:
        session.prepared.remove_all()
        return "DEALLOCATE ALL"
    find(session, node.name)
    session.prepared.remove(node.name)
    return "DEALLOCATE"
