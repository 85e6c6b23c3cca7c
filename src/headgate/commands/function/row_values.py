"""Compute the values of functions that need the session, for the rows that a statement reads.

`user_call` calls `compute` before a statement is planned. For each call of such a function in a SELECT list or a WHERE, it runs a query for
the arguments: the same FROM, and the conditions that call no function of users. It calls the function for each row of the result in the
driver, with a limit on rows and memory. The statement then finds the values by their arguments (`session_function`).

    the function                     is called
    only reads                       once for the same arguments; an error is raised where the statement needs the value
    writes or sends messages         once for each row, if the statement returns one value for each row; otherwise 0A000

A call elsewhere is rejected (0A000): with outer columns, in GROUP BY, ORDER BY and aggregates, or with the value of another such call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from postgast import pg_query_pb2 as pb

from headgate.catalog.function import PLPGSQL, UserFunction
from headgate.commands.function import body, call
from headgate.commands.function.function_choice import choose
from headgate.commands.function.permission import check_execute
from headgate.commands.function.session_function import Arguments, value_of
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding import named_argument
from headgate.expression.binding.context import BindContext
from headgate.expression.node import TypeRef
from headgate.plpgsql import reach
from headgate.plpgsql.scope import Value
from headgate.sql import names
from headgate.sql.parser import ParseNode, anded, parse, unwrap, walk
from headgate.types.resultset import ResultColumn, ResultSet

MOST_ROWS = 100_000
"""The most rows for which a statement calls functions that need the session."""
MOST_BYTES = 64 << 20
"""The most bytes of their arguments and values."""
_LEVELS = ("SelectStmt", "UpdateStmt", "DeleteStmt")
_ONCE = frozenset({"target_list", "from_clause", "where_clause", "sort_clause", "limit_option", "op"})
_UNKNOWN = ("42703", "42P01")

Named = Callable[[pb.FuncCall], list[UserFunction]]
Known = dict[int, "dict[Arguments, str | PostgresError | None]"]


@dataclass
class _Level:
    """A query level with the calls in its SELECT list and in its WHERE."""

    from_clause: list[pb.Node]
    where: pb.Node | None
    calls: list[pb.FuncCall]
    is_plain: bool
    """Whether it is the statement itself and evaluates each call once for each row."""
    known: Known = field(default_factory=dict)


def compute(node: ParseNode, session: Session, named: Named) -> Known:
    """Return the values by function and arguments. `named`: returns the functions of users that a call can denote."""
    known: Known = {}
    for level in _levels(node, named, is_outermost=True):
        wanted = [called for called in level.calls if any(_needs_session(candidate, session, named) for candidate in named(called))]
        if wanted:
            _compute_level(level, wanted, session, named, known)
    return known


def _levels(node: ParseNode, named: Named, *, is_outermost: bool) -> Iterator[_Level]:
    """Yield the levels of a statement that call functions of users with arguments that depend on rows."""
    kind = node.DESCRIPTOR.name
    if kind in _LEVELS:
        level = _level(node, named, is_outermost=is_outermost)
        if level.calls and level.from_clause:
            yield level
    for described, value in node.ListFields():
        if described.message_type is None:
            continue
        for child in value if described.is_repeated else (value,):
            inner = unwrap(child)
            if inner is not None:
                # the query of an INSERT returns a value for each row that is inserted
                yield from _levels(
                    inner, named, is_outermost=kind in ("InsertStmt", "CreateTableAsStmt") or (is_outermost and kind not in _LEVELS)
                )


def _level(node: ParseNode, named: Named, *, is_outermost: bool) -> _Level:
    kind = node.DESCRIPTOR.name
    tables = {"SelectStmt": "from_clause", "UpdateStmt": "from_clause", "DeleteStmt": "using_clause"}[kind]
    from_clause = list(getattr(node, tables))
    if kind != "SelectStmt":
        target = pb.Node()
        target.range_var.CopyFrom(node.relation)
        from_clause.insert(0, target)
    where = node.where_clause if node.HasField("where_clause") else None
    in_list = [called for target in getattr(node, "target_list", ()) for called in _own_calls(target, named)]
    in_where = [] if where is None else list(_own_calls(where, named))
    fields = {described.name for described, _ in node.ListFields()}
    is_plain = is_outermost and not in_where and (kind != "SelectStmt" or not fields - _ONCE) and all(map(_is_evaluated, _targets(node)))
    return _Level(from_clause, where, [*in_list, *in_where], is_plain)


def _targets(node: ParseNode) -> list[pb.Node]:
    return [unwrap(target).val for target in getattr(node, "target_list", ())]


def _is_evaluated(node: pb.Node) -> bool:
    """Return whether all parts of an expression are evaluated for each row."""
    deciding = ("CaseExpr", "CoalesceExpr", "BoolExpr", "MinMaxExpr", "SubLink")
    return not any(part.DESCRIPTOR.name in deciding for part in walk(node))


def _own_calls(node: ParseNode, named: Named) -> Iterator[pb.FuncCall]:
    """Yield the calls of functions of users in an expression, without those in subqueries."""
    inner = unwrap(node) if node.DESCRIPTOR.name == "Node" else node
    if inner is None or inner.DESCRIPTOR.name == "SubLink":
        return
    if inner.DESCRIPTOR.name == "FuncCall" and named(inner):
        yield inner
        return
    for described, value in inner.ListFields():
        if described.message_type is not None:
            for child in value if described.is_repeated else (value,):
                yield from _own_calls(child, named)


# ---- the functions ------------------------------------------------------------------------------------------


def _needs_session(function: UserFunction, session: Session, named: Named) -> bool:
    """Return whether a function cannot be called in Spark's tasks, because it or a function that it calls needs the session."""
    if function.kind != "f" or function.is_set or len(function.outputs) > 1:
        return False
    return bool(function.outputs) or any(_is_of_session(callee, session) for callee in _closure(function, session, named))


def _is_of_session(function: UserFunction, session: Session) -> bool:
    if function.language == PLPGSQL:
        return reach.texts(_tree(function, session).function) is None
    statements = parse(function.body)
    return len(statements) != 1 or any(part.DESCRIPTOR.name in ("RangeVar", "SubLink") for part in walk(statements[0].node))


def _tree(function: UserFunction, session: Session) -> body.Body:
    with call.acting(function, session):
        return body.of(function, session)


def _closure(function: UserFunction, session: Session, named: Named) -> Iterator[UserFunction]:
    """Yield a function and the functions that it calls."""
    pending, seen = [function], set[int]()
    while pending:
        current = pending.pop()
        if current.oid in seen:
            continue
        seen.add(current.oid)
        yield current
        texts = [current.body] if current.language != PLPGSQL else reach.all_texts(_tree(current, session).function)
        for text in texts:
            for called in reach.called(text):
                pending += named(called)


def _only_reads(function: UserFunction, session: Session, named: Named) -> bool:
    """Return whether a function, and each that it calls, neither writes nor sends messages. PostgreSQL lets no STABLE function write."""
    for current in _closure(function, session, named):
        if current.language == PLPGSQL:
            if not reach.only_reads(_tree(current, session).function, is_stable=current.volatility != "v"):
                return False
        elif current.volatility == "v" and not all(reach.is_reading(statement.node) for statement in parse(current.body)):
            return False
    return True


# ---- the rows -----------------------------------------------------------------------------------------------


def _compute_level(level: _Level, calls: Sequence[pb.FuncCall], session: Session, named: Named, known: Known) -> None:
    rows = _arguments(level, calls, session, named)
    if rows is None:
        return
    sizes = [len(called.args) for called in calls]
    chosen = [_chosen(called, named, rows.columns[sum(sizes[:place]) : sum(sizes[: place + 1])]) for place, called in enumerate(calls)]
    for function in chosen:
        if function is not None:
            check_execute(session, function)
    reading = [function is None or _only_reads(function, session, named) for function in chosen]
    if not all(reading) and not level.is_plain:
        return  # the binder rejects the call
    count = size = 0
    for batch in rows:
        columns = [column.to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            count += 1
            start = 0
            for function, width, reads in zip(chosen, sizes, reading, strict=True):
                size += _call(function, row[start : start + width], rows.columns[start : start + width], session, known, reads=reads)
                start += width
            if count > MOST_ROWS or size > MOST_BYTES:
                raise PostgresError(
                    "53200", "too many rows for functions that need the session",
                    detail=f"A statement calls such functions for up to {MOST_ROWS} rows and {MOST_BYTES >> 20} MB of values.",
                    hint="Add a condition that calls no function.",
                )  # fmt: skip


def _call(
    function: UserFunction | None, texts: Arguments, columns: Sequence[ResultColumn], session: Session, known: Known, *, reads: bool
) -> int:
    """Call a function for one row and keep its value. Return the bytes that were added."""
    if function is None:
        return 0
    values = known.setdefault(function.oid, {})
    row = _cast(function, texts, columns, session)
    if reads and row in values:
        return 0
    value: str | PostgresError | None
    try:
        value = value_of(function, row, session)
    except PostgresError as error:
        if not reads or error.sqlstate.startswith(("57", "53", "40", "54")):
            raise
        value = error
    if row in values and values[row] != value:
        raise PostgresError(
            "0A000", f'the function "{function.name}" returns different values for the same arguments',
            detail="A node does not support this in a statement that calls it for each row.",
        )  # fmt: skip
    is_new, values[row] = row not in values, value
    return sum(len(text or "") for text in row) + (len(value) if isinstance(value, str) else 0) + 100 if is_new else 0


def _cast(function: UserFunction, texts: Arguments, columns: Sequence[ResultColumn], session: Session) -> Arguments:
    from headgate.commands.function.host import Prepared, SessionHost

    host = SessionHost(session, Prepared())
    kinds = [TypeRef(column.type_oid) for column in columns]
    return tuple(host.cast(Value(kind, text), TypeRef(oid)).text for kind, text, oid in zip(kinds, texts, function.types, strict=True))


def _chosen(called: pb.FuncCall, named: Named, columns: Sequence[ResultColumn]) -> UserFunction | None:
    """Return the function that a call denotes, or None for a form that is not supported here: named, default and variadic arguments."""
    if any(named_argument.is_named(unwrap(argument)) for argument in called.args):
        return None
    values = [Value(TypeRef(column.type_oid), None) for column in columns]
    choice = choose(called, named(called), values, BindContext())
    return None if choice is None or choice.spread or None in choice.given else choice.function


def _arguments(level: _Level, calls: Sequence[pb.FuncCall], session: Session, named: Named) -> ResultSet | None:
    """Return the arguments of all calls for each row that the level reads, or None if they depend on something else than its tables."""
    select = pb.SelectStmt(limit_option=pb.LIMIT_OPTION_DEFAULT, op=pb.SETOP_NONE)
    select.from_clause.extend(level.from_clause)
    for called in calls:
        for argument in called.args:
            if any(True for _ in _own_calls(argument, named)) or any(_is_aggregate(part) for part in walk(argument)):
                return None
            select.target_list.add().res_target.val.CopyFrom(argument)
    if not select.target_list:
        return None
    conditions = [] if level.where is None else [part for part in anded(level.where) if not any(True for _ in _own_calls(part, named))]
    if conditions:
        condition = select.where_clause.bool_expr
        condition.boolop = pb.AND_EXPR
        for part in conditions:
            getattr(condition.args.add(), _FIELDS[part.DESCRIPTOR.name]).CopyFrom(part)
    try:
        result = session.node.run_statement(select, session)
    except PostgresError as error:
        if error.sqlstate in _UNKNOWN:
            return None  # a column of an outer query, or a query of WITH
        raise
    assert isinstance(result, ResultSet)
    return result


_FIELDS = {described.message_type.name: described.name for described in pb.Node.DESCRIPTOR.fields if described.message_type is not None}
"""The field of a Node for each kind of node."""


def _is_aggregate(node: ParseNode) -> bool:
    if node.DESCRIPTOR.name != "FuncCall":
        return False
    known = builtin.builtins().functions_named.get(names.strings(node.funcname)[-1], ())
    return bool(node.agg_star) or node.HasField("over") or any(candidate.kind != "f" for candidate in known)
