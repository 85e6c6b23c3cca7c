"""Run the expressions and statements of a function in a session (an implementation of `headgate.plpgsql.interpreter.Host`).

`call` creates a host for each call of a function, and so does `commands.trigger`. An expression without a subquery is bound once for the
types of its variables, and computed in the driver with their values as constants. Any other expression is run as a query. Statements run as
a client's statements do, with variables as parameters.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql.types import StructField, StructType

from headgate.catalog import function as functions
from headgate.catalog.physical import one
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.commands import lookup, stale_plan, stored_expression
from headgate.commands.function.function_choice import CALL_ARGUMENTS, choose_procedure
from headgate.commands.function.variable_reference import References
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_evaluator import RowEvaluator
from headgate.commands.result import Result
from headgate.commands.session import Parameter, Session
from headgate.commands.transaction import subtransaction
from headgate.commands.transition_table import TransitionTable
from headgate.errors import Notice, PostgresError, Severity
from headgate.expression import builtin, columnwise, rewriting, scalar
from headgate.expression.binding import binder, named_argument
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY
from headgate.expression.functions import array as array_functions
from headgate.expression.functions.array import Bound
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import BOOLEAN, ColumnRef, Const, Expression, FieldSelect, Param, SetToDefault, TypeRef
from headgate.expression.node import walk as expressions
from headgate.expression.spark import compiler
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.session_time import planning
from headgate.plpgsql.interpreter import Outcome, Rows
from headgate.plpgsql.scope import Row, Scope, Value, Variable, type_of
from headgate.plpgsql.tree import Assign, Names, Sql, Subscript
from headgate.sql import names
from headgate.sql.parser import ParseNode, Statement, parse, unwrap, walk
from headgate.storage.spark.local_relation import local_frame
from headgate.types import buffers, registry
from headgate.types.registry import PgType, TypeKind
from headgate.types.resultset import ResultSet
from headgate.types.storage import arrow_type, spark_type
from headgate.types.text import array as arrays
from headgate.types.text import record
from headgate.types.text.text import read_text, styled, write_text

FEWEST_FOR_SPARK = 100
"""Minimum number of rows for which a Spark job evaluates an expression."""
_PLAIN = frozenset({"target_list", "limit_option", "op"})


@dataclass(frozen=True)
class Column:
    """The values of a variable for many rows, in stored form."""

    type: TypeRef
    array: pa.Array


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


class Prepared:
    """The parsed texts of a function. They are cached with the function while the objects that it names stay the same."""

    def __init__(self, variable_conflict: str | None = None) -> None:
        """Create the cache. `variable_conflict`: the function's own option, or None for the session's."""
        self.variable_conflict = variable_conflict
        self.texts: dict[int, tuple[Sql, PreparedText]] = {}
        self.expressions: dict[str, Sql] = {}


class SessionHost:
    """One call of a function in a session."""

    def __init__(self, session: Session, prepared: Prepared, tables: Mapping[str, TransitionTable] | None = None) -> None:
        """Create the host. `tables`: the transition tables that the function's queries can read, by name."""
        self.session, self._prepared = session, prepared
        self._tables = tables or {}
        self._evaluation: Evaluation | None = None

    # ---- expressions --------------------------------------------------------------------------------------

    def evaluate(self, sql: Sql, scope: Scope) -> Value:
        """Return the value of an expression. Raise 42601 for several columns and 21000 for several rows."""
        prepared = self.prepare(sql, scope)
        values = [self._value(variable, scope) for variable in prepared.variables]
        shown = f'SQL expression "{sql.text}"' if sql.assignment is None else f'PL/pgSQL assignment "{sql.assignment}"'
        # PostgreSQL computes an expression without variables when it plans it
        is_planned = not prepared.is_simple or (prepared.expression is not None and not values)
        with self._context_of(shown if is_planned else None, sql.text, before=0 if sql.is_statement else len("SELECT ")):
            return self._evaluated(prepared, values)

    def _evaluated(self, prepared: PreparedText, values: Sequence[Value]) -> Value:
        if prepared.expression is not None:
            return self._computed(prepared, values)
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
        select = pb.SelectStmt(limit_option=pb.LIMIT_OPTION_DEFAULT, op=pb.SETOP_NONE)
        select.target_list.add().res_target.val.CopyFrom(node)
        references = References(scope, self._columns)
        references.replace(select)
        value = select.target_list[0].res_target.val
        is_plain = not _has_query(value) and not self._calls_users(value)
        prepared = PreparedText(select, references.found, unwrap(value) if is_plain else None)
        values = [self._value(variable, scope) for variable in prepared.variables]
        return self._computed(prepared, values) if prepared.expression is not None else self._queried(prepared, values)

    def evaluate_text(self, text: str) -> Value:
        """Return the value of an expression text of the catalog without variables, such as an argument's default."""
        with registry.unguarded():
            return self.evaluate(self._prepared.expressions.setdefault(text, Sql(text)), Scope())

    def described_node(self, node: pb.Node, parameters: dict[int, int], **context: object) -> Value:
        """Return a NULL of the argument's type without computing it. `parameters`: the types of the statement's parameters."""
        return Value(self.bound_node(node, parameters, **context).type, None)

    def bound_node(self, node: pb.Node, parameters: dict[int, int], **context: object) -> Expression:
        """Bind an expression without columns. `parameters`: the types of the statement's parameters."""
        return binder.bind_raw(node, EMPTY, self._context([]).within(parameters=dict(parameters), **context))

    def array_of(self, values: Sequence[Value], kind: int) -> Value:
        """Return an array of type `kind` with these elements, cast to the type of its elements."""
        element = registry.known().by_oid(registry.known().by_oid(kind).element)
        shape = arrays.Shape((len(values),), (1,)) if values else arrays.Shape((), ())
        texts = [self.cast(value, type_of(element.oid)).text for value in values]
        return Value(TypeRef(kind), arrays.print_array(shape, texts, element.delimiter))

    def as_value(self, held: Value | Row | None) -> Value | None:
        """Return the content of a variable as a value."""
        return self.value_of(held) if isinstance(held, Row) else held

    def _context(self, kinds: Sequence[TypeRef]) -> BindContext:
        """Return the context in which to bind an expression with parameters of these types."""
        if self._evaluation is None:
            self._evaluation = Evaluation(self.session)
        return self._evaluation.context.within(parameters={number: kind.oid for number, kind in enumerate(kinds, 1)})

    def _computed(self, prepared: PreparedText, values: Sequence[Value]) -> Value:
        kinds = tuple(argument.type for argument in values)
        quick = prepared.quick.get(kinds)
        if quick is not None:
            kind, compute = quick
            return Value(kind, scalar.printed(compute([scalar.read(argument.type.oid, argument.text) for argument in values])))
        context, bound = self._context(kinds), prepared.bound.get(kinds)
        assert self._evaluation is not None
        if bound is None:
            bound = prepared.bound[kinds] = binder.bind_raw(prepared.expression, EMPTY, context)
            are_known = all(scalar.is_known(node.type.oid) for node in expressions(bound) if isinstance(node, Param))
            compiled = scalar.compiled(bound) if are_known and all(scalar.is_known(kind.oid) for kind in kinds) else None
            if compiled is not None:
                prepared.quick[kinds] = (bound.type, compiled)
                return self._computed(prepared, values)
        if isinstance(bound, Param) and values[bound.number - 1].type.oid == bound.type.oid:
            return values[bound.number - 1]
        if isinstance(bound, Const):
            return Value(bound.type, bound.value)

        def constant(node: Expression) -> Expression | None:
            return Const(type=node.type, value=values[node.number - 1].text) if isinstance(node, Param) else None

        return self._settled(rewriting.rewrite(bound, constant), prepared, values)

    def _settled(self, expression: Expression, prepared: PreparedText, values: Sequence[Value]) -> Value:
        """Return the value of an expression without variables. `prepared` and `values` are its prepared text and parameters."""
        assert self._evaluation is not None
        evaluable = self._evaluation.prepare(expression)
        try:
            return Value(expression.type, write_text(self._array(evaluable), expression.type.oid)[0].as_py())
        except NotColumnwise:
            return self._evaluated_by_nodes(evaluable) or self._queried(prepared, values)

    def _array(self, expression: Expression) -> pa.Array:
        """Return an array of the one value in stored form. Raise NotColumnwise if neither the compiler nor Arrow can compute it."""
        assert self._evaluation is not None
        if isinstance(expression, Const):
            return read_text(pa.array([expression.value], pa.string()), expression.type.oid, expression.type.typmod)
        with planning(self._evaluation.time):
            planned = compiler.plan(expression)
        if planned.fields or (planned.constant is None and not planned.is_null):
            return columnwise.value(expression, {}, 1)
        kind = expression.type
        return read_text(pa.array([as_item(planned, kind).constant], pa.string()), kind.oid, kind.typmod)

    def _evaluated_by_nodes(self, evaluable: Expression) -> Value | None:
        """Return the value of a prepared expression. Return None if only a query can compute it, such as a row or a call of the catalogs.

        The expression decides it, with the outcome that `query.engine` declares too: 0A000 if no form is exact for these values.
        """
        assert self._evaluation is not None
        nodes = list(expressions(evaluable))
        is_row = any(node.type.oid == registry.RECORD for node in nodes) and not any(isinstance(node, FieldSelect) for node in nodes)
        if is_row or not all(map(compiler.has_form, nodes)):
            return None
        try:
            return Value(evaluable.type, RowEvaluator(self._evaluation.time).constant(evaluable).value)
        except PostgresError as error:
            if error.sqlstate != "0A000":
                raise
            return None

    def _by_nodes(self, expression: Expression) -> str | None:
        """Compute a value with the cast of an assignment, which is implicit: the text of the expression would not have it."""
        assert self._evaluation is not None
        return RowEvaluator(self._evaluation.time).constant(self._evaluation.prepare(expression)).value

    def _queried(self, prepared: PreparedText, values: Sequence[Value]) -> Value:
        rows = self._run_prepared(prepared, values).rows
        if rows is None or len(rows.columns) != 1:
            raise PostgresError("42601", f"query returned {0 if rows is None else len(rows.columns)} columns")
        first = next(rows.rows, None)
        if next(rows.rows, None) is not None:
            raise PostgresError("21000", "query returned more than one row")
        return Value(rows.columns[0][1], None if first is None else first[0])

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
            held = Row({field: Value(kind, None) for field, kind in self.fields(variable.type)}, variable.type.oid)
        if name is None:
            return self.value_of(held)
        if name not in held.fields:
            raise PostgresError("42703", f'record "{variable.name}" has no field "{name}"')
        return held.fields[name]

    # ---- many rows ----------------------------------------------------------------------------------------

    def columns(
        self, node: ParseNode, values: Sequence[Value | Column], rows: int, target: tuple[str, TypeRef] | None = None
    ) -> Value | Column | None:
        """Return the values of an expression for many rows; a Value if it is the same for all. `values`: the parameters.

        `target`: the name and the type of the column that the values enter by an assignment cast; DEFAULT gives None.
        """
        context = self._context([argument.type for argument in values])
        bound = binder.bind_raw(node, EMPTY, context.within(construct="VALUES", default=target is not None))
        if isinstance(bound, SetToDefault):
            return None
        if target is not None:
            bound = binder.assign(bound, target[1], target[0], context)
        return self._over(bound, values, rows)

    def cast_columns(self, value: Value | Column, target: TypeRef, rows: int) -> Value | Column:
        """Return values as they enter a variable of a type; see `cast`."""
        if isinstance(value, Value):
            return self.cast(value, target)
        if value.type.oid == target.oid and target.typmod in (-1, value.type.typmod):
            return value
        return self._over(binder.assign(Param(type=value.type, number=1), target, "", self._context([value.type])), [value], rows)

    def _over(self, bound: Expression, values: Sequence[Value | Column], rows: int) -> Value | Column:
        """Compute an expression over columns: by Arrow, or by Spark if there are many rows."""
        used = {node.number for node in expressions(bound) if isinstance(node, Param)}
        arrays_by_name = {
            f"p{number}": argument.array for number, argument in enumerate(values, 1) if isinstance(argument, Column) and number in used
        }

        def replaced(node: Expression) -> Expression | None:
            if not isinstance(node, Param):
                return None
            value = values[node.number - 1]
            if isinstance(value, Value):
                return Const(type=node.type, value=value.text)
            return ColumnRef(type=node.type, name=f"p{node.number}", attnum=node.number, key=f"p{node.number}")

        expression = rewriting.rewrite(bound, replaced)
        assert self._evaluation is not None
        prepared = self._evaluation.prepare(expression)
        if not arrays_by_name:
            try:
                return Value(bound.type, write_text(self._array(prepared), bound.type.oid)[0].as_py())
            except NotColumnwise:
                return Value(bound.type, self._by_nodes(expression))
        if isinstance(prepared, ColumnRef):
            return Column(bound.type, arrays_by_name[prepared.key])
        try:
            return Column(bound.type, columnwise.value(prepared, arrays_by_name, rows))
        except NotColumnwise:
            if rows < FEWEST_FOR_SPARK:
                raise
        kinds = {f"p{number}": argument.type for number, argument in enumerate(values, 1)}
        schema = StructType([StructField(name, spark_type(kinds[name].oid, kinds[name].typmod)) for name in arrays_by_name])
        frame = local_frame(Planner(self.session, self.session.begin_statement()).session_spark, pa.table(arrays_by_name), schema)
        computed = frame.coalesce(1).select(self._evaluation.column(expression).alias("value")).toArrow()["value"]
        return Column(bound.type, buffers.whole(computed).cast(arrow_type(bound.type.oid, bound.type.typmod)))

    # ---- statements ---------------------------------------------------------------------------------------

    def run(self, sql: Sql, scope: Scope) -> Outcome:
        """Run a statement with its variables as parameters."""
        prepared = self.prepare(sql, scope)
        values = [self._value(variable, scope) for variable in prepared.variables]
        kind = "statement" if sql.is_statement else "expression"
        with self._context_of(f'SQL {kind} "{sql.text}"', sql.text, before=0 if sql.is_statement else len("SELECT ")):
            return self._run_prepared(prepared, values)

    def outputs(self, sql: Sql, scope: Scope) -> Sequence[Names]:
        """See `Host`."""
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
        """See `Host`."""
        return [(".".join(names), self._value(names, scope)) for names in self.prepare(sql, scope).variables]

    def run_text(self, text: str, parameters: Sequence[Value]) -> Outcome:
        """Run the statements of a text and return the outcome of the last one."""
        outcome = Outcome(None, 0)
        with self._context_of(f'SQL statement "{text}"', text):
            for statement in parse(text):
                if statement.kind == "TransactionStmt":
                    raise PostgresError("0A000", "EXECUTE of transaction commands is not implemented")
                outcome = self._run(statement.node, parameters)
        return outcome

    def _run_prepared(self, prepared: PreparedText, values: Sequence[Value]) -> Outcome:
        self.session.analysed.expect(prepared.node)
        return self._run(prepared.node, values)

    def _run(self, node: ParseNode, values: Sequence[Value]) -> Outcome:
        result = self._result(node, values)
        if not isinstance(result, ResultSet):
            tag = getattr(result, "tag", None)
            if tag is None:
                raise PostgresError("0A000", "cannot COPY to/from client in PL/pgSQL")
            return Outcome(None, _processed(tag))
        return Outcome(_rows(result), None if result.tag is None else _processed(result.tag))

    def _result(self, node: ParseNode, values: Sequence[Value]) -> Result:
        with self._environment(values):
            result = stale_plan.replaced(self.session, lambda: self.session.parts.run_statement(node, self.session))
            # fetch the rows here, while the parameters are set: the result is lazy
            return replace(result, batches=list(result)) if isinstance(result, ResultSet) else result

    def prepare(self, sql: Sql, scope: Scope) -> PreparedText:
        """Return a text with its variables as parameters. The result is cached for the next call."""
        cached = self._prepared.texts.get(id(sql))
        if cached is not None:
            return cached[1]
        text = sql.text if sql.is_statement else f"SELECT {sql.text}"
        [statement] = self._parsed(text)
        node = type(statement.node)()
        node.CopyFrom(statement.node)
        conflict = self._prepared.variable_conflict or self.setting("plpgsql.variable_conflict")
        references = References(scope, self._columns, conflict)
        try:
            references.replace(node)
        except PostgresError as error:
            _cite(error, sql.text, 0 if sql.is_statement else len("SELECT "))
            raise
        expression, is_simple = None, False
        if (
            node.DESCRIPTOR.name == "SelectStmt"
            and not {field.name for field, _ in node.ListFields()} - _PLAIN
            and len(node.target_list) == 1
        ):
            value = node.target_list[0].res_target.val
            is_simple = not _has_query(value)
            expression = unwrap(value) if is_simple and not self._calls_users(value) else None
        prepared = PreparedText(node, references.found, expression, is_simple)
        if expression is not None and self._coalesces_rows(expression, references.found, scope):
            prepared.expression = None
            prepared.connected = (None, tuple(self._operand_text(operand, references.found) for operand in expression.args))
        elif is_simple and expression is None:
            prepared.connected = self._operands(node.target_list[0].res_target.val, references.found)
        self._prepared.texts[id(sql)] = (sql, prepared)  # the Sql is kept too, so that its id stays unique
        return prepared

    def _operands(self, node: pb.Node, variables: list[Names]) -> tuple[pb.BoolExprType.ValueType, tuple[PreparedText, ...]] | None:
        """Return the operands of an AND or OR that calls functions of users, or None: such a function may have effects."""
        connection = unwrap(node)
        if connection.DESCRIPTOR.name != "BoolExpr" or connection.boolop == pb.NOT_EXPR:
            return None
        return connection.boolop, tuple(self._operand_text(operand, variables) for operand in connection.args)

    def _operand_text(self, node: pb.Node, variables: list[Names]) -> PreparedText:
        """Return an operand of a text as a text of its own with the same variables."""
        select = pb.SelectStmt(limit_option=pb.LIMIT_OPTION_DEFAULT, op=pb.SETOP_NONE)
        select.target_list.add().res_target.val.CopyFrom(node)
        prepared = PreparedText(select, variables, None if self._calls_users(node) else unwrap(node), is_simple=True)
        if prepared.expression is None:
            prepared.connected = self._operands(node, variables)
        return prepared

    def _coalesces_rows(self, expression: ParseNode, variables: list[Names], scope: Scope) -> bool:
        """Return whether an expression is COALESCE of whole rows. The binder does not know the types of the rows of tables."""
        if expression.DESCRIPTOR.name != "CoalesceExpr":
            return False
        parts = [unwrap(operand) for operand in expression.args]
        matches = [scope.find(variables[part.number - 1]) for part in parts if part.DESCRIPTOR.name == "ParamRef"]
        return any(variable is not None and variable[0].row and variable[1] is None for variable in matches)

    def _calls_users(self, node: ParseNode) -> bool:
        """Return whether an expression may call a function that is not built in. It is then run as a query, which `user_call` evaluates."""
        called = {names.strings(descendant.funcname)[-1] for descendant in walk(node) if descendant.DESCRIPTOR.name == "FuncCall"}
        if not called <= builtin.builtins().functions_named.keys():
            return True
        database = self.session.context.database
        return bool(called) and not called.isdisjoint(functions.distinct_names(self.session.begin_statement().cursor, database))

    @staticmethod
    def _parsed(text: str) -> list[Statement]:
        statements = parse(text)
        if len(statements) != 1:
            raise PostgresError("42601", "cannot insert multiple commands into a prepared statement")
        return statements

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

        An error with a position cites the text instead (_SPI_error_callback). `before`: the number of characters that were put before it.
        """
        self.callers.append(lambda: shown or "")
        try:
            yield
        except PostgresError as error:
            if _cite(error, text, before):
                raise
            raise (error if shown is None else error.within(shown)) from error
        finally:
            self.callers.pop()

    # ---- types --------------------------------------------------------------------------------------------

    def cast(self, value: Value, target: TypeRef) -> Value:
        """Cast a value as in an assignment, or else by its text (exec_cast_value). A value of unknown type is read as the target type."""
        domain = registry.known().find(target.oid) if target.oid >= registry.FIRST_USER_OID else None
        if domain is not None and domain.kind is TypeKind.DOMAIN and (value.type.oid != target.oid or value.text is None):
            return self._checked(value, domain)
        if value.type.oid == target.oid and target.typmod in (-1, value.type.typmod):
            return value
        if value.text is None:
            return Value(target, None)
        if self._evaluation is None:
            self._evaluation = Evaluation(self.session)
        try:
            bound = binder.assign(Const(type=value.type, value=value.text), target, "", self._evaluation.context)
        except PostgresError as error:
            if error.sqlstate != "42804":
                raise
            bound = binder.assign(Const(type=TypeRef(registry.UNKNOWN), value=value.text), target, "", self._evaluation.context)
        try:
            return self._cast(bound, target)
        except PostgresError as error:
            error.position = None
            raise

    def _checked(self, value: Value, domain: PgType) -> Value:
        """Cast a value to a domain. Raise 23502 and 23514 if its constraints reject the value."""
        base = self.cast(value, TypeRef(*registry.known().base(domain.oid), domain.collation))
        if domain.not_null and base.text is None:
            raise PostgresError("23502", f"domain {domain.plain} does not allow null values", schema=domain.schema, datatype=domain.name)
        scope = Scope()
        scope.names["value"] = Variable("value", base.type, base)
        for name, text in domain.checks:
            if self.evaluate(self._prepared.expressions.setdefault(text, Sql(text)), scope).text == "f":
                message = f'value for domain {domain.plain} violates check constraint "{name}"'
                raise PostgresError("23514", message, schema=domain.schema, datatype=domain.name, constraint=name)
        return Value(TypeRef(domain.oid), base.text)

    def _cast(self, expression: Expression, target: TypeRef) -> Value:
        """Return the value of a cast of a constant."""
        assert self._evaluation is not None
        try:
            array = self._array(self._evaluation.prepare(expression))
        except NotColumnwise:
            return Value(target, self._by_nodes(expression))
        return Value(target, write_text(array, target.oid)[0].as_py())

    def declared(self, text: str, scope: Scope) -> TypeRef:
        """Resolve the type of a declaration: a type, a table's row, ``variable%TYPE``, ``table.column%TYPE`` or ``table%ROWTYPE``."""
        if not text:
            return TypeRef(registry.RECORD)
        lowered = text.lower().rstrip()
        if lowered.endswith("%rowtype"):
            return self._row_type(text[: lowered.index("%rowtype")].rstrip())
        if lowered.endswith("%type"):
            return self._declared_as(text[: lowered.index("%type")].rstrip(), scope)
        [statement] = parse(f"SELECT NULL::{text}")
        node = unwrap(statement.node.target_list[0].res_target.val).type_name
        try:
            return type_of(*names.type_name(node))
        except PostgresError as error:
            relation = self._relation(names.strings(node.names)) if error.sqlstate == "42704" else None
            if relation is None:
                error.position = None
                raise
            return self._of_relation(relation)

    def _declared_as(self, name_text: str, scope: Scope) -> TypeRef:
        parts = tuple(names.split_identifiers(name_text, ".") or (name_text,))
        resolved = scope.find(parts)
        if resolved is not None:
            variable, name = resolved
            held = variable.value
            return held.fields[name].type if name is not None and isinstance(held, Row) else variable.type
        relation = self._relation(parts[:-1])
        column = None if relation is None else relation.column(parts[-1])
        if relation is None or column is None:
            raise PostgresError("42P01", f'relation "{".".join(parts[:-1])}" does not exist')
        return stored_expression.type_of(column)

    def _row_type(self, name_text: str) -> TypeRef:
        parts = tuple(names.split_identifiers(name_text, ".") or (name_text,))
        relation = self._relation(parts)
        if relation is None:
            raise PostgresError("42P01", f'relation "{".".join(parts)}" does not exist')
        return self._of_relation(relation)

    def _relation(self, parts: Sequence[str]) -> Relation | None:
        if not parts:
            return None
        node = pb.RangeVar(relname=parts[-1], schemaname=parts[-2] if len(parts) > 1 else "")
        return lookup.find(self.session.begin_statement().cursor, self.session.context, node)

    def _of_relation(self, relation: Relation) -> TypeRef:
        return TypeRef(row_type(self.session, relation))

    def is_row(self, kind: TypeRef) -> bool:
        """Return whether a type is a row type."""
        if kind.oid == registry.RECORD:
            return True
        known_type = registry.known().find(kind.oid)
        return known_type.kind is TypeKind.COMPOSITE if known_type is not None else self._row_relation(kind.oid) is not None

    def _row_relation(self, oid: int) -> Relation | None:
        """Return the relation whose row type this is, or None."""
        if oid < registry.FIRST_USER_OID:
            return None
        cursor, database = self.session.begin_statement().cursor, self.session.context.database
        row = one(cursor, "SELECT oid FROM hg.pg_class WHERE dbid = ? AND reltype = ?", [database, oid])
        return None if row is None else relations.get(cursor, database, row[0])

    def fields(self, kind: TypeRef) -> Sequence[tuple[str, TypeRef]]:
        """Return the fields of a row type."""
        known_type = registry.known().find(kind.oid)
        if known_type is not None and known_type.attributes:
            return [(attribute.name, type_of(attribute.type_oid, attribute.typmod)) for attribute in known_type.attributes]
        relation = self._row_relation(kind.oid)
        if relation is None:
            return []
        return [(column.name, stored_expression.type_of(column)) for column in relation.columns]

    def row_of(self, value: Value) -> Row | None:
        """Parse the text of a row into its fields."""
        if value.text is None:
            return None
        columns = self.fields(value.type)
        if not columns:
            texts = record.parse(value.text, None)
            columns = [(f"f{place}", type_of(registry.TEXT, -1)) for place in range(1, len(texts) + 1)]
        else:
            texts = record.parse(value.text, len(columns))
        return Row({name: Value(kind, text) for (name, kind), text in zip(columns, texts, strict=True)}, value.type.oid)

    def value_of(self, row: Row) -> Value:
        """Return the text of a row."""
        return Value(TypeRef(row.type), None if row.is_null else record.print_record([field.text for field in row.fields.values()]))

    def is_array(self, kind: TypeRef) -> bool:
        """See `Host`."""
        known_type = registry.known().find(registry.known().base(kind.oid)[0])
        return known_type is not None and known_type.is_array

    def elements(self, value: Value, slice_dimensions: int) -> Sequence[Value]:
        """Return the elements of an array's text, or its slices. Raise 42804 if it is not an array, 2202E for a bad slice."""
        kind = registry.known().by_oid(registry.known().base(value.type.oid)[0])
        if not kind.element:
            raise PostgresError("42804", f"FOREACH expression must yield an array, not type {registry.format_type(value.type.oid)}")
        shape, texts = arrays.parts(value.text or "{}")
        if not slice_dimensions:
            return [Value(type_of(kind.element, value.type.typmod), text) for text in texts]
        if slice_dimensions > len(shape.lengths):
            raise PostgresError("2202E", f"slice dimension ({slice_dimensions}) is out of the valid range 0..{len(shape.lengths)}")
        inner = arrays.Shape(shape.lengths[-slice_dimensions:], shape.lowers[-slice_dimensions:])
        size, delimiter = math.prod(inner.lengths), registry.known().by_oid(kind.element).delimiter
        return [
            Value(TypeRef(kind.oid, value.type.typmod), arrays.print_array(inner, texts[start : start + size], delimiter))
            for start in range(0, len(texts), size)
        ]

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

    # ---- the transaction and the client -------------------------------------------------------------------

    @contextmanager
    def subtransaction(self) -> Iterator[None]:
        """See `Host`."""
        context = self.session.context
        context.subtransactions += 1
        try:
            with subtransaction.undone(self.session):
                yield
        finally:
            context.subtransactions -= 1

    @property
    def callers(self) -> list[Callable[[], str]]:
        """See `Host`."""
        return self.session.context.callers

    def shown(self, value: Value) -> str | None:
        """See `Host`."""
        texts = pa.array([value.text], pa.string())
        text: str | None = styled(texts, value.type.oid, value.type.typmod, self.session.context.forms)[0].as_py()
        return text

    def setting(self, name: str) -> str:
        """See `Host`."""
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
        self._evaluation = None

    def check(self) -> None:
        """See `Host`."""
        self.session.check_cancel()

    def say(self, level: str, sqlstate: str, message: str, detail: str | None, hint: str | None) -> None:
        """See `Host`."""
        self.session.notices.said.append(Notice(Severity(level), sqlstate, message, detail, hint))

    def open(self, name: str | None, query: Sql | str, scope: Scope, parameters: Sequence[Value], scroll: bool | None) -> str:
        """See `Host`. Raise 42601 if the statement does not return rows."""
        if isinstance(query, str):
            text, values = query, parameters
            [statement] = self._parsed(text)
            node = statement.node
        else:
            prepared, text = self.prepare(query, scope), query.text
            node, values = prepared.node, [self._value(variable, scope) for variable in prepared.variables]
            self.session.analysed.expect(node)
        with self._context_of(f'SQL statement "{text}"', text):
            result = self._result(node, values)
            if not isinstance(result, ResultSet):
                raise PostgresError("42601", "cannot open a query that returns no rows as cursor")
        return self.session.parts.open_cursor(self.session, name, node, result, scroll)

    def fetch(self, name: str, direction: int, count: int, *, is_move: bool) -> tuple[Rows, int]:
        """See `Host`. Raise 34000 if there is no cursor with the name."""
        result, moved = self.session.parts.move_cursor(self.session, name, _DIRECTIONS[direction], count, is_move)
        return _rows(result), moved

    def close(self, name: str) -> None:
        """See `Host`. Raise 34000 if there is no cursor with the name."""
        self.session.parts.close_cursor(self.session, name)


_DIRECTIONS = ("FETCH_FORWARD", "FETCH_BACKWARD", "FETCH_ABSOLUTE", "FETCH_RELATIVE")
"""The directions of FETCH by their numbers in the tree."""


def _rows(result: ResultSet) -> Rows:
    columns = tuple((column.name, type_of(column.type_oid, column.typmod)) for column in result.columns)
    return Rows(columns, (tuple(row.values()) for batch in result for row in batch.to_pylist()))


def _cite(error: PostgresError, text: str, before: int) -> bool:
    """Make the position of an error one in the text of a function. Return whether it had a position."""
    if error.position is None or error.internal_query is not None:
        return False
    error.internal_query, error.internal_position, error.position = text, max(error.position - before, 1), None
    return True


def of_parameters(session: Session) -> Scope:
    """The parameters of the statement that is running, as variables: ``$1`` and so on."""
    scope = Scope()
    for number, parameter in enumerate(session.parameters, 1):
        kind = TypeRef(parameter.type_oid)
        scope.names[f"${number}"] = Variable(f"${number}", kind, Value(kind, parameter.text))
    return scope


def row_type(session: Session, relation: Relation) -> int:
    """The oid of the type of a relation's rows."""
    row = one(
        session.begin_statement().cursor, "SELECT reltype FROM hg.pg_class WHERE dbid = ? AND oid = ?", [relation.database, relation.oid]
    )
    return registry.RECORD if row is None else int(row[0])


def _has_query(node: ParseNode) -> bool:
    return any(child.DESCRIPTOR.name == "SubLink" for child in walk(node))


def _processed(tag: str) -> int:
    last = tag.rsplit(" ", 1)[-1]
    return int(last) if last.isdigit() else 0
