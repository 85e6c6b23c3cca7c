"""The SQL texts of a function, parsed, with their variables replaced by parameters.

`host` prepares each text when it first runs. The prepared texts are cached with the function while the objects that it names stay the same.

    text                                              runs as
    an expression without subquery or user function   an expression (`PreparedText.expression`)
    AND, OR, COALESCE of other operands               its operands, one by one (`PreparedText.connected`)
    any other text                                    a statement
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.commands.function.variable_reference import References, fields_of
from headgate.errors import PostgresError
from headgate.expression import scalar
from headgate.expression.node import Expression, TypeRef
from headgate.plpgsql.scope import Scope
from headgate.plpgsql.tree import Names, Sql
from headgate.sql import names
from headgate.sql.parser import ParseNode, Statement, parse, unwrap, walk

_PLAIN = frozenset({"target_list", "limit_option", "op"})
"""The fields of a SELECT that has nothing but a target list."""


@dataclass
class PreparedText:
    """An SQL text with its variables replaced by parameters."""

    node: ParseNode
    variables: list[Names]
    expression: ParseNode | None
    """The expression to compute, or None if the text has to run as a query or statement."""
    is_simple: bool = False
    """Whether PostgreSQL evaluates the text as an expression (exec_simple_check_plan): it has no FROM and no subquery."""
    connected: tuple[pb.BoolExprType.ValueType | None, tuple[PreparedText, ...]] | None = None
    """The operands of AND, OR or COALESCE (None), which are evaluated one by one until one decides. None for any other text."""
    bound: dict[tuple[TypeRef, ...], Expression] = field(default_factory=dict)
    quick: dict[tuple[TypeRef, ...], tuple[TypeRef, scalar.Scalar]] = field(default_factory=dict)
    """By the types of the variables: the type of the value, and a Python function that computes it."""
    rows: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    """The records that are named as a whole, with the fields that they had (`References.rows`)."""

    def fits(self, scope: Scope) -> bool:
        """Return whether the records have the same fields still. A loop may give a record other ones."""
        return all(fields_of(scope, name) == fields for name, fields in self.rows.items())


class Prepared:
    """The cached texts of a function."""

    def __init__(self, variable_conflict: str | None = None) -> None:
        """Create the cache. `variable_conflict`: the function's own option, or None for the session's."""
        self.variable_conflict = variable_conflict
        self.texts: dict[int, tuple[Sql, PreparedText]] = {}
        self.expressions: dict[str, Sql] = {}

    def expression(self, text: str) -> Sql:
        """Return the same object for the same text of an expression."""
        return self.expressions.setdefault(text, Sql(text))


@dataclass(frozen=True)
class Preparation:
    """Prepares the texts of a function. The callables look up objects of the catalog."""

    columns_of: Callable[[pb.RangeVar], Sequence[str]]
    """Returns the names of a relation's columns, which come before variables of the same names."""
    calls_users: Callable[[set[str]], bool]
    """Returns whether a function with one of these names may be one that a user has created."""

    def prepare(self, sql: Sql, scope: Scope, variable_conflict: str) -> PreparedText:
        """Return a text with its variables as parameters."""
        [statement] = parsed(sql.text if sql.is_statement else f"SELECT {sql.text}")
        node = type(statement.node)()
        node.CopyFrom(statement.node)
        references = References(scope, self.columns_of, variable_conflict)
        try:
            references.replace(node)
        except PostgresError as error:
            cite(error, sql.text, 0 if sql.is_statement else len("SELECT "))
            raise
        if node.DESCRIPTOR.name != "SelectStmt" or {field.name for field, _ in node.ListFields()} - _PLAIN or len(node.target_list) != 1:
            return PreparedText(node, references.found, None, rows=references.rows)
        value = node.target_list[0].res_target.val
        prepared = PreparedText(node, references.found, None, is_simple=not _has_query(value), rows=references.rows)
        if prepared.is_simple and self._calls_users(value):
            prepared.connected = self._operands(value, references.found)
        elif prepared.is_simple and _coalesces_rows(unwrap(value), references.found, scope):
            prepared.connected = (None, tuple(self._operand_text(operand, references.found) for operand in unwrap(value).args))
        elif prepared.is_simple:
            prepared.expression = unwrap(value)
        return prepared

    def prepare_node(self, node: pb.Node, scope: Scope) -> PreparedText:
        """Return an expression of a statement, such as an argument of CALL, with its variables as parameters."""
        select = _select(node)
        references = References(scope, self.columns_of)
        references.replace(select)
        value = select.target_list[0].res_target.val
        is_plain = not _has_query(value) and not self._calls_users(value)
        return PreparedText(select, references.found, unwrap(value) if is_plain else None)

    def _operands(self, node: pb.Node, variables: list[Names]) -> tuple[pb.BoolExprType.ValueType, tuple[PreparedText, ...]] | None:
        """Return the operands of an AND or OR that calls functions of users, or None: such a function may have effects."""
        connection = unwrap(node)
        if connection.DESCRIPTOR.name != "BoolExpr" or connection.boolop == pb.NOT_EXPR:
            return None
        return connection.boolop, tuple(self._operand_text(operand, variables) for operand in connection.args)

    def _operand_text(self, node: pb.Node, variables: list[Names]) -> PreparedText:
        """Return an operand of a text as a text of its own with the same variables."""
        prepared = PreparedText(_select(node), variables, None if self._calls_users(node) else unwrap(node), is_simple=True)
        if prepared.expression is None:
            prepared.connected = self._operands(node, variables)
        return prepared

    def _calls_users(self, node: ParseNode) -> bool:
        """Return whether an expression may call a function that is not built in. It is then run as a query, which `user_call` evaluates."""
        called = {names.strings(descendant.funcname)[-1] for descendant in walk(node) if descendant.DESCRIPTOR.name == "FuncCall"}
        return bool(called) and self.calls_users(called)


def parsed(text: str) -> list[Statement]:
    """Return the statement of a text. Raise 42601 unless it is exactly one."""
    statements = parse(text)
    if len(statements) != 1:
        raise PostgresError("42601", "cannot insert multiple commands into a prepared statement")
    return statements


def cite(error: PostgresError, text: str, before: int) -> bool:
    """Make the position of an error one in the text of a function. Return whether it had a position.

    `before`: the number of characters that were put before the text.
    """
    if error.position is None or error.internal_query is not None:
        return False
    error.internal_query, error.internal_position, error.position = text, max(error.position - before, 1), None
    return True


def _select(node: pb.Node) -> pb.SelectStmt:
    """Return ``SELECT node``."""
    select = pb.SelectStmt(limit_option=pb.LIMIT_OPTION_DEFAULT, op=pb.SETOP_NONE)
    select.target_list.add().res_target.val.CopyFrom(node)
    return select


def _has_query(node: ParseNode) -> bool:
    return any(child.DESCRIPTOR.name == "SubLink" for child in walk(node))


def _coalesces_rows(expression: ParseNode, variables: list[Names], scope: Scope) -> bool:
    """Return whether an expression is COALESCE of whole rows. The binder does not know the types of the rows of tables."""
    if expression.DESCRIPTOR.name != "CoalesceExpr":
        return False
    parts = [unwrap(operand) for operand in expression.args]
    matches = [scope.find(variables[part.number - 1]) for part in parts if part.DESCRIPTOR.name == "ParamRef"]
    return any(variable is not None and variable[0].row and variable[1] is None for variable in matches)
