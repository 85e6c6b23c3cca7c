"""A session as the functions that it runs see it: their expressions and statements (`headgate.plpgsql.interpreter.Host`).

Made by `call` for each call of a function, and by `commands.trigger`. An expression without a subquery is bound once for the types of its
variables, and computed in the driver with their values as constants; any other is a query. A statement takes the same way as one of a
client's, with variables as parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql.types import StructField, StructType

from headgate.catalog.physical import one
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.commands import lookup, stored_expression
from headgate.commands.function.variable_reference import References
from headgate.commands.query.catalog.query import TypedParameter
from headgate.commands.query.clause import session_function
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.commands.transaction import subtransaction
from headgate.commands.transition_table import TransitionTable
from headgate.errors import Notice, PostgresError, Severity
from headgate.expression import builtin, columnwise, rewriting, scalar
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY
from headgate.expression.deparsing.deparse import deparse
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Const, Expression, Param, SetToDefault, TypeRef
from headgate.expression.node import walk as expressions
from headgate.expression.spark import compiler
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.session_time import planning
from headgate.plpgsql import interpreter
from headgate.plpgsql.interpreter import Outcome, Rows
from headgate.plpgsql.scope import Row, Scope, Value, Variable, type_of
from headgate.plpgsql.tree import Names, Sql
from headgate.sql import names
from headgate.sql.parser import ParseNode, Statement, parse, unwrap, walk
from headgate.storage.spark.local_relation import local_frame
from headgate.types import buffers, registry
from headgate.types.registry import TypeKind
from headgate.types.resultset import ResultSet
from headgate.types.storage import arrow_type, spark_type
from headgate.types.text import array as arrays
from headgate.types.text import record
from headgate.types.text.text import read_text, write_text

FEWEST_FOR_SPARK = 100
"""An expression over fewer rows is not worth a Spark job."""
_PLAIN = frozenset({"target_list", "limit_option", "op"})


@dataclass(frozen=True)
class Column:
    """The values of a variable for many rows, in stored form."""

    type: TypeRef
    array: pa.Array


@dataclass
class PreparedText:
    """A text of SQL with its variables as parameters."""

    node: ParseNode
    variables: list[Names]
    expression: ParseNode | None
    """What is to be computed, where nothing but an expression stands there."""
    bound: dict[tuple[TypeRef, ...], Expression] = field(default_factory=dict)
    quick: dict[tuple[TypeRef, ...], tuple[TypeRef, scalar.Scalar]] = field(default_factory=dict)
    """By the types of the variables: the type of the value, and how Python computes it."""


class Prepared:
    """What has been taken apart of a function's texts; kept with the function, for as long as what it names is the same."""

    def __init__(self) -> None:
        self.texts: dict[int, tuple[Sql, PreparedText]] = {}
        self.subscripts: dict[str, Sql] = {}


class SessionHost:
    """One call of a function in a session."""

    def __init__(self, session: Session, prepared: Prepared, tables: Mapping[str, TransitionTable] | None = None) -> None:
        """`tables`: the transition tables that the function's queries can read, by name."""
        self.session, self._prepared = session, prepared
        self._tables = tables or {}
        self._evaluation: Evaluation | None = None
        self.cursors: dict[str, Rows] = {}

    # ---- expressions --------------------------------------------------------------------------------------

    def evaluate(self, sql: Sql, scope: Scope) -> Value:
        """The value of an expression; 42601 for several columns, 21000 for several rows."""
        found = self.prepare(sql, scope)
        given = [self._value(each, scope) for each in found.variables]
        if found.expression is not None:
            with self._without_position():
                return self._computed(found, given)
        shown = f'SQL expression "{sql.text}"' if sql.assignment is None else f'PL/pgSQL assignment "{sql.assignment}"'
        with self._context_of(shown):
            return self._queried(found, given)

    def evaluate_node(self, node: pb.Node, scope: Scope) -> Value:
        """The value of an argument of CALL."""
        select = pb.SelectStmt(limit_option=pb.LIMIT_OPTION_DEFAULT, op=pb.SETOP_NONE)
        select.target_list.add().res_target.val.CopyFrom(node)
        references = References(scope, self._columns)
        references.replace(select)
        value = select.target_list[0].res_target.val
        is_plain = not _has_query(value) and not self._calls_users(value)
        found = PreparedText(select, references.found, unwrap(value) if is_plain else None)
        given = [self._value(each, scope) for each in found.variables]
        return self._computed(found, given) if found.expression is not None else self._queried(found, given)

    def evaluate_text(self, text: str) -> Value:
        """The value of the text of an expression that names no variable: an argument's default."""
        return self.evaluate(self._prepared.subscripts.setdefault(text, Sql(text)), Scope())

    def described_node(self, node: pb.Node, parameters: dict[int, int]) -> Value:
        """NULL of the type of an argument; it is not computed. `parameters`: the types of the statement's."""
        bound = binder.bind_raw(node, EMPTY, self._context([]).within(parameters=dict(parameters)))
        return Value(bound.type, None)

    def array_of(self, values: Sequence[Value], kind: int) -> Value:
        """An array of values that are elements of it."""
        delimiter = registry.known().by_oid(registry.known().by_oid(kind).element).delimiter
        shape = arrays.Shape((len(values),), (1,)) if values else arrays.Shape((), ())
        return Value(TypeRef(kind), arrays.print_array(shape, [each.text for each in values], delimiter))

    def as_value(self, held: Value | Row | None) -> Value | None:
        """What a variable holds as a value."""
        return self.value_of(held) if isinstance(held, Row) else held

    def _context(self, kinds: Sequence[TypeRef]) -> BindContext:
        """How an expression is bound whose parameters have these types."""
        if self._evaluation is None:
            self._evaluation = Evaluation(self.session)
        return self._evaluation.context.within(parameters={number: kind.oid for number, kind in enumerate(kinds, 1)})

    def _computed(self, found: PreparedText, given: Sequence[Value]) -> Value:
        kinds = tuple(each.type for each in given)
        quick = found.quick.get(kinds)
        if quick is not None:
            kind, compute = quick
            return Value(kind, scalar.printed(compute([scalar.read(each.type.oid, each.text) for each in given])))
        context, bound = self._context(kinds), found.bound.get(kinds)
        assert self._evaluation is not None
        if bound is None:
            bound = found.bound[kinds] = binder.bind_raw(found.expression, EMPTY, context)
            named = all(scalar.is_known(each.type.oid) for each in expressions(bound) if isinstance(each, Param))
            made = scalar.compiled(bound) if named and all(scalar.is_known(each.oid) for each in kinds) else None
            if made is not None:
                found.quick[kinds] = (bound.type, made)
                return self._computed(found, given)
        if isinstance(bound, Param) and given[bound.number - 1].type.oid == bound.type.oid:
            return given[bound.number - 1]
        if isinstance(bound, Const):
            return Value(bound.type, bound.value)

        def constant(node: Expression) -> Expression | None:
            return Const(type=node.type, value=given[node.number - 1].text) if isinstance(node, Param) else None

        return self._settled(rewriting.rewrite(bound, constant), found, given)

    def _settled(self, expression: Expression, found: PreparedText, given: Sequence[Value]) -> Value:
        """Return the value of an expression without variables. `found`, `given`: what it was made of."""
        assert self._evaluation is not None
        try:
            array = self._array(self._evaluation.prepare(expression))
        except NotColumnwise:
            return self._asked(found, expression, given)
        return Value(expression.type, write_text(array, expression.type.oid, expression.type.typmod)[0].as_py())

    def _array(self, expression: Expression) -> pa.Array:
        """The value as an array of one, in stored form; NotColumnwise where neither the compiler folds it nor Arrow has it."""
        assert self._evaluation is not None
        if isinstance(expression, Const):
            return read_text(pa.array([expression.value], pa.string()), expression.type.oid, expression.type.typmod)
        with planning(self._evaluation.time):
            planned = compiler.plan(expression)
        if planned.fields or (planned.constant is None and not planned.is_null):
            return columnwise.value(expression, {}, 1)
        kind = expression.type
        return read_text(pa.array([as_item(planned, kind).constant], pa.string()), kind.oid, kind.typmod)

    def _asked(self, found: PreparedText, expression: Expression, given: Sequence[Value]) -> Value:
        """What only the catalogs' engine or Spark computes."""
        if not any(each.type.oid == registry.RECORD for each in expressions(expression)):
            try:
                return Value(expression.type, self._by_catalog(expression))
            except PostgresError as error:
                if error.sqlstate not in ("0A000", "42883"):
                    raise
        return self._queried(found, given)

    def _by_catalog(self, expression: Expression) -> str | None:
        """The value by the catalogs' engine, on a cursor of its own: an error would end the transaction of the session's."""
        with contextlib.closing(self.session.node.catalog.cursor()) as cursor:
            return session_function.value(deparse(expression), expression.type, self.session, cursor).value

    def _queried(self, found: PreparedText, given: Sequence[Value]) -> Value:
        rows = self._run(found.node, given).rows
        if rows is None or len(rows.columns) != 1:
            raise PostgresError("42601", f"query returned {0 if rows is None else len(rows.columns)} columns")
        first = next(rows.rows, None)
        if next(rows.rows, None) is not None:
            raise PostgresError("21000", "query returned more than one row")
        return Value(rows.columns[0][1], None if first is None else first[0])

    def _value(self, written: Names, scope: Scope) -> Value:
        found = scope.find(written)
        assert found is not None, "it was found when the text was taken apart"
        variable, name = found
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
        self, node: ParseNode, given: Sequence[Value | Column], rows: int, target: tuple[str, TypeRef] | None = None
    ) -> Value | Column | None:
        """Return the values of an expression for many rows; a Value if it is the same for all. `given`: the parameters.

        `target`: the name and the type of the column that the values enter by an assignment cast; DEFAULT gives None.
        """
        context = self._context([each.type for each in given])
        bound = binder.bind_raw(node, EMPTY, context.within(construct="VALUES", default=target is not None))
        if isinstance(bound, SetToDefault):
            return None
        if target is not None:
            bound = binder.assign(bound, target[1], target[0], context)
        return self._over(bound, given, rows)

    def cast_columns(self, given: Value | Column, target: TypeRef, rows: int) -> Value | Column:
        """Return values as they enter a variable of a type; see `cast`."""
        if isinstance(given, Value):
            return self.cast(given, target)
        if given.type.oid == target.oid and target.typmod in (-1, given.type.typmod):
            return given
        return self._over(binder.assign(Param(type=given.type, number=1), target, "", self._context([given.type])), [given], rows)

    def _over(self, bound: Expression, given: Sequence[Value | Column], rows: int) -> Value | Column:
        """Compute an expression over columns: by Arrow, or by Spark if there are many rows."""
        used = {each.number for each in expressions(bound) if isinstance(each, Param)}
        named = {f"p{number}": each.array for number, each in enumerate(given, 1) if isinstance(each, Column) and number in used}

        def replaced(node: Expression) -> Expression | None:
            if not isinstance(node, Param):
                return None
            value = given[node.number - 1]
            if isinstance(value, Value):
                return Const(type=node.type, value=value.text)
            return ColumnRef(type=node.type, name=f"p{node.number}", attnum=node.number, key=f"p{node.number}")

        expression = rewriting.rewrite(bound, replaced)
        assert self._evaluation is not None
        prepared = self._evaluation.prepare(expression)
        if not named:
            try:
                return Value(bound.type, write_text(self._array(prepared), bound.type.oid, bound.type.typmod)[0].as_py())
            except NotColumnwise:
                return Value(bound.type, self._by_catalog(expression))
        if isinstance(prepared, ColumnRef):
            return Column(bound.type, named[prepared.key])
        try:
            return Column(bound.type, columnwise.value(prepared, named, rows))
        except NotColumnwise:
            if rows < FEWEST_FOR_SPARK:
                raise
        kinds = {f"p{number}": each.type for number, each in enumerate(given, 1)}
        schema = StructType([StructField(name, spark_type(kinds[name].oid, kinds[name].typmod)) for name in named])
        frame = local_frame(Planner(self.session, self.session.begin_statement()).session_spark, pa.table(named), schema)
        made = frame.coalesce(1).select(self._evaluation.column(expression).alias("value")).toArrow()["value"]
        return Column(bound.type, buffers.whole(made).cast(arrow_type(bound.type.oid, bound.type.typmod)))

    # ---- statements ---------------------------------------------------------------------------------------

    def run(self, sql: Sql, scope: Scope) -> Outcome:
        """Runs a statement, with the variables in it as parameters."""
        found = self.prepare(sql, scope)
        given = [self._value(each, scope) for each in found.variables]
        with self._context_of(f'SQL statement "{sql.text}"'):
            return self._run(found.node, given)

    def run_text(self, text: str, parameters: Sequence[Value]) -> Outcome:
        """Runs the statements of a text; what the last one gives."""
        done = Outcome(None, 0)
        with self._context_of(f'SQL statement "{text}"'):
            for statement in parse(text):
                if statement.kind == "TransactionStmt":
                    raise PostgresError("0A000", "EXECUTE of transaction commands is not implemented")
                done = self._run(statement.node, parameters)
        return done

    def _run(self, node: ParseNode, given: Sequence[Value]) -> Outcome:
        session = self.session
        with self._environment(given):
            result = session.node.run_statement(node, session)
            if not isinstance(result, ResultSet):
                tag = getattr(result, "tag", None)
                if tag is None:
                    raise PostgresError("0A000", "cannot COPY to/from client in PL/pgSQL")
                return Outcome(None, _processed(tag))
            # read here: what it reads lazily, it reads with these parameters
            kept = [batch.to_pylist() for batch in result]
        columns = tuple((each.name, type_of(each.type_oid, each.typmod)) for each in result.columns)
        processed = None if result.tag is None else _processed(result.tag)
        return Outcome(Rows(columns, (tuple(row.values()) for rows in kept for row in rows)), processed)

    def prepare(self, sql: Sql, scope: Scope) -> PreparedText:
        """Return a text with its variables as parameters, kept for the next call."""
        kept = self._prepared.texts.get(id(sql))
        if kept is not None:
            return kept[1]
        text = sql.text if sql.is_statement else f"SELECT {sql.text}"
        [statement] = self._parsed(text)
        node = type(statement.node)()
        node.CopyFrom(statement.node)
        references = References(scope, self._columns)
        references.replace(node)
        expression = None
        if (
            node.DESCRIPTOR.name == "SelectStmt"
            and not {each.name for each, _ in node.ListFields()} - _PLAIN
            and len(node.target_list) == 1
        ):
            value = node.target_list[0].res_target.val
            expression = None if _has_query(value) or self._calls_users(value) else unwrap(value)
        made = PreparedText(node, references.found, expression)
        self._prepared.texts[id(sql)] = (sql, made)  # kept with the text, whose id it is
        return made

    def _calls_users(self, node: ParseNode) -> bool:
        """Whether an expression may call a function that is not built in: it is a query then, which `user_call` settles."""
        called = (names.strings(each.funcname) for each in walk(node) if each.DESCRIPTOR.name == "FuncCall")
        return any(parts[-1] not in builtin.builtins().functions_named for parts in called)

    @staticmethod
    def _parsed(text: str) -> list[Statement]:
        found = parse(text)
        if len(found) != 1:
            raise PostgresError("42601", "cannot insert multiple commands into a prepared statement")
        return found

    def _columns(self, node: pb.RangeVar) -> Sequence[str]:
        table = None if node.schemaname else self._tables.get(node.relname)
        relation = lookup.find(self.session.begin_statement().cursor, self.session.context, node) if table is None else table.relation
        return [] if relation is None else [each.name for each in relation.columns]

    @contextlib.contextmanager
    def _environment(self, given: Sequence[Value]) -> Iterator[None]:
        """Inside, the statements of the session have these parameters and the function's transition tables."""
        session = self.session
        before = session.parameters, session.transition_tables
        session.parameters = tuple(TypedParameter(each.type.oid, each.text) for each in given)
        session.transition_tables = self._tables
        try:
            yield
        finally:
            session.parameters, session.transition_tables = before

    @contextlib.contextmanager
    def _without_position(self) -> Iterator[None]:
        """Errors inside have no position: the text is not the client's."""
        try:
            yield
        except PostgresError as error:
            error.position = None
            raise

    @contextlib.contextmanager
    def _context_of(self, shown: str) -> Iterator[None]:
        """Errors inside carry a line of context."""
        try:
            yield
        except PostgresError as error:
            error.position = None
            raise error.within(shown) from error

    # ---- types --------------------------------------------------------------------------------------------

    def cast(self, value: Value, target: TypeRef) -> Value:
        """An assignment cast; a value of unknown type is read as the target's."""
        if value.type.oid == target.oid and target.typmod in (-1, value.type.typmod):
            return value
        if value.text is None:
            return Value(target, None)
        if self._evaluation is None:
            self._evaluation = Evaluation(self.session)
        return self._cast(binder.assign(Const(type=value.type, value=value.text), target, "", self._evaluation.context), target)

    def _cast(self, expression: Expression, target: TypeRef) -> Value:
        """Return the value of a cast of a constant."""
        assert self._evaluation is not None
        try:
            array = self._array(self._evaluation.prepare(expression))
        except NotColumnwise:
            return Value(target, self._by_catalog(expression))
        return Value(target, write_text(array, target.oid, target.typmod)[0].as_py())

    def declared(self, text: str, scope: Scope) -> TypeRef:
        """The type that a declaration names: a type, a table's row, ``variable%TYPE``, ``table.column%TYPE``, ``table%ROWTYPE``."""
        if not text:
            return TypeRef(registry.RECORD)
        lowered = text.lower().rstrip()
        if lowered.endswith("%rowtype"):
            return self._row_type(text[: lowered.index("%rowtype")].rstrip(), text)
        if lowered.endswith("%type"):
            return self._declared_as(text[: lowered.index("%type")].rstrip(), scope)
        [statement] = parse(f"SELECT NULL::{text}")
        node = unwrap(statement.node.target_list[0].res_target.val).type_name
        try:
            return type_of(*names.type_name(node))
        except PostgresError as error:
            found = self._relation(names.strings(node.names)) if error.sqlstate == "42704" else None
            if found is None:
                error.position = None
                raise
            return self._of_relation(found)

    def _declared_as(self, written: str, scope: Scope) -> TypeRef:
        parts = tuple(names.split_identifiers(written, ".") or (written,))
        known = scope.find(parts)
        if known is not None:
            variable, name = known
            held = variable.value
            return held.fields[name].type if name is not None and isinstance(held, Row) else variable.type
        relation = self._relation(parts[:-1])
        column = None if relation is None else relation.column(parts[-1])
        if relation is None or column is None:
            raise PostgresError("42P01", f'relation "{".".join(parts[:-1])}" does not exist')
        return stored_expression.type_of(column)

    def _row_type(self, written: str, text: str) -> TypeRef:
        parts = tuple(names.split_identifiers(written, ".") or (written,))
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
        """Whether a type is a row type."""
        if kind.oid == registry.RECORD:
            return True
        found = registry.known().find(kind.oid)
        return found.kind is TypeKind.COMPOSITE if found is not None else self._row_relation(kind.oid) is not None

    def _row_relation(self, oid: int) -> Relation | None:
        """The relation whose rows a type is."""
        if oid < registry.FIRST_USER_OID:
            return None
        cursor, database = self.session.begin_statement().cursor, self.session.context.database
        found = one(cursor, "SELECT oid FROM hg.pg_class WHERE dbid = ? AND reltype = ?", [database, oid])
        return None if found is None else relations.get(cursor, database, found[0])

    def fields(self, kind: TypeRef) -> Sequence[tuple[str, TypeRef]]:
        """The fields of a row type."""
        found = registry.known().find(kind.oid)
        if found is not None and found.attributes:
            return [(each.name, type_of(each.type_oid, each.typmod)) for each in found.attributes]
        relation = self._row_relation(kind.oid)
        if relation is None:
            return []
        return [(each.name, stored_expression.type_of(each)) for each in relation.columns]

    def row_of(self, value: Value) -> Row | None:
        """The fields of a row's text."""
        if value.text is None:
            return None
        columns = self.fields(value.type)
        if not columns:
            texts: list[str | None] = []
            record.parse(value.text, 0, texts)
            columns = [(f"f{place}", type_of(registry.TEXT, -1)) for place in range(1, len(texts) + 1)]
        else:
            texts = record.parse(value.text, len(columns))
        return Row({name: Value(kind, text) for (name, kind), text in zip(columns, texts, strict=True)}, value.type.oid)

    def value_of(self, row: Row) -> Value:
        """A row's text."""
        return Value(TypeRef(row.type), record.print_record([each.text for each in row.fields.values()]))

    def elements(self, value: Value) -> Sequence[Value]:
        """The elements of an array's text."""
        element = registry.known().by_oid(value.type.oid).element
        if not element:
            raise PostgresError("42804", f"FOREACH expression must yield an array, not type {registry.format_type(value.type.oid)}")
        _, texts = arrays.parts(value.text or "{}")
        return [Value(type_of(element, value.type.typmod), text) for text in texts]

    def with_element(self, value: Value, element: str, new: Value, scope: Scope) -> Value:
        """An array of one dimension with an element replaced, or one more at its end."""
        kind = registry.known().by_oid(value.type.oid)
        if not kind.element:
            raise PostgresError(
                "42804", f"cannot subscript type {registry.format_type(value.type.oid)} because it does not support subscripting"
            )
        inside = element[element.index("[") + 1 : element.rindex("]")]
        at = self.cast(self.evaluate(self._prepared.subscripts.setdefault(inside, Sql(inside)), scope), TypeRef(registry.INT4)).text
        if at is None:
            raise PostgresError("22004", "array subscript in assignment must not be null")
        _, texts = arrays.parts(value.text or "{}")
        items = list(texts)
        place = int(at) - 1
        if not 0 <= place <= len(items):
            raise PostgresError("0A000", "assigning behind the end of an array is not supported")
        items[place : place + 1] = [self.cast(new, type_of(kind.element, value.type.typmod)).text]
        return Value(
            value.type, arrays.print_array(arrays.Shape((len(items),), (1,)), items, registry.known().by_oid(kind.element).delimiter)
        )

    # ---- the transaction and the client -------------------------------------------------------------------

    def subtransaction(self) -> AbstractContextManager[None]:
        """See `Host`."""
        return subtransaction.undone(self.session)

    def end_transaction(self, *, commits: bool, chain: bool) -> None:
        """2D000: a function is part of a statement, and so is a procedure of a node."""
        raise PostgresError("2D000", "invalid transaction termination")

    def check(self) -> None:
        """See `Host`."""
        self.session.check_cancel()

    def say(self, level: str, sqlstate: str, message: str, detail: str | None, hint: str | None) -> None:
        """See `Host`."""
        self.session.notices.said.append(Notice(Severity(level), sqlstate, message, detail, hint))

    def open(self, name: str | None, outcome: Rows) -> str:
        """See `Host`."""
        opened = name or f"<unnamed portal {len(self.cursors) + 1}>"
        if opened in self.cursors:
            raise PostgresError("42P03", f'cursor "{opened}" already in use')
        self.cursors[opened] = outcome
        return opened

    def fetch(self, name: str, direction: int, count: int) -> Rows:
        """The next rows; other directions are not supported."""
        rows = self.cursors.get(name)
        if rows is None:
            raise PostgresError("34000", f'cursor "{name}" does not exist')
        if direction or count < 0:
            raise PostgresError("0A000", "only FETCH NEXT and FETCH FORWARD of a cursor in a function are supported")
        taken = [row for row, _ in zip(rows.rows, range(count), strict=False)] if count < interpreter.INT4_MAX else list(rows.rows)
        return Rows(rows.columns, iter(taken))

    def close(self, name: str) -> None:
        """See `Host`."""
        if self.cursors.pop(name, None) is None:
            raise PostgresError("34000", f'cursor "{name}" does not exist')


def of_parameters(session: Session) -> Scope:
    """The parameters of the statement that is running, as variables: ``$1`` and so on."""
    scope = Scope()
    for number, given in enumerate(session.parameters, 1):
        kind = TypeRef(given.type_oid)
        scope.names[f"${number}"] = Variable(f"${number}", kind, Value(kind, given.text))
    return scope


def row_type(session: Session, relation: Relation) -> int:
    """The oid of the type of a relation's rows."""
    found = one(
        session.begin_statement().cursor, "SELECT reltype FROM hg.pg_class WHERE dbid = ? AND oid = ?", [relation.database, relation.oid]
    )
    return registry.RECORD if found is None else int(found[0])


def _has_query(node: ParseNode) -> bool:
    return any(each.DESCRIPTOR.name == "SubLink" for each in walk(node))


def _processed(tag: str) -> int:
    last = tag.rsplit(" ", 1)[-1]
    return int(last) if last.isdigit() else 0
