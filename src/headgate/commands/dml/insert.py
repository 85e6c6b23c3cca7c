"""INSERT: VALUES, SELECT, DEFAULT VALUES, ON CONFLICT, RETURNING."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import closing

import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.analysis import row_width
from headgate.analysis.query import Query, reference
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import inheritance
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, RelationKind
from headgate.catalog.replication import subscription_history
from headgate.commands import lookup, privilege, stored_expression, temporary_schema
from headgate.commands.constraint import referential_action
from headgate.commands.dml import column_reads, on_conflict, returning, unwritable_view
from headgate.commands.dml.rows import many_rows, next_value, storage_error
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.query import rendering, row_security
from headgate.commands.query.clause import modifying_with
from headgate.commands.query.driver import answer, computation, values_list
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.query.row_security import Rows, RowSecurity, Statement
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.trigger.firing import Firing
from headgate.commands.trigger.statement import firing_triggers
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression import node as nodes
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.part_assignment import Target
from headgate.expression.binding.scope import EMPTY
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Const, Expression, Param, SetToDefault, TypeRef
from headgate.sql.parser import ParseNode, beginning, kind, unwrap, walk
from headgate.types import buffers
from headgate.types.registry import FIRST_USER_OID
from headgate.types.resultset import ResultSet
from headgate.types.storage import NO_COLUMN, arrow_type

_WITHOUT_CALLS = {"A_Const", "ParamRef", "SetToDefault"}
_INSTEAD = {"insert into": triggers.INSERT, "copy to": triggers.INSERT, "update": triggers.UPDATE, "delete from": triggers.DELETE}
"""The events whose INSTEAD OF triggers do what a command wants to do with a view."""


def insert(node: pb.InsertStmt, session: Session, planner: QueryPlanner | None = None) -> ResultSet | CommandResult:
    """Execute an INSERT. `planner` is that of a statement inside WITH."""
    transaction = session.begin_statement()
    relation = target(node.relation, session, "insert into", "INSERT")
    planner = planner or QueryPlanner(session, transaction)
    with rendering.running(session, transaction), firing_triggers(planner, relation, *_events(node)):
        planner.with_queries(node)
        return _insert(node, planner, relation)


def insert_rows(node: pb.InsertStmt, session: Session, rows: pa.Table) -> None:
    """Insert rows that are already computed, instead of the one row of values in the INSERT.

    The table has no triggers. `rows` have the columns that the statement sets, by name.
    """
    transaction = session.begin_statement()
    relation = target(node.relation, session, "insert into", "INSERT")
    planner = QueryPlanner(session, transaction)
    with rendering.running(session, transaction):
        security = _security(node, planner, relation)
        with closing(NewRows(planner, relation, violations=security.violations(Rows.INSERTED))) as writer:
            columns = [column for column in target_columns(node, relation) if node.cols or column.name in rows.column_names]
            for column in columns:
                refuse_generated(node, column, column.name not in rows.column_names)
            _permit(planner, relation, columns)
            ignored = [column.name for column in columns if is_ignored(node, column) and column.name in rows.column_names]
            writer.insert(writer.completed(rows.drop_columns(ignored)))


def _events(node: pb.InsertStmt) -> list[tuple[int, set[str] | None]]:
    events: list[tuple[int, set[str] | None]] = [(triggers.INSERT, None)]
    if node.on_conflict_clause.action == pb.ONCONFLICT_UPDATE:
        events.append((triggers.UPDATE, {unwrap(target_node).name for target_node in node.on_conflict_clause.target_list}))
    return events


def _insert(node: pb.InsertStmt, planner: QueryPlanner, relation: Relation) -> ResultSet | CommandResult:
    security = _security(node, planner, relation)
    with closing(NewRows(planner, relation, violations=security.violations(Rows.INSERTED))) as writer:
        modifying_with.freeze_subqueries(planner, node.on_conflict_clause, node.returning_clause)
        columns = target_columns(node, relation, parts=True)
        command = on_conflict.Command(node, planner, security) if node.HasField("on_conflict_clause") else None
        if command is not None:
            on_conflict.analyse(node, planner, relation)
            on_conflict.permit(node, planner, relation)
        rows = _source(node, planner, writer, columns)
        if relation.kind == RelationKind.VIEW and command is not None:
            raise not_supported("INSERT with ON CONFLICT into a view is not supported")
        returns = node.HasField("returning_clause")
        if command is None and not returns:
            with storage_error.sought(relation.name, rows):
                return CommandResult(f"INSERT 0 {writer.insert(rows)}")
        if isinstance(rows, DataFrame):
            with storage_error.sought(relation.name, rows):
                return _insert_many(node, writer, command, rows)
        stored = writer.append(rows) if command is None else command.insert(writer, rows)
        _check_references(writer, command)
        tag = f"INSERT 0 {stored.num_rows}"
        if not returns:
            return CommandResult(tag)
        return returning.of_rows(node.returning_clause, planner, stored, relation, node.relation.alias.aliasname, tag)


def _check_references(writer: NewRows, command: on_conflict.Command | None) -> None:
    writer.check_references()
    if command is not None:
        command.check_references()


def _security(node: pb.InsertStmt, planner: QueryPlanner, relation: Relation) -> RowSecurity:
    updates = node.on_conflict_clause.action == pb.ONCONFLICT_UPDATE
    statement = Statement.UPSERT if updates else Statement.INSERT
    return row_security.of_statement(planner, relation, statement, lambda: column_reads.of_insert(planner, relation, node))


def _insert_many(node: pb.InsertStmt, writer: NewRows, command: on_conflict.Command | None, rows: DataFrame) -> ResultSet | CommandResult:
    """Execute INSERT … SELECT with ON CONFLICT or RETURNING. The rows pass through the driver in their order, chunk by chunk."""
    planner, relation, transaction = writer.planner, writer.relation, writer.transaction
    store, count = rendering.kept(planner.session), 0
    with closing(many_rows.chunks(rows, relation, planner.session, transaction)) as chunks:
        first, second = next(chunks), next(chunks, None)
        if (
            second is not None and relation.kind != RelationKind.VIEW
        ):  # after the first chunk, the statement cannot restart if another transaction changes a table
            referential_action.lock(transaction, relation)
            transaction.lock(relation)
        for chunk in itertools.chain([first], [] if second is None else [second], chunks):
            stored: pa.Table = writer.append(chunk) if command is None else command.insert(writer, chunk)
            count += stored.num_rows
            if node.HasField("returning_clause"):
                store.extend(many_rows.of(relation, stored).to_batches())
    _check_references(writer, command)
    if not node.HasField("returning_clause"):
        return CommandResult(f"INSERT 0 {count}")
    alias, most = node.relation.alias.aliasname, many_rows.chunk_rows(relation, planner.session, transaction)
    return returning.of_store(node.returning_clause, planner, store, relation, alias, f"INSERT 0 {count}", most)


def target(node: ParseNode, session: Session, doing: str, *rights: str, current: bool = False) -> Relation:
    """Return the table that a command writes to, to change rows without ONLY together with the tables that inherit from it.

    Raise 42P01 with the position. `current`: WHERE CURRENT OF.
    """
    if not node.schemaname and node.relname in session.transition_tables:
        raise PostgresError("42601", f'relation "{node.relname}" cannot be the target of a modifying statement')
    cursor = session.begin_statement().cursor
    relation = writable(lookup.source(cursor, session.context, node), session, doing, *rights, current=current)
    return inheritance.expanded(cursor, relation) if node.inh and doing != "insert into" else relation


def writable(relation: Relation, session: Session, doing: str, *rights: str, current: bool = False) -> Relation:
    """Return the relation after PostgreSQL's checks (CheckValidResultRel)."""
    cursor, context = session.begin_statement().cursor, session.context
    if relation.kind == RelationKind.VIEW and not fires_instead(session, relation, _INSTEAD.get(doing)):
        raise unwritable_view.not_writable(cursor, relation, doing, rights[0] if rights else "SELECT", current=current)
    if relation.kind == RelationKind.VIEW and current:
        raise PostgresError("0A000", "WHERE CURRENT OF on a view is not implemented")
    if relation.kind in INDEX_KINDS | {RelationKind.COMPOSITE_TYPE}:
        raise PostgresError(
            "42809",
            f'cannot open relation "{relation.name}"',
            detail=f"This operation is not supported for {lookup.PLURALS[relation.kind]}.",
        )
    if relation.kind == RelationKind.SEQUENCE:
        raise PostgresError("42809", f'cannot change sequence "{relation.name}"')
    for right in rights:
        _check_right(cursor, context.user, relation, right)
    if relation.oid < FIRST_USER_OID:
        raise not_supported(f'changing the system catalog "{relation.name}" is not supported')
    subscription_history.refuse_change(cursor, relation.database, relation.oid, relation.name)
    if relation.persistence == "t":
        temporary_schema.touched(session, session.begin_statement(), relation)
    return relation


def fires_instead(session: Session, view: Relation, event: int | None) -> bool:
    """Return whether INSTEAD OF triggers of a view do what a command wants to do."""
    return event is not None and view.has_triggers and Firing(session, view).fires_instead(event)


def _check_right(cursor: Cursor, user: str, relation: Relation, right: str) -> None:
    """Raise 42501 without the privilege on the table, or (INSERT, UPDATE) on any column. The columns themselves are checked later."""
    if privilege.may_on_table(cursor, user, relation.database, relation.oid, right):
        return
    if right not in ("INSERT", "UPDATE") or not privilege.columns_with(cursor, user, relation, right):
        raise privilege.denied(cursor, relation.database, relation.oid, relation.name)


def target_columns(node: pb.InsertStmt, relation: Relation, *, parts: bool = False) -> list[Column]:
    """Return the columns that INSERT names, or all of them. With `parts`, a column may be named for each of its parts: ``(b[1], b[2])``."""
    if not node.cols:
        return list(relation.columns)
    columns: list[Column] = []
    whole: set[Column] = set()
    for item in node.cols:
        target_node = unwrap(item)
        column = relation.existing_column(target_node.name, location=target_node.location)
        if target_node.indirection and not parts:
            raise not_supported("assigning to a part of a column is not supported", location=target_node.location)
        if column in whole or (column in columns and not target_node.indirection):
            raise PostgresError("42701", f'column "{target_node.name}" specified more than once', location=target_node.location)
        columns.append(column)
        if not target_node.indirection:
            whole.add(column)
    return columns


def target_types(node: pb.InsertStmt, columns: Sequence[Column], context: BindContext) -> list[TypeRef]:
    """Return the type of the value that each target of INSERT takes: that of the column, or of the part of it that is named."""
    types = []
    for place, column in enumerate(columns):
        kind, part = stored_expression.type_of(column), _part(node, place, context)
        types.append(kind if part is None else part.type(Const(type=kind, value=None)))
    return types


def _part(node: pb.InsertStmt, place: int, context: BindContext) -> Target | None:
    """Return the part of a column that a target names. None if it names the column."""
    target = unwrap(node.cols[place]) if node.cols else None
    if target is None or not target.indirection:
        return None
    return Target(target.name, target.indirection, target.location, EMPTY, context, binder.bind_raw)


def permit(node: pb.InsertStmt, session: Session) -> None:
    """Raise 42501 without the rights on the columns that an INSERT names, or for which it has a list of values."""
    planner = QueryPlanner(session, session.begin_statement())
    relation = target(node.relation, session, "insert into", "INSERT")
    columns = target_columns(node, relation, parts=True)
    if not node.cols:
        lists = unwrap(node.select_stmt).values_lists if node.HasField("select_stmt") else ()
        columns = columns[: len(unwrap(lists[0]).items)] if lists else []
    _permit(planner, relation, columns)
    if node.HasField("on_conflict_clause"):
        on_conflict.permit(node, planner, relation)


def _permit(planner: QueryPlanner, relation: Relation, columns: Sequence[Column]) -> None:
    """Raise 42501 without INSERT on the columns that get a value. Errors may show these columns."""
    attnums = [column.attnum for column in columns]
    privilege.check_columns(planner.transaction.cursor, planner.session.context.user, relation, "INSERT", attnums)
    planner.writes(relation, attnums)


def _source(node: pb.InsertStmt, planner: QueryPlanner, writer: NewRows, columns: Sequence[Column]) -> pa.Table | DataFrame:
    """Return the complete rows to insert: an Arrow table, or a frame if there may be many."""
    if not node.HasField("select_stmt"):
        _permit(planner, writer.relation, [])
        count = pa.table({NO_COLUMN: pa.array([True], pa.bool_())})
        rows = writer.completed(count)
        return rows if writer.relation.columns else count
    select = unwrap(node.select_stmt)
    if select.values_lists and not select.sort_clause and not select.HasField("limit_count") and not select.HasField("with_clause"):
        return _values(select, node, planner, writer, columns)
    query = planner.analyse(select, None, target_types(node, columns, planner.context))
    _permit(planner, writer.relation, columns if node.cols else columns[: len(query.columns)])
    return _select(query, node, planner, writer, columns)


def value_lists(select: pb.SelectStmt, node: pb.InsertStmt, columns: Sequence[Column]) -> list[list[pb.Node]]:
    """Return the rows of VALUES. Raise 42601 unless all have the same width, which fits the columns."""
    lists = [list(unwrap(row).items) for row in select.values_lists]
    for row in lists:
        row_width.require_like_first(row, lists[0])
    require_width(lists[0], node.cols, columns)
    return lists


def require_width(values: Sequence[pb.Node], named: Sequence[pb.Node], columns: Sequence[Column]) -> None:
    """Raise 42601 if there are more values than columns, or fewer values than columns that the statement names."""
    width = len(values)
    if width > len(columns):
        raise PostgresError("42601", "INSERT has more expressions than target columns", location=beginning(values[len(columns)]))
    if named and width < len(columns):
        raise PostgresError("42601", "INSERT has more target columns than expressions", location=unwrap(named[width]).location)


def _values(
    select: pb.SelectStmt, node: pb.InsertStmt, planner: QueryPlanner, writer: NewRows, columns: Sequence[Column]
) -> pa.Table | DataFrame:
    lists = value_lists(select, node, columns)
    _permit(planner, writer.relation, columns[: len(lists[0])])
    if len(lists) == 1 and any(_expands(item, planner) for item in lists[0]):
        return _expand(lists[0], node, planner, writer, columns)
    targets: dict[Column, list[int]] = {}
    for place, column in enumerate(columns[: len(lists[0])]):
        targets.setdefault(column, []).append(place)
    called = [[item for item in row if kind(item) not in _WITHOUT_CALLS] for row in lists]
    if next_value.needs_order(called, (column.default for column in writer.relation.columns)):
        return pa.concat_tables([_row_in_order(row, targets, node, planner, writer, is_alone=len(lists) == 1) for row in lists])
    arrays: dict[str, pa.Array] = {}
    for column, places in targets.items():
        with storage_error.entering(writer.relation.name, column.name):
            values = _column_of_values(lists, places, node, planner, writer, column)
        if values is not None:
            arrays[column.name] = values
    rows = pa.table(arrays) if arrays else pa.table({NO_COLUMN: pa.array([True] * len(lists), pa.bool_())})
    return writer.completed(rows)


def _row_in_order(
    row: Sequence[pb.Node],
    targets: Mapping[Column, Sequence[int]],
    node: pb.InsertStmt,
    planner: QueryPlanner,
    writer: NewRows,
    *,
    is_alone: bool,
) -> pa.Table:
    """Return a row of VALUES, evaluated in PostgreSQL's order.

    A row that `is_alone` is evaluated in the order of the table's columns. Otherwise the list comes first, then the defaults of the other
    columns.
    """
    columns, arrays = writer.relation.columns, dict[str, pa.Array]()
    for column in columns if is_alone else dict.fromkeys([*targets, *columns]):
        with storage_error.entering(writer.relation.name, column.name):
            values = _column_of_values([row], targets[column], node, planner, writer, column) if column in targets else None
        arrays[column.name] = writer.default(column, 1) if values is None else values
    return pa.table({column.name: arrays[column.name] for column in columns})


def _expands(item: ParseNode, planner: QueryPlanner) -> bool:
    """Return whether an item of VALUES calls a set-returning function, which is allowed in VALUES with one row (transformInsertStmt)."""
    if not any(part.DESCRIPTOR.name == "FuncCall" for part in walk(item)):
        return False
    bound = binder.bind_raw(item, EMPTY, planner.context.within(construct="VALUES", default=True, sets=True))
    return any(map(builtin.returns_set, nodes.walk(bound)))


def _expand(
    items: Sequence[pb.Node], node: pb.InsertStmt, planner: QueryPlanner, writer: NewRows, columns: Sequence[Column]
) -> pa.Table | DataFrame:
    """Return the rows of a single VALUES list as those of a SELECT list. `completed` fills in items that are DEFAULT."""
    select, named_columns = pb.SelectStmt(limit_option=pb.LIMIT_OPTION_DEFAULT, op=pb.SETOP_NONE), []
    for item, column in zip(items, columns, strict=False):
        if unwrap(item).DESCRIPTOR.name != "SetToDefault":
            select.target_list.add().res_target.val.CopyFrom(item)
            named_columns.append(column)
    query = planner.analyse(select, None, [stored_expression.type_of(named_column) for named_column in named_columns])
    return _select(query, node, planner, writer, named_columns)


def _column_of_values(
    lists: Sequence[Sequence[pb.Node]], places: Sequence[int], node: pb.InsertStmt, planner: QueryPlanner, writer: NewRows, column: Column
) -> pa.Array | None:
    """Return the values that VALUES gives a column, or None if all of them are DEFAULT. `places`: of the column, or of its parts."""
    context = planner.context.within(construct="VALUES", default=True)
    cells = [_cell([(row[place], _part(node, place, context)) for place in places], column, context, planner) for row in lists]
    refuse_generated(node, column, all(isinstance(cell, SetToDefault) for cell in cells))
    if all(isinstance(cell, SetToDefault) for cell in cells) or column.generated is not None or is_ignored(node, column):
        return None
    if not any(isinstance(cell, SetToDefault) for cell in cells):
        return values_list.column_of(planner, column, cells)
    defaults = writer.default(column, sum(isinstance(cell, SetToDefault) for cell in cells))
    explicit = values_list.column_of(planner, column, [None if isinstance(cell, SetToDefault) else cell for cell in cells])
    remaining_defaults = list(defaults)
    values = [remaining_defaults.pop(0) if isinstance(cell, SetToDefault) else value for cell, value in zip(cells, explicit, strict=True)]
    return pa.array(values, arrow_type(column.type_oid, column.typmod))


def _cell(items: Sequence[tuple[ParseNode, Target | None]], column: Column, context: BindContext, planner: QueryPlanner) -> Expression:
    """Return the value of a column in one row: that of its one item, or the one that its items assign part by part."""
    column_type = stored_expression.type_of(column)
    whole: Expression = Const(type=column_type, value=None)
    for item, part in items:
        bound = binder.bind_raw(item, EMPTY, context)
        if isinstance(bound, SetToDefault) and part is None:
            return bound
        whole = bound if part is None else part.store(whole, bound)
    bound = next_value.with_next_values(whole, planner.session, planner.transaction)
    if isinstance(bound, Param):
        bound = planner.prepare(bound)
    constant = values_list.folded(bound, column_type)
    return constant if constant is not None else binder.assign(bound, column_type, column.name, context)


def is_ignored(node: pb.InsertStmt | pb.MergeWhenClause, column: Column) -> bool:
    """Return whether an identity column gets its default instead of the value that the statement has for it (OVERRIDING USER VALUE)."""
    return bool(column.identity) and node.override == pb.OVERRIDING_USER_VALUE


def refuse_generated(node: pb.InsertStmt | pb.MergeWhenClause, column: Column, default: bool) -> None:
    """Raise 428C9 for a value in a generated column, or for one in an identity column GENERATED ALWAYS that is not ignored."""
    message = f'cannot insert a non-DEFAULT value into column "{column.name}"'
    if column.generated is not None and not default:
        raise PostgresError("428C9", message, detail=f'Column "{column.name}" is a generated column.')
    if column.identity == "a" and not default and node.override not in (pb.OVERRIDING_SYSTEM_VALUE, pb.OVERRIDING_USER_VALUE):
        raise PostgresError(
            "428C9",
            message,
            detail=f'Column "{column.name}" is an identity column defined as GENERATED ALWAYS.',
            hint="Use OVERRIDING SYSTEM VALUE to override.",
        )


def _select(query: Query, node: pb.InsertStmt, planner: QueryPlanner, writer: NewRows, columns: Sequence[Column]) -> pa.Table | DataFrame:
    if len(query.columns) > len(columns):
        raise PostgresError("42601", "INSERT has more expressions than target columns")
    if node.cols and len(query.columns) < len(columns):
        raise PostgresError(
            "42601", "INSERT has more target columns than expressions", location=unwrap(node.cols[len(query.columns)]).location
        )
    values = _assigned(query, node, planner, columns)
    try:
        rows = _few(query, planner, values)
    except NotColumnwise:
        pass
    else:
        return writer.completed(rows)
    plan = planner.plan(query)
    selected = [planner.column(value).alias(name) for name, value in values.items()]
    frame = plan.frame.select(*selected or [F.lit(True).alias(NO_COLUMN)])  # Arrow does not count rows without columns
    if many_rows.are_few(frame, planner.session):
        with storage_error.sought(writer.relation.name, frame):
            return writer.completed(frame.toArrow())
    return writer.completed(frame)


def _assigned(query: Query, node: pb.InsertStmt, planner: QueryPlanner, columns: Sequence[Column]) -> dict[str, Expression]:
    """Return the values that the columns get, as expressions over the columns of the query."""
    values: dict[str, Expression] = {}
    for place, (source, column) in enumerate(zip(query.columns, columns, strict=False)):
        refuse_generated(node, column, default=False)
        kind = stored_expression.type_of(column)
        value: Expression = reference(source)
        if (part := _part(node, place, planner.context)) is not None:
            value = part.store(values.get(column.name) or Const(type=kind, value=None), value)
        value = binder.assign(value, kind, column.name, planner.context)
        if not is_ignored(node, column):
            values[column.name] = value
    return values


def _few(query: Query, planner: QueryPlanner, values: Mapping[str, Expression]) -> pa.Table:
    """Return the values for the columns if the driver answers the query, and the rows are few. Otherwise raise NotColumnwise."""
    if answer.refusal(query) is not None or not all(map(computation.is_known, values.values())) or not values:
        raise NotColumnwise("a query of many rows or tables")
    rows = answer.few(planner, query)
    if rows.num_rows > many_rows.most(planner.session):
        raise NotColumnwise("many rows")
    by_key = {name: buffers.whole(column) for name, column in zip(rows.column_names, rows.columns, strict=True)}
    time = planner.evaluation.time
    return pa.table({name: computation.value(planner.prepare(value), by_key, rows.num_rows, time) for name, value in values.items()})
