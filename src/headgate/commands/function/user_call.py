"""Calls of user-defined functions in a statement: they run before the statement is planned, and their values replace them.

Called by `execute` for the statements that may have such calls. A call whose arguments depend on rows is left to the binder (`row_call`).
So is a call of a VOLATILE function in a query with FROM, or in an expression that may not be evaluated. In FROM, a function's rows become
VALUES.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.catalog.function import UserFunction
from headgate.commands import lookup
from headgate.commands.function import call
from headgate.commands.function.function_choice import choose_function
from headgate.commands.function.host import SessionHost, of_parameters
from headgate.commands.function.permission import check_execute
from headgate.commands.function.prepared_text import Prepared
from headgate.commands.query import explain
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.binding import named_argument
from headgate.expression.binding.context import BindContext
from headgate.expression.node import TypeRef, UserCall
from headgate.plpgsql.interpreter import Execution
from headgate.plpgsql.scope import Value
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap, walk
from headgate.sql.statement import type_name
from headgate.types import registry
from headgate.types.text import record

KINDS = frozenset({"SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "CreateTableAsStmt", "ExplainStmt", "CopyStmt"})
_DECIDING = frozenset({"CaseExpr", "CoalesceExpr", "BoolExpr", "MinMaxExpr"})


def settled(node: ParseNode, session: Session) -> ParseNode:
    """Return the statement with the values of its calls of user-defined functions, or the same node if it has none.

    EXPLAIN calls them only if it runs the query.
    """
    is_explained = node.DESCRIPTOR.name == "ExplainStmt" and not explain.runs(node)
    return _settled(node, session, {} if is_explained else None)


def described(node: ParseNode, session: Session, parameters: dict[int, int]) -> ParseNode:
    """Return a statement that is only described with NULLs instead of its calls. `parameters` receives the parameter types in calls."""
    return _settled(node, session, parameters)


def _settled(node: ParseNode, session: Session, parameters: dict[int, int] | None) -> ParseNode:
    if node.DESCRIPTOR.name not in KINDS:
        return node
    if not functions.exist(session.begin_statement().cursor, session.context.database):
        return node
    calls = _Calls(session, parameters)
    if not any(descendant.DESCRIPTOR.name == "FuncCall" and calls.named(descendant) for descendant in walk(node)):
        return node
    copied = type(node)()
    copied.CopyFrom(node)
    calls.replace(copied, _Place())
    return copied


def is_users(session: Session, call: pb.FuncCall) -> bool:
    return bool(_Calls(session, None).named(call))


@dataclass(frozen=True)
class _Place:
    """The position of a call: in a query with rows, or in an expression that may not be evaluated."""

    has_rows: bool = False
    may_not_run: bool = False


class _Calls:
    """The calls of user-defined functions in one statement."""

    def __init__(self, session: Session, described: dict[int, int] | None) -> None:
        self._session, self._described, self._describing = session, described, described is not None
        self._host = SessionHost(session, Prepared())
        self._scope = of_parameters(session)
        self._evaluation, self._is_later_row = Evaluation(session), False

    def named(self, node: pb.FuncCall) -> list[UserFunction]:
        """Return the functions that a call can denote, or none if a built-in function is meant."""
        session = self._session
        schema, name = names.split_name(node.funcname, session.context.database_name)
        if schema in (None, "pg_catalog") and name in builtin.builtins().functions_named:
            return [] if schema is not None else self._named_as_builtin(node)
        cursor = session.begin_statement().cursor
        if registry.is_unguarded() and len(node.funcname) == 1:
            return []  # a text of the catalog has references to user-defined functions
        return lookup.functions_named(cursor, session.context, node.funcname)

    def _named_as_builtin(self, node: pb.FuncCall) -> list[UserFunction]:
        """Return the functions that a call can denote whose name built-in functions have too. The types of its arguments decide.

        A call with columns denotes none here: the binder decides about it when the query is analysed.
        """
        session = self._session
        candidates = lookup.functions_named(session.begin_statement().cursor, session.context, node.funcname)
        types = {number: parameter.type_oid for number, parameter in enumerate(session.parameters, 1)}
        try:
            bound = self._host.bound_node(pb.Node(func_call=node), self._described or types) if candidates else None
        except PostgresError:
            return []
        return candidates if isinstance(bound, UserCall) else []

    def replace(self, node: ParseNode, place: _Place) -> None:
        kind = node.DESCRIPTOR.name
        if kind in ("SelectStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"):
            has_rows = kind != "SelectStmt" or bool(node.from_clause)
            place = _Place(has_rows or place.has_rows, place.may_not_run)
        elif kind in _DECIDING:
            place = _Place(place.has_rows, may_not_run=True)
        elif kind == "CommonTableExpr" or (kind == "RangeSubselect" and not node.lateral):
            place = _Place(has_rows=False, may_not_run=place.may_not_run)  # the query runs once, however many rows the outer one has
        if kind == "ResTarget" and not node.name and unwrap(node.val) is not None and unwrap(node.val).DESCRIPTOR.name == "FuncCall":
            node.name = names.strings(unwrap(node.val).funcname)[-1]  # the column name that the call would have
        if kind == "InsertStmt":
            self._evaluation.changed = lookup.find(self._session.begin_statement().cursor, self._session.context, node.relation)
        for described, value in node.ListFields():
            if described.message_type is None:
                continue
            for number, child in enumerate(value if described.is_repeated else (value,)):
                self._is_later_row |= described.name == "rarg" or (described.name == "values_lists" and number > 0)
                self._visit(child, place)

    def _visit(self, node: ParseNode, place: _Place) -> None:
        inner = unwrap(node)
        if inner is None:
            return
        kind = inner.DESCRIPTOR.name
        if node.DESCRIPTOR.name != "Node" or kind not in ("FuncCall", "RangeFunction"):
            self.replace(inner, place)
        elif kind == "FuncCall":
            candidates = self.named(inner)
            if not candidates or _is_of_rows(inner):
                self.replace(inner, place)
                return
            if any(candidate.volatility == "v" for candidate in candidates) and (place.has_rows or place.may_not_run):
                self.replace(inner, place)
                return
            function, arguments = self._chosen(inner, candidates)
            if function.is_set:
                self._put_set(node, function, arguments, inner.location)
            else:
                self._put(node, self._value(function, arguments))
        else:
            self._scan(node, inner, place)

    def _scan(self, node: ParseNode, scan: pb.RangeFunction, place: _Place) -> None:
        called = unwrap(unwrap(scan.functions[0]).items[0])
        candidates = self.named(called) if called.DESCRIPTOR.name == "FuncCall" and len(scan.functions) == 1 else []
        if not candidates:
            self.replace(scan, place)
            return
        if scan.ordinality or scan.is_rowsfrom:
            raise not_supported("this form of function in FROM is not supported")
        try:
            function, arguments = self._chosen(called, candidates)
        except PostgresError as error:
            if error.sqlstate not in ("42P01", "42703") or not any(isinstance(part, pb.ColumnRef) for part in walk(called)):
                raise
            message = f"columns as arguments of the function {names.strings(called.funcname)[-1]} in FROM are not supported"
            raise not_supported(message, location=called.location) from error
        columns, rows = self._rows(function, arguments, scan)
        alias = scan.alias.aliasname or function.name
        chosen = names.strings(scan.alias.colnames)
        if len(columns) == 1 and scan.alias.aliasname and not chosen:
            columns = [(alias, columns[0][1])]
        node.Clear()
        subselect = node.range_subselect
        select = subselect.subquery.select_stmt
        select.limit_option, select.op = pb.LIMIT_OPTION_DEFAULT, pb.SETOP_NONE
        for row in rows or [[None] * len(columns)]:
            items = select.values_lists.add().list.items
            for (_, kind), text in zip(columns, row, strict=True):
                _constant(items.add(), kind.oid, text)
        if not rows:
            self._empty(select)
        subselect.alias.aliasname = alias
        column_names = [*chosen, *(name for name, _ in columns[len(chosen) :])]
        for column_name in column_names:
            subselect.alias.colnames.add().string.sval = column_name

    @staticmethod
    def _empty(select: pb.SelectStmt) -> None:
        """Make a VALUES query return no rows, with LIMIT 0."""
        select.limit_option = pb.LIMIT_OPTION_COUNT
        select.limit_count.a_const.ival.ival = 0

    # ---- one call -----------------------------------------------------------------------------------------

    def _chosen(self, node: pb.FuncCall, candidates: Sequence[UserFunction]) -> tuple[UserFunction, list[Value]]:
        """Return the function that a call denotes, and its arguments."""
        argument_nodes = [unwrap(argument) for argument in node.args]
        values = [
            self._argument(inner.arg if named_argument.is_named(inner) else argument)
            for argument, inner in zip(node.args, argument_nodes, strict=True)
        ]
        choice = choose_function(node, candidates, values, BindContext())
        function = choice.function
        check_execute(self._session, function)
        for argument, inner in zip(function.inputs, argument_nodes, strict=False):
            if self._described is not None and inner.DESCRIPTOR.name == "ParamRef" and not self._described.get(inner.number):
                self._described[inner.number] = argument.type_oid
        return function, choice.arguments(self._host.array_of, self._host.evaluate_text)

    def _argument(self, node: pb.Node) -> Value:
        copied = pb.Node()
        copied.CopyFrom(node)
        self._visit(copied, _Place())
        if self._described is not None:
            try:
                return self._host.described_node(copied, self._described)
            except PostgresError:
                return Value(TypeRef(registry.UNKNOWN), None)
        return self._host.evaluate_node(copied, self._scope)

    def _run(self, function: UserFunction, inputs: Sequence[Value]) -> Execution | None:
        """None for a STRICT function that gets a NULL, and where the statement is only described."""
        if self._describing or (function.strict and any(value.text is None for value in inputs)):
            return None
        with self._evaluation.after_unwritten_rows() if self._is_later_row and function.volatility == "v" else contextlib.nullcontext():
            return call.run(function, inputs, self._session)

    def _value(self, function: UserFunction, inputs: Sequence[Value]) -> tuple[int, str | None, list[tuple[str, Value]] | None]:
        """Type and text of the result; for a record of OUT parameters its fields with their names."""
        done = self._run(function, inputs)
        if len(function.outputs) > 1:
            if done is None or not done.rows:
                return registry.RECORD, None, None
            return registry.RECORD, "", list(zip([output.name for output in function.outputs], done.rows[0], strict=True))
        if function.outputs:
            text = done.rows[0][0].text if done is not None and done.rows else None
            return function.outputs[0].type_oid, text, None
        if done is None or function.result == registry.VOID:
            return function.result, None if done is None else "", None
        result = self._host.as_value(done.result)
        return function.result, None if result is None else result.text, None

    @staticmethod
    def _put(node: ParseNode, value: tuple[int, str | None, list[tuple[str, Value]] | None]) -> None:
        kind, text, fields = value
        location = node.func_call.location
        node.Clear()
        if fields is not None:
            node.row_expr.row_format, node.row_expr.location = pb.COERCE_EXPLICIT_CALL, location
            for place, (name, field) in enumerate(fields, 1):
                _constant(node.row_expr.args.add(), field.type.oid, field.text)
                node.row_expr.colnames.add().string.sval = name or f"column{place}"
        else:
            _constant(node, registry.TEXT if kind in (registry.VOID, registry.RECORD) else kind, text)

    def _put_set(self, node: ParseNode, function: UserFunction, inputs: Sequence[Value], location: int) -> None:
        """Replace a call that returns a set by ``unnest`` of an array of its values. Raise 0A000 for a set of records or of arrays."""
        columns, rows = self._rows(function, inputs, pb.RangeFunction())
        is_row = self._host.types.is_row(TypeRef(function.result))
        kind = function.result if is_row else columns[0][1].oid
        array = registry.known().by_oid(kind).array if kind != registry.RECORD else 0
        if not array:
            raise not_supported("a function that returns a set of records or of arrays is only supported in FROM", location=location)
        texts = [record.print_record(row) if is_row else row[0] for row in rows]
        text = self._host.array_of([Value(TypeRef(kind), text) for text in texts], array).text
        node.Clear()
        for part in ("pg_catalog", "unnest"):
            node.func_call.funcname.add().string.sval = part
        _constant(node.func_call.args.add(), array, text)
        node.func_call.location = -1

    def _rows(
        self, function: UserFunction, inputs: Sequence[Value], scan: pb.RangeFunction
    ) -> tuple[list[tuple[str, TypeRef]], list[list[str | None]]]:
        """Names and types of the columns, and the rows as texts."""
        columns = self._columns(function, scan)
        done = self._run(function, inputs)
        if done is None:
            return columns, [] if function.is_set or self._describing else [[None] * len(columns)]
        if function.is_set or function.outputs:
            texts: list[list[str | None]] = [
                [self._host.cast(value, kind).text for value, (_, kind) in zip(row, columns, strict=True)] if row else [None] * len(columns)
                for row in done.rows
            ]
            return columns, texts
        result = self._host.as_value(done.result)
        if self._host.types.is_row(TypeRef(function.result)):
            row = None if result is None else self._host.types.row_of(result)
            return columns, [[None] * len(columns) if row is None else [value.text for value in row.fields.values()]]
        return columns, [[None if result is None else result.text]]

    def _columns(self, function: UserFunction, scan: pb.RangeFunction) -> list[tuple[str, TypeRef]]:
        kind = TypeRef(function.result)
        fields = self._host.types.fields(kind) if self._host.types.is_row(kind) and not function.outputs else ()
        if scan.coldeflist:
            return _defined_columns(function, scan, is_row=bool(fields))
        if function.outputs:
            return [(output.name or f"column{place}", TypeRef(output.type_oid)) for place, output in enumerate(function.outputs, 1)]
        if function.result == registry.RECORD:
            message = 'a column definition list is required for functions returning "record"'
            raise PostgresError("42601", message, location=unwrap(unwrap(scan.functions[0]).items[0]).location)
        return list(fields) or [(function.name, kind)]


def _defined_columns(function: UserFunction, scan: pb.RangeFunction, *, is_row: bool) -> list[tuple[str, TypeRef]]:
    """Return the columns of a column definition list. Raise 42601 unless the function needs one."""
    definitions = [unwrap(definition) for definition in scan.coldeflist]
    if function.outputs:
        message = "a column definition list is redundant for a function with OUT parameters"
    elif is_row:
        message = "a column definition list is redundant for a function returning a named composite type"
    elif function.result != registry.RECORD:
        message = 'a column definition list is only allowed for functions returning "record"'
    else:
        return [(definition.colname, TypeRef(*names.type_name(definition.type_name))) for definition in definitions]
    raise PostgresError("42601", message, location=definitions[0].location)


def _is_of_rows(node: pb.FuncCall) -> bool:
    """Return whether an argument of a call depends on rows: it names a column, or has an aggregate or a window function."""
    for part in walk(node):
        kind = part.DESCRIPTOR.name
        if kind == "ColumnRef":
            return True
        if kind == "FuncCall" and part is not node:
            known = builtin.builtins().functions_named.get(names.strings(part.funcname)[-1], ())
            if part.agg_star or part.HasField("over") or any(candidate.kind != "f" for candidate in known):
                return True
    return False


def _constant(node: ParseNode, kind: int, text: str | None) -> None:
    """``'text'::type``."""
    cast = node.type_cast
    if text is None:
        cast.arg.a_const.isnull = True
    else:
        cast.arg.a_const.sval.sval = text
    pg_type = registry.known().by_oid(kind)
    cast.type_name.CopyFrom(type_name(pg_type.schema, pg_type.name))
    cast.location = -1
