"""Runs the tree of a PL/pgSQL function (manual, 43; PostgreSQL's pl_exec.c).

`commands.function` calls `run` for each call of a function. Values are PostgreSQL's texts with their types (`scope.Value`). `host.Host`
evaluates SQL. A block with an EXCEPTION part is a subtransaction of the host, which is rolled back before a handler runs.
An error that leaves the function gets a line of context, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.errors import PostgresError, existing
from headgate.expression.node import BOOLEAN, INTEGER, TEXT, TypeRef
from headgate.plpgsql import condition, tree
from headgate.plpgsql.host import Host, Outcome, Rows
from headgate.plpgsql.scope import Row, Scope, Value, Variable
from headgate.plpgsql.tree import Names, Sql
from headgate.sql import command_tag
from headgate.sql.parser import parse
from headgate.types import registry

INT4_MAX = 2**31 - 1
FORWARD = 0
"""The direction of FETCH FORWARD in the tree."""


class _LeaveError(Exception):
    """Raised by EXIT and CONTINUE, and caught by their loop or block."""

    def __init__(self, label: str | None, *, is_exit: bool) -> None:
        super().__init__()
        self.label, self.is_exit = label, is_exit


class _ReturnError(Exception):
    """Raised by RETURN to leave the function."""


@dataclass
class Execution:
    """The state of one call of a function: its result so far, and the statement that runs."""

    host: Host
    shown: str
    """The function as shown in error contexts: ``f(integer)``."""
    is_set: bool = False
    result_is_row: bool = False
    outputs: tuple[str, ...] = ()
    """The names of the OUT parameters."""
    columns: Sequence[TypeRef] | None = None
    """The columns of a set's rows, None if the call decides them."""
    result: Value | Row | None = None
    rows: list[Sequence[Value]] = field(default_factory=list)
    """The rows that RETURN NEXT and RETURN QUERY have returned."""
    processed: int = 0
    doing: str = ""
    line: int = 0
    errors: list[PostgresError] = field(default_factory=list)
    """The errors that handlers currently process, the innermost last."""
    rethrown: PostgresError | None = None
    """The error that RAISE without parameters has raised again. Its context already has the line of this function."""
    print_strict_params: str | None = None
    has_returned: bool = False


def run(function: tree.Function, execution: Execution, scope: Scope) -> None:
    """Run a function's body and store its result in `execution`. `scope` contains the parameters.

    Errors get the function's line of context. Raises 2D000 for EXIT or CONTINUE outside a loop.
    """
    callers = execution.host.callers
    callers.append(lambda: context(execution))
    execution.print_strict_params = function.print_strict_params
    try:
        _block(function.block, execution, scope)
    except _ReturnError:
        execution.has_returned = True
    except _LeaveError as left:
        what = "EXIT" if left.is_exit else "CONTINUE"
        raise PostgresError("2D000", f"{what} cannot be used outside a loop").within(context(execution)) from left
    except PostgresError as error:
        raise _within(error, execution) from error
    except RecursionError as error:
        raise PostgresError("54001", "stack depth limit exceeded").within(context(execution)) from error
    finally:
        callers.pop()


def _within(error: PostgresError, execution: Execution) -> PostgresError:
    """Add the function's line of context to an error, unless RAISE has raised it again."""
    return error if error is execution.rethrown else error.within(context(execution))


def context(execution: Execution) -> str:
    """Return the line of error context for the current statement."""
    if not execution.doing:
        return f"PL/pgSQL function {execution.shown}"
    if not execution.line:
        return f"PL/pgSQL function {execution.shown} {execution.doing}"
    return f"PL/pgSQL function {execution.shown} line {execution.line} {execution.doing}"


def _statements(body: Sequence[tree.Statement], execution: Execution, scope: Scope) -> None:
    for statement in body:
        action, doing = _ACTIONS[type(statement)]
        execution.line, execution.doing = statement.line, f"at {doing(statement)}"
        execution.host.check()
        action(statement, execution, scope)


# ---- blocks -----------------------------------------------------------------------------------------------


def _block(block: tree.Block, execution: Execution, scope: Scope) -> None:
    inner = Scope(block.label, scope)
    for declaration in block.declarations:
        execution.line, execution.doing = declaration.line, "during statement block local variable initialization"
        _declare(declaration, execution, inner)
    execution.line, execution.doing = block.line, "at statement block"
    try:
        if block.handlers:
            _guarded(block, execution, inner)
        else:
            _statements(block.body, execution, inner)
    except _LeaveError as left:
        if not left.is_exit or left.label is None or left.label != block.label:
            raise


def _declare(declaration: tree.Declaration, execution: Execution, scope: Scope) -> None:
    host = execution.host
    if declaration.alias is not None:
        target = existing(scope.find((declaration.alias,)), "42704", f'variable "{declaration.alias}"')
        scope.names[declaration.name] = target[0]
        return
    kind = host.types.declared(declaration.type, scope)
    variable = Variable(
        declaration.name, kind, None, host.types.is_row(kind), declaration.constant, declaration.not_null, declaration.cursor
    )
    default = None if declaration.default is None else host.evaluate(declaration.default, scope)
    if default is not None or not variable.row:
        _store(variable, None, default or Value(kind, None), execution, first=True)
    elif kind.oid != registry.RECORD:
        variable.value = _null_row(kind, execution)
    scope.names[declaration.name] = variable


def _guarded(block: tree.Block, execution: Execution, scope: Scope) -> None:
    """Run a block with handlers in a subtransaction."""
    try:
        with execution.host.subtransaction():
            _statements(block.body, execution, scope)
    except PostgresError as error:
        handler = next(
            (candidate for candidate in block.handlers if any(condition.covers(name, error.sqlstate) for name in candidate.conditions)),
            None,
        )
        if handler is None or error.severity.value in ("FATAL", "PANIC"):
            raise
        execution.host.forget_cancel(error)
        _within(error, execution)
        inner = Scope(None, scope)
        inner.names["sqlstate"] = Variable("sqlstate", TEXT, Value(TEXT, error.sqlstate), constant=True)
        inner.names["sqlerrm"] = Variable("sqlerrm", TEXT, Value(TEXT, error.message), constant=True)
        execution.errors.append(error)
        try:
            _statements(handler.body, execution, inner)
        finally:
            execution.errors.pop()


# ---- variables --------------------------------------------------------------------------------------------


def _target(names: Names, scope: Scope) -> tuple[Variable, str | None]:
    target = scope.find(names)
    if target is None:
        raise PostgresError("42601", f'"{".".join(names)}" is not a known variable')
    return target


def assign(names: Names, value: Value, execution: Execution, scope: Scope) -> None:
    """Assign a value to a variable, or to a field of a record."""
    variable, name = _target(names, scope)
    _store(variable, name, value, execution)


def _store(variable: Variable, name: str | None, value: Value, execution: Execution, *, first: bool = False) -> None:
    host = execution.host
    if variable.constant and not first:
        raise PostgresError("22005", f'variable "{variable.name}" is declared CONSTANT')
    if name is not None:
        row = variable.value
        if not isinstance(row, Row):
            if variable.type.oid == registry.RECORD:
                raise _unassigned(variable)
            row = _null_row(variable.type, execution)
        if name not in row.fields:
            raise PostgresError("42703", f'record "{variable.name}" has no field "{name}"')
        # make a new row: others that refer to the old one must not see the change
        variable.value = Row({**row.fields, name: host.cast(value, row.fields[name].type)}, row.type)
        return
    if value.text is None and variable.not_null:
        raise PostgresError("22004", f'null value cannot be assigned to variable "{variable.name}" declared NOT NULL')
    if not variable.row:
        variable.value = host.cast(value, variable.type)
    elif value.text is None:
        variable.value = None if variable.type.oid == registry.RECORD else _null_row(variable.type, execution)
    else:
        variable.value = _fitting(variable, _row(value, execution), execution)


def _null_row(kind: TypeRef, execution: Execution) -> Row:
    return Row({field: Value(field_type, None) for field, field_type in execution.host.types.fields(kind)}, kind.oid, is_null=True)


def _row(value: Value, execution: Execution) -> Row | None:
    if not execution.host.types.is_row(value.type):
        raise PostgresError("42804", "cannot assign non-composite value to a record variable")
    return execution.host.types.row_of(value)


def _fitting(variable: Variable, row: Row | None, execution: Execution) -> Row | None:
    """Coerce a row to the row type of a variable, column by column in order. Return a row of NULLs for None, if the type is known."""
    if variable.type.oid == registry.RECORD:
        return row
    columns = execution.host.types.fields(variable.type)
    values = [] if row is None else list(row.fields.values())
    filled = [
        execution.host.cast(values[position], kind) if position < len(values) else Value(kind, None)
        for position, (_, kind) in enumerate(columns)
    ]
    return Row({name: value for (name, _), value in zip(columns, filled, strict=True)}, variable.type.oid)


def _unassigned(variable: Variable) -> PostgresError:
    detail = "The tuple structure of a not-yet-assigned record is indeterminate."
    return PostgresError("55000", f'record "{variable.name}" is not assigned yet', detail=detail)


def _take(targets: Sequence[Names], rows: Rows, row: Sequence[str | None] | None, execution: Execution, scope: Scope) -> None:
    """Assign a row of a query to the targets of INTO. None sets all targets to NULL."""
    values = [Value(kind, None) for _, kind in rows.columns] if row is None else rows.values(row)
    if len(targets) == 1:
        variable, name = _target(targets[0], scope)
        if variable.row and name is None:
            if len(values) == 1 and variable.type.oid != registry.RECORD and values[0].type.oid == variable.type.oid:
                variable.value = _fitting(variable, None if row is None else execution.host.types.row_of(values[0]), execution)
                return
            named = _row_of_columns([column for column, _ in rows.columns], values)
            if variable.type.oid != registry.RECORD:
                _check_count(len(values), len(execution.host.types.fields(variable.type)), execution)
            variable.value = _fitting(variable, named, execution)
            return
    _check_count(len(values), len(targets), execution)
    for position, names in enumerate(targets):
        variable, name = _target(names, scope)
        _store(variable, name, values[position] if position < len(values) else Value(variable.type, None), execution)


def _row_of_columns(names: Sequence[str], values: Sequence[Value]) -> Row:
    """Return a row. A name refers to the first of several columns with it; the others get keys that no identifier can be."""
    fields: dict[str, Value] = {}
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        fields[f"{name}\0{place}" if name in fields else name] = value
    return Row(fields)


def _found(scope: Scope, *, is_found: bool) -> None:
    variable = next(level.names["found"] for level in scope.levels() if level.outer is None)
    variable.value = Value(BOOLEAN, "t" if is_found else "f")


def _is_true(sql: Sql, execution: Execution, scope: Scope) -> bool:
    value = execution.host.evaluate(sql, scope)
    if value.type.oid != registry.BOOL:
        value = execution.host.cast(value, BOOLEAN)
    return value.text == "t"


# ---- simple statements ------------------------------------------------------------------------------------


def _assign(node: tree.Assign, execution: Execution, scope: Scope) -> None:
    value = execution.host.evaluate(node.value, scope)
    if node.subscripts:
        variable, name = _target(node.target, scope)
        before = variable.value
        if isinstance(before, Row):
            before = before.fields.get(name or "", Value(TEXT, None))
        assert isinstance(before, Value)
        value = execution.host.with_part(before, node, value, scope)
    assign(node.target, _as_row(node.target, value, execution, scope), execution, scope)


def _as_row(names: Names, value: Value, execution: Execution, scope: Scope) -> Value:
    """Return the value of an assignment. A value that is not a row is cast by its text to the row type of a variable."""
    variable, name = _target(names, scope)
    if name is not None or not variable.row or variable.type.oid == registry.RECORD or execution.host.types.is_row(value.type):
        return value
    return execution.host.cast(value, variable.type)


def _perform(node: tree.Perform, execution: Execution, scope: Scope) -> None:
    outcome = execution.host.run(node.query, scope)
    count = sum(1 for _ in outcome.rows.rows) if outcome.rows is not None else 0
    execution.processed = count
    _found(scope, is_found=count > 0)


def _execute(node: tree.Execute, execution: Execution, scope: Scope) -> None:
    _, outcome = _outcome(node.query, node.parameters, execution, scope, dynamic=node.dynamic)
    if node.into is None:
        if outcome.rows is not None and outcome.processed is None and not node.dynamic:
            hint = "If you want to discard the results of a SELECT, use PERFORM instead."
            raise PostgresError("42601", "query has no destination for result data", hint=hint)
        count = sum(1 for _ in outcome.rows.rows) if outcome.rows is not None else 0
        execution.processed = outcome.processed if outcome.processed is not None else count
        if outcome.sets_found and not node.dynamic:
            _found(scope, is_found=execution.processed > 0)
        return
    if outcome.rows is None:
        raise PostgresError("42601", "INTO used with a command that cannot return data")
    first, second = next(outcome.rows.rows, None), None
    level = None if node.strict or node.dynamic else _extra_level("too_many_rows", execution)
    if first is not None and (node.strict or level is not None or (outcome.processed is not None and not node.dynamic)):
        second = next(outcome.rows.rows, None)
    if node.strict and first is None:
        raise PostgresError("P0002", "query returned no rows", detail=_strict_detail(node, execution, scope))
    if second is not None:
        advice = None if node.dynamic else "Make sure the query returns a single row, or use LIMIT 1."
        detail = _strict_detail(node, execution, scope) if node.strict else None
        if level == "WARNING":
            execution.host.say(level, "P0003", "query returned more than one row", detail, advice)
        else:
            raise PostgresError("P0003", "query returned more than one row", detail=detail, hint=advice)
    _take(node.into, outcome.rows, first, execution, scope)
    execution.processed = 0 if first is None else 1
    if outcome.sets_found and not node.dynamic:
        _found(scope, is_found=first is not None)


def _extra_level(check: str, execution: Execution) -> str | None:
    """Return ERROR or WARNING if ``plpgsql.extra_errors`` or ``plpgsql.extra_warnings`` requests a check, or None."""
    for level, setting in (("ERROR", "plpgsql.extra_errors"), ("WARNING", "plpgsql.extra_warnings")):
        requested = {name.strip().lower() for name in execution.host.setting(setting).split(",")}
        if requested & {check, "all"}:
            return level
    return None


def _check_count(sources: int, targets: int, execution: Execution) -> None:
    """Report a different number of values and targets of an assignment, if the session requests it (strict_multi_assignment)."""
    level = None if sources == targets else _extra_level("strict_multi_assignment", execution)
    if level is None:
        return
    message = "number of source and target fields in assignment does not match"
    detail = f"strict_multi_assignment check of {'extra_errors' if level == 'ERROR' else 'extra_warnings'} is active."
    hint = "Make sure the query returns the exact list of columns."
    if level == "ERROR":
        raise PostgresError("42804", message, detail=detail, hint=hint)
    execution.host.say(level, "42804", message, detail, hint)


def _strict_detail(node: tree.Execute, execution: Execution, scope: Scope) -> str | None:
    """Return the values of a statement's variables for the error of INTO STRICT, if the function or the session requests them."""
    requested = execution.print_strict_params or execution.host.setting("plpgsql.print_strict_params")
    if requested not in ("on", "true", "yes", "1"):
        return None
    values: Sequence[tuple[str, Value]]
    if node.dynamic:
        values = [(f"${number}", execution.host.evaluate(sql, scope)) for number, sql in enumerate(node.parameters, 1)]
    else:
        values = execution.host.variables(node.query, scope)
    if not values:
        return None
    texts = ("NULL" if value.text is None else "'" + value.text.replace("'", "''") + "'" for _, value in values)
    return "parameters: " + ", ".join(f"{name} = {text}" for (name, _), text in zip(values, texts, strict=True))


def _outcome(query: Sql, parameters: Sequence[Sql], execution: Execution, scope: Scope, *, dynamic: bool) -> tuple[str, Outcome]:
    """Run a statement, or, if `dynamic`, the statement in the text that an expression returns. Return its text and its outcome."""
    if dynamic:
        text = _text(query, execution, scope)
        return text, execution.host.run_text(text, [execution.host.evaluate(parameter, scope) for parameter in parameters])
    return query.text, execution.host.run(query, scope)


def _tag(text: str) -> str:
    return command_tag.of(parse(text)[-1].node)


def _text(query: Sql, execution: Execution, scope: Scope) -> str:
    text = execution.host.evaluate(query, scope).text
    if text is None:
        raise PostgresError("22004", "query string argument of EXECUTE is null")
    return text


def _call(node: tree.Call, execution: Execution, scope: Scope) -> None:
    targets = execution.host.outputs(node.query, scope)
    outcome = execution.host.run(node.query, scope)
    if targets and outcome.rows is not None:
        for names, value in zip(targets, outcome.rows.values(next(outcome.rows.rows)), strict=True):
            assign(names, value, execution, scope)


def _get_diagnostics(node: tree.GetDiagnostics, execution: Execution, scope: Scope) -> None:
    if node.stacked and not execution.errors:
        raise PostgresError("0Z002", "GET STACKED DIAGNOSTICS cannot be used outside an exception handler")
    for item, target in node.items:
        if item is tree.Diagnostic.ROW_COUNT:
            value = Value(TypeRef(registry.INT8), str(execution.processed))
        elif item is tree.Diagnostic.CONTEXT:
            value = Value(TEXT, "\n".join(filter(None, (line() for line in reversed(execution.host.callers)))))
        else:
            value = Value(TEXT, _diagnostic(execution.errors[-1], item))
            if item is tree.Diagnostic.ERROR_CONTEXT:
                lines = [value.text or "", *(line() for line in reversed(execution.host.callers[:-1]))]
                value = Value(TEXT, "\n".join(line for line in lines if line))
        assign(target, value, execution, scope)


def _diagnostic(error: PostgresError, item: tree.Diagnostic) -> str:
    values = {
        tree.Diagnostic.ERROR_CONTEXT: error.context,
        tree.Diagnostic.DETAIL: error.detail,
        tree.Diagnostic.HINT: error.hint,
        tree.Diagnostic.SQLSTATE: error.sqlstate,
        tree.Diagnostic.COLUMN: error.column,
        tree.Diagnostic.CONSTRAINT: error.constraint,
        tree.Diagnostic.DATATYPE: error.datatype,
        tree.Diagnostic.MESSAGE: error.message,
        tree.Diagnostic.TABLE: error.table,
        tree.Diagnostic.SCHEMA: error.schema,
    }
    return values[item] or ""


# ---- control ----------------------------------------------------------------------------------------------


def _if(node: tree.If, execution: Execution, scope: Scope) -> None:
    for test, body in node.branches:
        if _is_true(test, execution, scope):
            _statements(body, execution, scope)
            return
    _statements(node.otherwise, execution, scope)


def _case(node: tree.Case, execution: Execution, scope: Scope) -> None:
    inner = scope
    if node.operand is not None:
        value = execution.host.evaluate(node.operand, scope)
        inner = Scope(None, scope)
        inner.names[node.variable] = Variable(node.variable, value.type, value)
    for test, body in node.branches:
        if _is_true(test, execution, inner):
            _statements(body, execution, scope)
            return
    if node.otherwise is None:
        raise PostgresError("20000", "case not found", hint="CASE statement is missing ELSE part.")
    _statements(node.otherwise, execution, scope)


def _turn(label: str | None, body: Sequence[tree.Statement], execution: Execution, scope: Scope) -> bool:
    """Run a loop's body once. Return whether the loop continues."""
    try:
        _statements(body, execution, scope)
    except _LeaveError as left:
        if left.label is not None and left.label != label:
            raise
        return not left.is_exit
    return True


def _loop(node: tree.Loop, execution: Execution, scope: Scope) -> None:
    while node.condition is None or _is_true(node.condition, execution, scope):
        if not _turn(node.label, node.body, execution, scope):
            return
        execution.host.check()
        execution.line, execution.doing = node.line, f"at {_loop_name(node)}"


def _for_integer(node: tree.ForInteger, execution: Execution, scope: Scope) -> None:
    bounds = {}
    for what, sql in (("lower bound", node.lower), ("upper bound", node.upper), ("BY value", node.step)):
        bound = Value(INTEGER, "1") if sql is None else execution.host.cast(execution.host.evaluate(sql, scope), INTEGER)
        if bound.text is None:
            raise PostgresError("22004", f"{what} of FOR loop cannot be null")
        bounds[what] = int(bound.text)
    step = bounds["BY value"]
    if step <= 0:
        raise PostgresError("22023", "BY value of FOR loop must be greater than zero")
    inner = Scope(node.label, scope)
    current, last = bounds["lower bound"], bounds["upper bound"]
    has_run = False
    while current >= last if node.reverse else current <= last:
        has_run = True
        inner.names[node.variable] = Variable(node.variable, INTEGER, Value(INTEGER, str(current)))
        if not _turn(node.label, node.body, execution, inner):
            break
        current += -step if node.reverse else step
        if abs(current) > INT4_MAX:
            break
    _found(scope, is_found=has_run)


def _for_query(node: tree.ForQuery, execution: Execution, scope: Scope) -> None:
    inner = Scope(node.label, scope)
    if node.cursor is not None:
        _for_cursor(node, node.cursor, execution, inner)
        return
    assert node.query is not None
    text, outcome = _outcome(node.query, node.parameters, execution, scope, dynamic=node.dynamic)
    if outcome.rows is None:
        raise PostgresError("42P11", f"cannot open {_tag(text)} query as cursor")
    has_run = False
    with execution.host.reading(outcome):
        for row in outcome.rows.rows:
            has_run = True
            _take(node.targets, outcome.rows, row, execution, inner)
            if not _turn(node.label, node.body, execution, inner):
                break
    if not has_run:
        _take(node.targets, outcome.rows, None, execution, inner)
    _found(scope, is_found=has_run)


def _for_cursor(node: tree.ForQuery, cursor: str, execution: Execution, scope: Scope) -> None:
    """Run a loop over a bound cursor, which is fetched row by row: the body may change the current row (WHERE CURRENT OF)."""
    variable, _ = _target((cursor,), scope)
    before = variable.value
    name = _open_bound(cursor, node.query, execution, scope)
    record = node.targets[0][0]
    scope.names[record] = Variable(record, TypeRef(registry.RECORD), None, row=True)
    has_run = False
    while True:
        rows, count = execution.host.fetch(name, FORWARD, 1, is_move=False)
        if not count:
            break
        has_run = True
        _take(node.targets, rows, next(rows.rows), execution, scope)
        try:
            if not _turn(node.label, node.body, execution, scope):
                break
        except (_LeaveError, _ReturnError):
            execution.host.close(name)
            raise
        execution.line, execution.doing = node.line, f"at {_for_name(node)}"
    execution.host.close(name)
    variable.value = before
    _found(scope, is_found=has_run)


def _for_each(node: tree.ForEach, execution: Execution, scope: Scope) -> None:
    array = execution.host.evaluate(node.array, scope)
    if array.text is None:
        raise PostgresError("22004", "FOREACH expression must not be null")
    variable = _target(node.targets[0], scope)[0] if len(node.targets) == 1 else None
    if variable is not None and bool(node.slice) is not execution.host.types.is_array(variable.type):
        what = "FOREACH ... SLICE loop variable must be" if node.slice else "FOREACH loop variable must not be"
        if node.slice or not variable.row:
            raise PostgresError("42804", f"{what} of an array type")
    has_run = False
    for element in execution.host.types.elements(array, node.slice):
        has_run = True
        if variable is not None:
            assign(node.targets[0], element, execution, scope)
        else:
            row = execution.host.types.row_of(element) or Row({})
            columns = tuple((name, value.type) for name, value in row.fields.items())
            _take(node.targets, Rows(columns, iter(())), [value.text for value in row.fields.values()], execution, scope)
        if not _turn(node.label, node.body, execution, scope):
            break
    _found(scope, is_found=has_run)


def _exit(node: tree.Exit, execution: Execution, scope: Scope) -> None:
    if node.condition is None or _is_true(node.condition, execution, scope):
        raise _LeaveError(node.label, is_exit=node.is_exit)


# ---- results ----------------------------------------------------------------------------------------------


def _return(node: tree.Return, execution: Execution, scope: Scope) -> None:
    if node.value is not None:
        row = _named_row(node.value, scope)
        execution.result = row if row is not None else _result(node.value, execution, scope)
    raise _ReturnError


def _result(sql: Sql, execution: Execution, scope: Scope) -> Value:
    """Return the value of RETURN or RETURN NEXT. Raise 42804 unless it is a row if the function returns rows."""
    value = execution.host.evaluate(sql, scope)
    if execution.result_is_row and value.text is not None and not execution.host.types.is_row(value.type):
        raise PostgresError("42804", "cannot return non-composite value from function returning composite type")
    return value


def _named_row(sql: Sql, scope: Scope) -> Row | None:
    """Return the row of the variable that an expression consists of, with the types of its fields, or None."""
    named = scope.find((sql.text.strip("() ").lower(),))
    return named[0].value if named is not None and isinstance(named[0].value, Row) and not named[0].value.is_null else None


def output(execution: Execution, scope: Scope) -> list[Value]:
    values = []
    for name in execution.outputs:
        variable, _ = _target((name,), scope)
        value = variable.value
        values.append(execution.host.types.value_of(value) if isinstance(value, Row) else value or Value(variable.type, None))
    return values


def _return_next(node: tree.ReturnNext, execution: Execution, scope: Scope) -> None:
    if node.value is None:
        execution.rows.append(output(execution, scope))
        return
    row = _named_row(node.value, scope)
    value = _result(node.value, execution, scope) if row is None else None
    if execution.result_is_row:
        row = row if value is None else execution.host.types.row_of(value)
        execution.rows.append([] if row is None else list(row.fields.values()))
    else:
        execution.rows.append([value if value is not None else execution.host.types.value_of(row or Row({}))])


def _return_query(node: tree.ReturnQuery, execution: Execution, scope: Scope) -> None:
    text, outcome = _outcome(node.query, node.parameters, execution, scope, dynamic=node.dynamic)
    if outcome.rows is None:
        raise PostgresError("42601", f"{_tag(text)} query does not return tuples").within(f'SQL statement "{text}"')
    if execution.columns is not None:
        _require_columns([kind for _, kind in outcome.rows.columns], execution.columns, text)
    before = len(execution.rows)
    execution.rows.extend(outcome.rows.values(row) for row in outcome.rows.rows)
    execution.processed = len(execution.rows) - before
    _found(scope, is_found=execution.processed > 0)


def _require_columns(given: Sequence[TypeRef], expected: Sequence[TypeRef], text: str) -> None:
    """Raise 42804 unless a query has the columns of the function's result (convert_tuples_by_position)."""
    differing = [
        (number, ours, theirs)
        for number, (ours, theirs) in enumerate(zip(given, expected, strict=False), 1)
        if ours.oid != theirs.oid or theirs.typmod not in (-1, ours.typmod)
    ]
    if len(given) == len(expected) and not differing:
        return
    if differing:
        number, ours, theirs = differing[0]
        types = [registry.known().format_type(kind.oid, kind.typmod) for kind in (ours, theirs)]
        detail = f"Returned type {types[0]} does not match expected type {types[1]} in column {number}."
    else:
        detail = f"Number of returned columns ({len(given)}) does not match expected column count ({len(expected)})."
    error = PostgresError("42804", "structure of query does not match function result type", detail=detail)
    raise error.within(f'SQL statement "{text}"')


# ---- RAISE and ASSERT -------------------------------------------------------------------------------------


def _raise(node: tree.Raise, execution: Execution, scope: Scope) -> None:
    if node.condition is None and node.message is None and not node.options:
        if not execution.errors:
            raise PostgresError("0Z002", "RAISE without parameters cannot be used outside an exception handler")
        execution.rethrown = execution.errors[-1]
        raise execution.rethrown
    sqlstate = condition.sqlstates(node.condition)[0] if node.condition else None
    options: dict[str, str] = {}
    for name, sql in node.options:
        value = execution.host.shown(execution.host.evaluate(sql, scope))
        if value is None:
            raise PostgresError("22004", "RAISE statement option cannot be null")
        if name in options or (name == "MESSAGE" and node.message is not None) or (name == "ERRCODE" and sqlstate is not None):
            raise PostgresError("42601", f"RAISE option already specified: {name}")
        options[name] = value
    if "ERRCODE" in options:
        sqlstate = condition.sqlstates(options["ERRCODE"])[0]
    message = _formatted(node, execution, scope) if node.message is not None else options.get("MESSAGE")
    message = message if message is not None else node.condition or sqlstate or ""
    if node.level == "ERROR":
        raise PostgresError(
            sqlstate or "P0001", message, detail=options.get("DETAIL"), hint=options.get("HINT"), column=options.get("COLUMN"),
            constraint=options.get("CONSTRAINT"), datatype=options.get("DATATYPE"), table=options.get("TABLE"),
            schema=options.get("SCHEMA"),
        )  # fmt: skip
    default = "01000" if node.level == "WARNING" else "00000"
    execution.host.say(node.level, sqlstate or default, message, options.get("DETAIL"), options.get("HINT"))


def _formatted(node: tree.Raise, execution: Execution, scope: Scope) -> str:
    """Return the message with each ``%`` replaced by its parameter."""
    assert node.message is not None
    parts, parameters = node.message.replace("%%", "\0").split("%"), list(node.parameters)
    text = parts[0]
    for part in parts[1:]:
        value = execution.host.shown(execution.host.evaluate(parameters.pop(0), scope))
        text += ("<NULL>" if value is None else value) + part
    return text.replace("\0", "%")


def _assert(node: tree.Assert, execution: Execution, scope: Scope) -> None:
    if execution.host.setting("plpgsql.check_asserts") in ("off", "false", "no", "0"):
        return
    if _is_true(node.condition, execution, scope):
        return
    message = None if node.message is None else execution.host.evaluate(node.message, scope).text
    raise PostgresError("P0004", message if message is not None else "assertion failed")


# ---- cursors ----------------------------------------------------------------------------------------------


def _open_bound(name: str, arguments: Sql | None, execution: Execution, scope: Scope) -> str:
    """Open the cursor of a bound cursor variable and return its name."""
    variable, _ = _target((name,), scope)
    bound = variable.cursor
    if bound is None:
        raise PostgresError("42601", "cursor FOR loop must use a bound cursor variable")
    inner = Scope(None, scope)
    if bound.arguments:
        assert arguments is not None
        outcome = execution.host.run(arguments, scope)
        assert outcome.rows is not None
        argument_values = outcome.rows.values(next(outcome.rows.rows))
        for (argument, kind), value in zip(bound.arguments, argument_values, strict=True):
            declared = execution.host.types.declared(kind, scope)
            inner.names[argument] = Variable(argument, declared, execution.host.cast(value, declared))
    return _opened(variable, bound.query, inner, (), bound.scroll, execution)


def _opened(
    variable: Variable, query: Sql | str, scope: Scope, parameters: Sequence[Value], scroll: bool | None, execution: Execution
) -> str:
    """Open a cursor under the name in its variable. If that is NULL, make a name and store it in the variable."""
    before = variable.value.text if isinstance(variable.value, Value) else None
    name = execution.host.open(before, query, scope, parameters, scroll)
    if before is None:
        _store(variable, None, Value(variable.type, name), execution)
    return name


def _open(node: tree.Open, execution: Execution, scope: Scope) -> None:
    if node.query is None:
        _open_bound(node.cursor, node.arguments, execution, scope)
        return
    variable, _ = _target((node.cursor,), scope)
    query: Sql | str = node.query
    if node.dynamic:
        query = _text(node.query, execution, scope)
    parameters = [execution.host.evaluate(parameter, scope) for parameter in node.parameters]
    _opened(variable, query, scope, parameters, node.scroll, execution)


def _cursor(name: str, scope: Scope) -> str:
    variable, _ = _target((name,), scope)
    value = variable.value
    if not isinstance(value, Value) or value.text is None:
        raise PostgresError("22004", f'cursor variable "{name}" is null')
    return value.text


def _fetch(node: tree.Fetch, execution: Execution, scope: Scope) -> None:
    count = node.count
    if node.count_of is not None:
        count_text = execution.host.cast(execution.host.evaluate(node.count_of, scope), INTEGER).text
        if count_text is None:
            raise PostgresError("22004", "relative or absolute cursor position is null")
        count = int(count_text)
    rows, moved = execution.host.fetch(_cursor(node.cursor, scope), node.direction, count, is_move=node.is_move)
    if not node.is_move:
        first = next(rows.rows, None)
        _take(node.targets, rows, first, execution, scope)
    execution.processed = moved
    _found(scope, is_found=moved > 0)


def _close(node: tree.Close, execution: Execution, scope: Scope) -> None:
    execution.host.close(_cursor(node.cursor, scope))


def _end_transaction(node: tree.EndTransaction, execution: Execution, scope: Scope) -> None:
    execution.host.end_transaction(commits=node.commits, chain=node.chain)


def _loop_name(node: tree.Loop) -> str:
    return "LOOP" if node.condition is None else "WHILE"


def _for_name(node: tree.ForQuery) -> str:
    if node.cursor is not None:
        return "FOR over cursor"
    return "FOR over EXECUTE statement" if node.dynamic else "FOR over SELECT rows"


def _named(name: str) -> Callable[[object], str]:
    return lambda _: name


_ACTIONS: dict[type[tree.Statement], tuple[Callable[..., None], Callable[..., str]]] = {
    tree.Block: (_block, _named("statement block")),
    tree.Assign: (_assign, _named("assignment")),
    tree.If: (_if, _named("IF")),
    tree.Case: (_case, _named("CASE")),
    tree.Loop: (_loop, _loop_name),
    tree.ForInteger: (_for_integer, _named("FOR with integer loop variable")),
    tree.ForQuery: (_for_query, _for_name),
    tree.ForEach: (_for_each, _named("FOREACH over array")),
    tree.Exit: (_exit, lambda node: "EXIT" if node.is_exit else "CONTINUE"),
    tree.Return: (_return, _named("RETURN")),
    tree.ReturnNext: (_return_next, _named("RETURN NEXT")),
    tree.ReturnQuery: (_return_query, _named("RETURN QUERY")),
    tree.Raise: (_raise, _named("RAISE")),
    tree.Assert: (_assert, _named("ASSERT")),
    tree.Perform: (_perform, _named("PERFORM")),
    tree.Execute: (_execute, lambda node: "EXECUTE" if node.dynamic else "SQL statement"),
    tree.Call: (_call, lambda node: "CALL" if node.query.text[:4].lower() == "call" else "DO"),
    tree.GetDiagnostics: (_get_diagnostics, lambda node: "GET STACKED DIAGNOSTICS" if node.stacked else "GET DIAGNOSTICS"),
    tree.Open: (_open, _named("OPEN")),
    tree.Fetch: (_fetch, lambda node: "MOVE" if node.is_move else "FETCH"),
    tree.Close: (_close, _named("CLOSE")),
    tree.EndTransaction: (_end_transaction, lambda node: "COMMIT" if node.commits else "ROLLBACK"),
}
