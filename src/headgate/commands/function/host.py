"""Run the expressions and statements of a function in a session (an implementation of `headgate.plpgsql.host.Host`).

`call` creates a host for each call of a function, and so does `commands.trigger`. The host prepares a text when it first runs
(`prepared_text`). It computes an expression in the driver if it can (`simple_expression`). Any other text runs as a client's statement
does, with the variables as parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog import function as functions
from headgate.commands import lookup, stale_plan
from headgate.commands.function import variable_type
from headgate.commands.function.function_choice import CALL_ARGUMENTS, choose_procedure
from headgate.commands.function.prepared_text import Preparation, Prepared, PreparedText, cite, parsed
from headgate.commands.function.simple_expression import Column, SimpleExpressions
from headgate.commands.function.variable_type import VariableTypes
from headgate.commands.result import Result
from headgate.commands.session import Parameter, Session
from headgate.commands.transaction import subtransaction
from headgate.commands.transition_table import TransitionTable
from headgate.errors import Notice, PostgresError, Severity, not_supported
from headgate.expression import builtin
from headgate.expression.binding import binder, named_argument
from headgate.expression.binding.scope import EMPTY
from headgate.expression.functions import array as array_functions
from headgate.expression.functions.array import Bound
from headgate.expression.node import BOOLEAN, Expression, TypeRef
from headgate.plpgsql.host import Outcome, Rows
from headgate.plpgsql.scope import Row, Scope, Value, Variable, type_of
from headgate.plpgsql.tree import Assign, Names, Sql, Subscript
from headgate.sql import command_tag
from headgate.sql.parser import ParseNode, parse, unwrap
from headgate.types import registry
from headgate.types.registry import PgType, TypeKind
from headgate.types.resultset import ResultSet
from headgate.types.text import array as arrays
from headgate.types.text.text import styled


class SessionHost:
    """One call of a function in a session."""

    def __init__(self, session: Session, prepared: Prepared, tables: Mapping[str, TransitionTable] | None = None) -> None:
        """Create the host. `tables`: the transition tables that the function's queries can read, by name."""
        self.session, self._prepared = session, prepared
        self._tables = tables or {}
        self.types: VariableTypes = variable_type.of_session(session)
        self.expressions = SimpleExpressions(session)
        self._preparation = Preparation(self._columns, self._calls_users)

    # ---- expressions --------------------------------------------------------------------------------------

    def evaluate(self, sql: Sql, scope: Scope) -> Value:
        """Return the value of an expression. Raise 42601 for several columns and 21000 for several rows."""
        prepared = self.prepare(sql, scope)
        values = [self._value(variable, scope) for variable in prepared.variables]
        shown = f'SQL expression "{sql.text}"' if sql.assignment is None else f'PL/pgSQL assignment "{sql.assignment}"'
        # PostgreSQL computes an expression without variables when it plans it
        is_planned = not prepared.is_simple or (prepared.expression is not None and not values)
        cited = sql.assignment or sql.text
        before = 0 if sql.is_statement else len("SELECT ") - (len(cited) - len(sql.text))
        with self._context_of(shown if is_planned else None, cited, before=before):
            return self._evaluated(prepared, values)

    def _evaluated(self, prepared: PreparedText, values: Sequence[Value]) -> Value:
        if prepared.expression is not None:
            return self.expressions.value(prepared, values) or self._queried(prepared, values)
        if prepared.connected is None:
            return self._queried(prepared, values)
        kind, operands = prepared.connected
        if kind is None:
            value = self._evaluated(operands[0], values)
            return (
                value
                if value.text is not None or len(operands) == 1
                else self._evaluated(PreparedText(prepared.node, prepared.variables, None, connected=(None, operands[1:])), values)
            )
        deciding = "t" if kind == pb.OR_EXPR else "f"
        result: str | None = "f" if kind == pb.OR_EXPR else "t"
        for operand in operands:
            text = self.cast(self._evaluated(operand, values), BOOLEAN).text
            if text == deciding:
                return Value(BOOLEAN, deciding)
            result = None if text is None else result
        return Value(BOOLEAN, result)

    def evaluate_node(self, node: pb.Node, scope: Scope) -> Value:
        """Return the value of an argument of CALL."""
        prepared = self._preparation.prepare_node(node, scope)
        return self._evaluated(prepared, [self._value(variable, scope) for variable in prepared.variables])

    def evaluate_text(self, text: str) -> Value:
        """Return the value of an expression text of the catalog without variables, such as an argument's default."""
        with registry.unguarded():
            return self.evaluate(self._prepared.expression(text), Scope())

    def described_node(self, node: pb.Node, parameters: dict[int, int], **context: object) -> Value:
        """Return a NULL of the argument's type without computing it. `parameters`: the types of the statement's parameters."""
        return Value(self.bound_node(node, parameters, **context).type, None)

    def bound_node(self, node: pb.Node, parameters: dict[int, int], **context: object) -> Expression:
        """Bind an expression without columns. `parameters`: the types of the statement's parameters."""
        return binder.bind_raw(node, EMPTY, self.expressions.context([]).within(parameters=dict(parameters), **context))

    def array_of(self, values: Sequence[Value], kind: int) -> Value:
        """Return an array of type `kind` with these elements, cast to the type of its elements."""
        element = registry.known().by_oid(registry.known().by_oid(kind).element)
        shape = arrays.Shape((len(values),), (1,)) if values else arrays.Shape((), ())
        texts = [self.cast(value, type_of(element.oid)).text for value in values]
        return Value(TypeRef(kind), arrays.print_array(shape, texts, element.delimiter))

    def as_value(self, held: Value | Row | None) -> Value | None:
        """Return the content of a variable as a value."""
        return self.types.value_of(held) if isinstance(held, Row) else held

    def _queried(self, prepared: PreparedText, values: Sequence[Value]) -> Value:
        rows = self._run_prepared(prepared, values).rows
        if rows is None or len(rows.columns) != 1:
            raise PostgresError("42601", f"query returned {0 if rows is None else len(rows.columns)} columns")
        first = next(rows.rows, None)
        if next(rows.rows, None) is not None:
            raise PostgresError("21000", "query returned more than one row")
        kind = rows.columns[0][1]
        kind = replace(kind, fields=self._output_columns(prepared.node)) if kind.oid == registry.RECORD else kind
        return Value(kind, None if first is None else first[0])

    def _output_columns(self, node: ParseNode) -> tuple[tuple[str, TypeRef], ...]:
        """Return the columns of a record, if the query is a call of a function with OUT parameters whose types are known."""
        call = unwrap(unwrap(node.target_list[0]).val) if isinstance(node, pb.SelectStmt) and node.target_list else None
        if not isinstance(call, pb.FuncCall):
            return ()
        named = lookup.functions_named(self.session.begin_statement().cursor, self.session.context, call.funcname)
        columns = {tuple((output.name, output.type_oid) for output in function.outputs) for function in named}
        listed = columns.pop() if len(columns) == 1 else ()
        is_known = all(registry.known().by_oid(oid).kind is not TypeKind.PSEUDO for _, oid in listed)
        return tuple((name, type_of(oid)) for name, oid in listed) if is_known else ()

    def _value(self, parts: Names, scope: Scope) -> Value:
        resolved = scope.find(parts)
        assert resolved is not None, "it was found when the text was taken apart"
        variable, name = resolved
        held = variable.value
        if not variable.row:
            assert not isinstance(held, Row)
            return held if held is not None else Value(variable.type, None)
        if not isinstance(held, Row):
            if name is None:
                return Value(variable.type, None)
            if variable.type.oid == registry.RECORD:
                detail = "The tuple structure of a not-yet-assigned record is indeterminate."
                raise PostgresError("55000", f'record "{variable.name}" is not assigned yet', detail=detail)
            held = Row({field: Value(kind, None) for field, kind in self.types.fields(variable.type)}, variable.type.oid)
        if name is None:
            return self.types.value_of(held)
        if name not in held.fields:
            raise PostgresError("42703", f'record "{variable.name}" has no field "{name}"')
        return held.fields[name]

    def cast(self, value: Value, target: TypeRef) -> Value:
        """Cast a value as in an assignment, or else by its text (exec_cast_value). A value of unknown type is read as the target type."""
        domain = registry.known().find(target.oid)
        if domain is not None and domain.kind is TypeKind.DOMAIN and (value.type.oid != target.oid or value.text is None):
            return self._checked(value, domain)
        if value.type.oid == target.oid and target.typmod in (-1, value.type.typmod):
            return value
        return Value(target, None) if value.text is None else self.expressions.assigned(value, target)

    def cast_columns(self, value: Value | Column, target: TypeRef, rows: int) -> Value | Column:
        """Return values of many rows as they enter a variable of a type; see `cast`."""
        return self.cast(value, target) if isinstance(value, Value) else self.expressions.cast_column(value, target, rows)

    def _checked(self, value: Value, domain: PgType) -> Value:
        """Cast a value to a domain. Raise 23502 and 23514 if its constraints reject the value."""
        base = self.cast(value, TypeRef(*registry.known().base(domain.oid), domain.collation))
        if domain.not_null and base.text is None:
            raise PostgresError("23502", f"domain {domain.plain} does not allow null values", schema=domain.schema, datatype=domain.name)
        scope = Scope()
        scope.names["value"] = Variable("value", base.type, base)
        for name, text in domain.checks:
            if self.evaluate(self._prepared.expression(text), scope).text == "f":
                message = f'value for domain {domain.plain} violates check constraint "{name}"'
                raise PostgresError("23514", message, schema=domain.schema, datatype=domain.name, constraint=name)
        return Value(TypeRef(domain.oid), base.text)

    def with_part(self, value: Value, assignment: Assign, new: Value, scope: Scope) -> Value:
        """Return an array with an element or a slice replaced (`functions.array`). Raise 22004 for a NULL subscript."""
        kind, subscripts = registry.known().by_oid(registry.known().base(value.type.oid)[0]), assignment.subscripts
        if not kind.element:
            shown = registry.format_type(value.type.oid)
            with self._context_of(None, assignment.text):
                raise PostgresError("42804", f"cannot subscript type {shown} because it does not support subscripting", position=1)
        whole, delimiter = TypeRef(kind.oid, value.type.typmod), registry.known().by_oid(kind.element).delimiter
        if any(subscript.is_slice for subscript in subscripts):
            bounds = [self._bounds(subscript, scope) for subscript in subscripts]
            return Value(whole, array_functions.with_part(value.text, bounds, self.cast(new, whole).text, delimiter))
        indexes = [self._index(subscript.upper, scope) for subscript in subscripts if subscript.upper is not None]
        item = self.cast(new, type_of(kind.element, value.type.typmod)).text
        return Value(whole, array_functions.with_element(value.text, indexes, item, delimiter))

    def _bounds(self, subscript: Subscript, scope: Scope) -> tuple[Bound, Bound]:
        """Return the bounds of a slice. A single subscript beside a slice means all elements from 1."""
        lower: Bound = "open" if subscript.lower is None else self._index(subscript.lower, scope)
        upper: Bound = "open" if subscript.upper is None else self._index(subscript.upper, scope)
        return (lower if subscript.is_slice else 1), upper

    def _index(self, sql: Sql, scope: Scope) -> int | None:
        text = self.cast(self.evaluate(sql, scope), TypeRef(registry.INT4)).text
        return None if text is None else int(text)

    # ---- statements ---------------------------------------------------------------------------------------

    def run(self, sql: Sql, scope: Scope) -> Outcome:
        """Run a statement with its variables as parameters."""
        prepared = self.prepare(sql, scope)
        values = [self._value(variable, scope) for variable in prepared.variables]
        kind = "statement" if sql.is_statement else "expression"
        with self._context_of(f'SQL {kind} "{sql.text}"', sql.text, before=0 if sql.is_statement else len("SELECT ")):
            return self._run_prepared(prepared, values)

    def outputs(self, sql: Sql, scope: Scope) -> Sequence[Names]:
        prepared = self.prepare(sql, scope)
        node = prepared.node
        if node.DESCRIPTOR.name != "CallStmt":
            return []
        types = {number: self._value(variable, scope).type.oid for number, variable in enumerate(prepared.variables, 1)}
        with self._context_of(f'SQL statement "{sql.text}"', sql.text):
            procedure, _ = choose_procedure(
                node.funccall, self.session, lambda argument: self.described_node(argument, types, **CALL_ARGUMENTS)
            )
        items = [unwrap(argument) for argument in node.funccall.args]
        by_name = {item.name: unwrap(item.arg) for item in items if named_argument.is_named(item)}
        targets = []
        for place, argument in enumerate(procedure.arguments):
            if argument not in procedure.outputs:
                continue
            item = by_name.get(argument.name) or (items[place] if place < len(items) - len(by_name) else None)
            if item is None or item.DESCRIPTOR.name != "ParamRef":
                shown = f'"{argument.name}"' if argument.name else str(place + 1)
                message = f"procedure parameter {shown} is an output parameter but corresponding argument is not writable"
                raise PostgresError("42601", message)
            targets.append(prepared.variables[item.number - 1])
        return targets

    def variables(self, sql: Sql, scope: Scope) -> Sequence[tuple[str, Value]]:
        return [(".".join(names), self._value(names, scope)) for names in self.prepare(sql, scope).variables]

    def run_text(self, text: str, parameters: Sequence[Value]) -> Outcome:
        """Run the statements of a text and return the outcome of the last one."""
        outcome, shown = Outcome(None, 0), f'SQL statement "{text}"'
        with self._context_of(shown, text):
            statements = parse(text)
        for statement in statements:
            if statement.kind == "TransactionStmt":
                raise not_supported("EXECUTE of transaction commands is not implemented")
            if isinstance(statement.node, pb.SelectStmt) and statement.node.HasField("into_clause"):
                hint = "You might want to use EXECUTE ... INTO or EXECUTE CREATE TABLE ... AS instead."
                raise not_supported("EXECUTE of SELECT ... INTO is not implemented", hint=hint)
            with self._context_of(shown, text):
                outcome = self._run(statement.node, parameters)
        return outcome

    def _run_prepared(self, prepared: PreparedText, values: Sequence[Value]) -> Outcome:
        self.session.analysed.expect(prepared.node)
        return self._run(prepared.node, values)

    def _run(self, node: ParseNode, values: Sequence[Value]) -> Outcome:
        result, sets_found = self._result(node, values), isinstance(node, _QUERIES)
        if not isinstance(result, ResultSet):
            tag = getattr(result, "tag", None)
            if tag is None:
                raise PostgresError("0A000", "cannot COPY to/from client in PL/pgSQL")
            return Outcome(None, _processed(tag), sets_found=sets_found)
        return Outcome(_rows(result), None if result.tag is None else _processed(result.tag), node, sets_found)

    @contextmanager
    def reading(self, outcome: Outcome) -> Iterator[None]:
        queries = self.session.deferral.queries_in_use
        if outcome.query is not None:
            queries.append(outcome.query)
        try:
            yield
        finally:
            if outcome.query is not None:
                queries.pop()

    def _result(self, node: ParseNode, values: Sequence[Value]) -> Result:
        if self.session.context.only_reads and not only_reads(node):
            raise not_supported(f"{command_tag.of(node)} is not allowed in a non-volatile function")
        with self._environment(values):
            result = stale_plan.replaced(self.session, lambda: self.session.parts.run_statement(node, self.session))
            # fetch the rows here, while the parameters are set: the result is lazy
            return replace(result, batches=list(result)) if isinstance(result, ResultSet) else result

    def prepare(self, sql: Sql, scope: Scope) -> PreparedText:
        """Return a text with its variables as parameters. The result is cached for the next call."""
        cached = self._prepared.texts.get(id(sql))
        if cached is not None and cached[1].fits(scope):
            return cached[1]
        conflict = self._prepared.variable_conflict or self.setting("plpgsql.variable_conflict")
        prepared = self._preparation.prepare(sql, scope, conflict)
        self._prepared.texts[id(sql)] = (sql, prepared)  # the Sql is kept too, so that its id stays unique
        return prepared

    def _calls_users(self, called: set[str]) -> bool:
        """Return whether one of the functions with these names may be one that a user has created."""
        if not called <= builtin.builtins().functions_named.keys():
            return True
        database = self.session.context.database
        return not called.isdisjoint(functions.distinct_names(self.session.begin_statement().cursor, database))

    def _columns(self, node: pb.RangeVar) -> Sequence[str]:
        table = None if node.schemaname else self._tables.get(node.relname)
        relation = lookup.find(self.session.begin_statement().cursor, self.session.context, node) if table is None else table.relation
        return [] if relation is None else [column.name for column in relation.columns]

    @contextlib.contextmanager
    def _environment(self, values: Sequence[Value]) -> Iterator[None]:
        """Set the parameters and the function's transition tables for the session's statements in the block."""
        session = self.session
        before = session.parameters, session.transition_tables
        session.parameters = tuple(Parameter(argument.type.oid, argument.text) for argument in values)
        session.transition_tables = self._tables
        try:
            yield
        finally:
            session.parameters, session.transition_tables = before

    @contextlib.contextmanager
    def _context_of(self, shown: str | None, text: str, *, before: int = 0) -> Iterator[None]:
        """Add a line of context to errors in the block.

        An error with a position cites the text instead (_SPI_error_callback). `before`: the number of characters that were put before it;
        it is negative if the text has some before the expression.
        """
        self.callers.append(lambda: shown or "")
        try:
            yield
        except PostgresError as error:
            if cite(error, text, before):
                raise
            raise (error if shown is None else error.within(shown)) from error
        finally:
            self.callers.pop()

    # ---- the transaction and the client -------------------------------------------------------------------

    @contextmanager
    def subtransaction(self) -> Iterator[None]:
        context = self.session.context
        context.subtransactions += 1
        try:
            with subtransaction.undone(self.session):
                yield
        finally:
            context.subtransactions -= 1

    @property
    def callers(self) -> list[Callable[[], str]]:
        return self.session.context.callers

    def shown(self, value: Value) -> str | None:
        texts = pa.array([value.text], pa.string())
        text: str | None = styled(texts, value.type.oid, value.type.typmod, self.session.context.forms)[0].as_py()
        return text

    def setting(self, name: str) -> str:
        try:
            return self.session.settings.text(name)
        except PostgresError:
            return ""

    def end_transaction(self, *, commits: bool, chain: bool) -> None:
        """End the transaction. Raise 2D000 in a function, in a transaction block, and in the block of an EXCEPTION clause."""
        context = self.session.context
        if not context.may_end_transaction:
            raise PostgresError("2D000", "invalid transaction termination")
        if context.subtransactions:
            raise PostgresError("2D000", f"cannot {'commit' if commits else 'roll back'} while a subtransaction is active")
        self.session.end_transaction(commits=commits, chain=chain)
        self.expressions.reset()

    def check(self) -> None:
        self.session.check_cancel()

    def forget_cancel(self, error: PostgresError) -> None:
        self.session.forget_cancel(error)

    def say(self, level: str, sqlstate: str, message: str, detail: str | None, hint: str | None) -> None:
        self.session.notices.say(Notice(Severity(level), sqlstate, message, detail, hint))

    def open(self, name: str | None, query: Sql | str, scope: Scope, parameters: Sequence[Value], scroll: bool | None) -> str:
        """See `Host`. Raise 42601 if the statement does not return rows."""
        if isinstance(query, str):
            text, values = query, parameters
            [statement] = parsed(text)
            node = statement.node
        else:
            prepared, text = self.prepare(query, scope), query.text
            node, values = prepared.node, [self._value(variable, scope) for variable in prepared.variables]
            self.session.analysed.expect(node)
        with self._context_of(f'SQL statement "{text}"', text):
            result = self._result(node, values)
            if not isinstance(result, ResultSet):
                raise PostgresError("42P11", f"cannot open {command_tag.of(node)} query as cursor")
        return self.session.parts.open_cursor(self.session, name, node, result, scroll)

    def fetch(self, name: str, direction: int, count: int, *, is_move: bool) -> tuple[Rows, int]:
        """See `Host`. Raise 34000 if there is no cursor with the name."""
        result, moved = self.session.parts.move_cursor(self.session, name, _DIRECTIONS[direction], count, is_move)
        return _rows(result), moved

    def close(self, name: str) -> None:
        """See `Host`. Raise 34000 if there is no cursor with the name."""
        self.session.parts.close_cursor(self.session, name)


_QUERIES = (pb.SelectStmt, pb.InsertStmt, pb.UpdateStmt, pb.DeleteStmt, pb.MergeStmt)
"""The statements that set FOUND."""
_DIRECTIONS = ("FETCH_FORWARD", "FETCH_BACKWARD", "FETCH_ABSOLUTE", "FETCH_RELATIVE")
"""The directions of FETCH by their numbers in the tree."""


def only_reads(node: ParseNode) -> bool:
    """Return whether a statement may run in a function that is not VOLATILE (CommandIsReadOnly)."""
    if not isinstance(node, pb.SelectStmt) or node.HasField("into_clause") or node.locking_clause:
        return False
    return all(isinstance(unwrap(unwrap(item).ctequery), pb.SelectStmt) for item in node.with_clause.ctes)


def _rows(result: ResultSet) -> Rows:
    columns = tuple((column.name, type_of(column.type_oid, column.typmod)) for column in result.columns)
    return Rows(columns, (tuple(row.values()) for batch in result for row in batch.to_pylist()))


def of_parameters(session: Session) -> Scope:
    """Return the parameters of the running statement as variables: ``$1`` and so on."""
    scope = Scope()
    for number, parameter in enumerate(session.parameters, 1):
        kind = TypeRef(parameter.type_oid)
        scope.names[f"${number}"] = Variable(f"${number}", kind, Value(kind, parameter.text))
    return scope


def _processed(tag: str) -> int:
    last = tag.rsplit(" ", 1)[-1]
    return int(last) if last.isdigit() else 0
