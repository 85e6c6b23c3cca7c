"""Answer an analysed query in the driver, without a Spark job.

Called by `engine`. The FROM clause decides: constants, one table, or published changes (`change_stream`). `refusal` decides from the
analysed query alone whether the driver takes it, before anything is read. `answer` raises NotColumnwise if the driver's answer would differ
from PostgreSQL's for the values or the rights at hand.

A SELECT without FROM is evaluated without the catalog or Spark. The expressions may have subqueries that the driver answers: scalar ones
and EXISTS. They run only when the value of the expression needs them. Parameters are refused beside constants only.

A query of one table is answered if it needs few rows or columns and Arrow gives PostgreSQL's exact answer. The rows come from a key that
WHERE fixes (`key_lookup`), from a small table, from the start of a table with LIMIT, from a scan with a memory limit (`table_scan`), or
from no file at all (``count(*)``). Grouping, sorting and the SELECT list are evaluated column by column (`table_query`). All stored rows
of a large table are read while they are sent (decision 0009). Spark would write all of them once more, and would send the first row only
after the last row of its task is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from headgate.analysis.query import ChangesItem, FromItem, Limit, PlanColumn, Query, RelationItem, Select, SelectItem, parts
from headgate.commands import privilege
from headgate.commands.query import row_by_row
from headgate.commands.query.catalog import answer as catalog
from headgate.commands.query.clause import from_clause
from headgate.commands.query.driver import change_stream, computation, key_lookup, table_query, table_rows, table_scan
from headgate.commands.query.driver.computation import usual_way_says
from headgate.commands.query.driver.table_query import TableQuery
from headgate.commands.query.driver.table_rows import HeldTable
from headgate.commands.query.driver.table_scan import Rows
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_evaluator import RowEvaluator, array_of
from headgate.errors import PostgresError
from headgate.expression import builtin, rewriting
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import BOOLEAN, INTEGER, ColumnRef, Const, Expression, FuncExpr, Param, SubLink, TypeRef, conjuncts, walk
from headgate.storage.delta import file_action
from headgate.types import registry
from headgate.types.registry import FIRST_USER_OID
from headgate.types.resultset import ResultSet
from headgate.types.text.text import read_text, write_text

MOST = 10_000
"""Maximum LIMIT, in rows, that the driver answers from the start of a table."""


def _table_refusal(query: Query, select: Select) -> str | None:
    """Return the reason why the driver does not take a query whose FROM clause is one relation, or None if it does."""
    item = select.source
    if not isinstance(item, RelationItem) or item.relation.oid < FIRST_USER_OID:
        return "not a table"
    return table_query.refusal(query, select)


def _table_answer(planner: Planner, query: Query, select: Select) -> ResultSet:
    """Return the result of a query whose FROM clause is one relation."""
    table = _table(planner, select)
    if (whole := _whole(table, query, select)) is not None:
        return whole
    return table_rows.result(query.columns, _table_values(table, query, select), planner.session)


def _table(planner: Planner, select: Select) -> HeldTable:
    """Return the table of a query. Lock it if the query has a locking clause."""
    item = select.source
    assert isinstance(item, RelationItem)
    with usual_way_says():
        privilege.readable(planner.transaction.cursor, planner.role, item.relation)
        from_clause.permit(planner, item.relation, item.locks)
        table = HeldTable(planner, item.relation, item)
    if from_clause.take(planner, item.relation, item.locks):
        raise NotColumnwise("rows that are skipped")
    return table


def _table_values(table: HeldTable, query: Query, select: Select, *, scans: bool = True) -> list[pa.Array]:
    """Return the values of the SELECT list. Unless it `scans`, raise NotColumnwise if a table that is not small has to be read."""
    if _is_count(query, select) and (counted := _count(table)) is not None:
        return [pa.array([counted], pa.int64())]
    with usual_way_says():
        prepared = TableQuery.of(table, query, select)
    return prepared.values(_among(table, prepared, scans=scans))


def _whole(table: HeldTable, query: Query, select: Select) -> ResultSet | None:
    """Return all rows of a table that is not small, if the SELECT list only names columns. Otherwise, return None."""
    planner, relation = table.planner, table.relation
    if not query.only_projects or not all(isinstance(target.expression, ColumnRef) for target in select.targets):
        return None
    with usual_way_says():
        selected = [table.prepared(target.expression) for target in select.targets]
    if not all(isinstance(expression, ColumnRef) for expression in selected) or planner.transaction.reader.held(relation) is not None:
        return None
    by_key = dict(zip([column.key for column in table.star], [column.name for column in relation.columns], strict=True))
    names = [by_key[expression.key] for expression in selected if isinstance(expression, ColumnRef)]
    read = planner.transaction.reader.pieces(relation, list(dict.fromkeys(names)))
    columns, session = query.columns, planner.session

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in read:
            session.check_cancel()
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in names], names=[column.key for column in columns])

    return table_rows.streamed(columns, batches(), session)


def _is_count(query: Query, select: Select) -> bool:
    """Return whether the query is ``SELECT count(*) FROM t``."""
    grouped = select.grouped
    if grouped is None or grouped.sets != ((),) or grouped.having is not None or len(grouped.aggregates) != 1 or len(query.columns) != 1:
        return False
    [(aggregate, key)] = grouped.aggregates.items()
    if not aggregate.star or aggregate.filter is not None or builtin.function(aggregate.function).name != "count":
        return False
    target = select.targets[0].expression
    return isinstance(target, ColumnRef) and target.key == key and replace(query, body=replace(select, grouped=None)).only_projects


def _among(table: HeldTable, query: TableQuery, *, scans: bool) -> Rows:
    """Return the rows that meet the condition of a query: all of them, or as many as the query needs."""
    planner, relation, condition = table.planner, table.relation, query.condition
    keys = None if condition is None else key_lookup.of_terms(planner, relation, table.star, conjuncts(condition))
    most = query.enough
    held = planner.transaction.reader.held(relation) if keys is None else key_lookup.rows(planner, relation, keys)
    if held is None and condition is None and most is not None and most <= MOST:
        held = planner.transaction.reader.first_rows(relation, most)
    if held is None and not (scans and query.is_columnwise):
        raise NotColumnwise("a function over many rows")
    if held is None:
        return table_scan.read(table, condition, query.keys, most)
    rows = table.passing(held, condition)
    return Rows(table.by_key(rows), rows.num_rows)


def _count(table: HeldTable) -> int | None:
    """Return the number of rows from the file statistics, or None if a file of another writer does not have them."""
    state, pending = table.planner.transaction.reader.shown(table.relation)
    if not all(map(file_action.is_counted, state.files.values())):
        return None
    count: int = state.rows + sum(rows.num_rows for rows in pending)
    return count


def _constant_refusal(query: Query, select: Select, refuse: Callable[[Query], str | None]) -> str | None:
    """Return the reason why the driver does not take a query without FROM, or None if it does. `refuse`: the same for a subquery."""
    parts = [part for target in select.targets for part in walk(target.expression)]
    links = [part for part in parts if isinstance(part, SubLink)]
    if not query.only_projects or (not links and any(isinstance(part, Param) for part in parts)):
        return "not a constant"
    if any(isinstance(part, FuncExpr) and catalog.acts(part) for part in parts):
        return "a function that acts"
    if not all(computation.is_read_exactly(part.type.oid) for part in parts):
        return "a type whose values are read elsewhere"
    return next((reason for link in links if (reason := _refusal_of(link, refuse)) is not None), None)


def _refusal_of(link: SubLink, refuse: Callable[[Query], str | None]) -> str | None:
    if link.kind not in ("EXPR", "EXISTS") or not isinstance(link.query, Query):
        return "a subquery"
    return refuse(_answered(link))


def _answered(link: SubLink) -> Query:
    """Return the query of a SubLink. Of EXISTS only one row is read, and no column, if the analysis has dropped its SELECT list."""
    query: Query = link.query
    select = query.body
    if link.kind != "EXISTS" or not isinstance(select, Select) or select.grouped is not None or query.limit is not None:
        return query
    if not all(isinstance(target.expression, ColumnRef | Const) for target in select.targets):
        return query
    column = PlanColumn("exists", INTEGER, "exists")
    target = SelectItem("exists", Const(type=INTEGER, value="1"))
    body = replace(select, targets=(target,), distinct=False, on=())
    return replace(
        query, body=body, columns=(column,), sorts=(), limit=Limit(Const(type=TypeRef(registry.INT8), value="1"), None, with_ties=False)
    )


def _constant_answer(planner: Planner, query: Query, select: Select) -> ResultSet:
    """Return the result of one row."""
    calls = any(row_by_row.calls_session(target.expression) for target in select.targets)
    try:
        return table_rows.result(query.columns, [_value(planner, target.expression) for target in select.targets], planner.session)
    except PostgresError as error:
        if error.sqlstate in computation.FINAL or (calls and error.sqlstate != "0A000"):
            raise  # the next engine would call a function of a user again
        raise NotColumnwise(error.sqlstate) from error


def check_rights(planner: Planner, part: object) -> None:
    """Raise 42501 if the role may not read a table or a column that a query, or a subquery of expressions, names.

    Called for parts that are not run, whose rights PostgreSQL checks too: the SELECT list of EXISTS, and SET if no row is changed.
    """
    nodes = list(parts(part))
    for item in nodes:
        if isinstance(item, RelationItem):
            privilege.readable(planner.transaction.cursor, planner.role, item.relation)
            from_clause.permit(planner, item.relation, item.locks)
            from_clause.restrict(planner, item.relation, item.star)
    restricted = planner.evaluation.restricted
    for node in nodes:
        if isinstance(node, ColumnRef) and node.key in restricted:
            raise restricted[node.key]


def _value(planner: Planner, target: Expression) -> pa.Array:
    """Return a one-element array of the value in stored form. Raise NotColumnwise if only Spark can compute it."""
    links: dict[str, SubLink] = {}

    def placed(node: Expression) -> Expression | None:
        if not isinstance(node, SubLink):
            return None
        key = f"subquery{len(links)}"
        links[key] = node
        return ColumnRef(type=node.type, name=key, attnum=1, key=key)

    expression, kind = planner.prepare(rewriting.rewrite(target, placed)), target.type
    if links:
        text = RowEvaluator(planner.evaluation.time, lambda column: _subquery(planner, links[column.key])).constant(expression).value
        return read_text(pa.array([text], pa.string()), kind.oid, kind.typmod)
    return array_of(expression, planner.evaluation.time)


def few(planner: Planner, query: Query) -> pa.Table:
    """Return the result of a query that `refusal` accepts in stored form, by the keys of its columns.

    Raise NotColumnwise if the rows may be many, or if the query calls a function of a user.
    """
    assert isinstance(query.body, Select)
    _refuse_calls(query.body)
    return pa.table(_stored(planner, query, scans=False), names=[column.key for column in query.columns])


def answered(planner: Planner, expression: Expression) -> Expression:
    """Return an expression with the values of its subqueries. Raise NotColumnwise if the driver does not take one of them."""
    links = [node for node in walk(expression) if isinstance(node, SubLink)]
    if not links:
        return expression
    if any(_refusal_of(link, refusal) is not None for link in links):
        raise NotColumnwise("a subquery")
    _refuse_calls(expression)

    def value(node: Expression) -> Expression | None:
        return _subquery(planner, node) if isinstance(node, SubLink) else None

    with usual_way_says():
        return rewriting.rewrite(expression, value)


def _refuse_calls(part: Select | Expression) -> None:
    """Raise NotColumnwise if a query or an expression calls a function of a user. The usual execution could call it again."""
    if any(isinstance(node, Expression) and row_by_row.calls_session(node) for node in parts(part)):
        raise NotColumnwise("a function of a user")


def _stored(planner: Planner, query: Query, *, scans: bool) -> list[pa.Array]:
    """Return the columns of a query that `refusal` accepts, in stored form. `scans`: see `_table_values`."""
    select = query.body
    assert isinstance(select, Select)
    if isinstance(select.source, RelationItem):
        return _table_values(_table(planner, select), query, select, scans=scans)
    if type(select.source) is not FromItem:
        raise NotColumnwise("changes")
    with usual_way_says():
        return [_value(planner, target.expression) for target in select.targets]


def _subquery(planner: Planner, link: SubLink) -> Const:
    if link.kind == "EXISTS":
        check_rights(planner, link.query)
    query = _answered(link)
    values, *_ = _stored(planner, query, scans=True)
    if link.kind == "EXISTS":
        return Const(type=BOOLEAN, value="t" if len(values) else "f")
    if len(values) > 1:
        raise PostgresError("21000", "more than one row returned by a subquery used as an expression")
    texts = write_text(values, query.columns[0].type.oid)
    return Const(type=link.type, value=texts[0].as_py() if len(texts) else None)


_Refuse: TypeAlias = Callable[[Query, Select], str | None]
_Answer: TypeAlias = Callable[[Planner, Query, Select], ResultSet]

_BY_SOURCE: Mapping[type[FromItem], tuple[_Refuse, _Answer]] = {
    FromItem: (
        lambda query, select: _constant_refusal(query, select, refusal),
        _constant_answer,
    ),
    RelationItem: (_table_refusal, _table_answer),
    ChangesItem: (change_stream.refusal, change_stream.answer),
}


def refusal(query: Query) -> str | None:
    """Return the reason why the driver does not take the query, or None if it does."""
    if not isinstance(query.body, Select) or type(query.body.source) not in _BY_SOURCE or not query.columns:
        return "not a SELECT list over one source"
    refuse, _ = _BY_SOURCE[type(query.body.source)]
    return refuse(query, query.body)


def answer(planner: Planner, query: Query) -> ResultSet:
    """Return the result of a query that `refusal` accepts."""
    assert isinstance(query.body, Select)
    _, answer_of = _BY_SOURCE[type(query.body.source)]
    return answer_of(planner, query, query.body)
