"""COPY between a table or query and the client.

COPY … TO STDOUT produces its rows batch by batch. A subscriber's initial copy uses it in binary or text.
COPY … FROM STDIN appends the client's data piece by piece, in the statement's transaction. Files and programs of the server are rejected,
because clients must not access the node's files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.analysis.query import PlanColumn, Select
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Column, Relation
from headgate.catalog.relation.relation_kind import INDEX_KINDS, RelationKind
from headgate.commands import lookup, privilege, stored_expression
from headgate.commands.copy import copy_lines, copy_option
from headgate.commands.copy.copy_lines import RowEncoder
from headgate.commands.copy.copy_option import CopyOptions
from headgate.commands.copy.copy_reader import CopyReader
from headgate.commands.dml.insert import fires_instead, writable
from headgate.commands.dml.rows.new_rows import NewRows
from headgate.commands.query import engine, rendering, row_security
from headgate.commands.query.change_scan import ChangeScan
from headgate.commands.query.clause import from_clause
from headgate.commands.query.driver import change_stream
from headgate.commands.query.plan import Plan, col
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.result import CopyIn, CopyOut, CopyProgress
from headgate.commands.session import Session
from headgate.commands.trigger.statement import firing_triggers
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import to_boolean
from headgate.expression.node import ColumnRef, TypeRef, walk
from headgate.settings.encoding import Encoding
from headgate.sql import names
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.spark import result_spool
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers
from headgate.types.binary.copy_binary import HEADER, TRAILER
from headgate.types.resultset import ResultColumn, ResultSet
from headgate.types.storage import arrow_type
from headgate.types.text.text import read_text

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
MESSAGE_BYTES = 16 << 20
"""Approximate size of a message in bytes. A client holds a whole message in memory."""


def copy(node: pb.CopyStmt, session: Session) -> CopyIn | CopyOut:
    client = Encoding(session.settings.text("client_encoding"))
    options = copy_option.read(node.options, client, from_client=node.is_from)
    if node.is_program or node.filename:
        _check_server_access(node, session)
        raise not_supported("COPY to or from a file or program is not supported", hint="Use STDIN or STDOUT, or psql's \\copy.")
    return _copy_in(node, session, options) if node.is_from else _copy_out(node, session, options)


def _check_server_access(node: ParseNode, session: Session) -> None:
    """Raise 42501 for a role without access to the server's files and programs.

    Other roles get 0A000, as headgate does not support them.
    """
    if node.is_program:
        group, deed = "pg_execute_server_program", "COPY to or from an external program"
    elif node.is_from:
        group, deed = "pg_read_server_files", "COPY from a file"
    else:
        group, deed = "pg_write_server_files", "COPY to a file"
    if not privilege.is_member(session.begin_statement().cursor, session.context.user, group):
        message = f"must be superuser or have privileges of the {group} role to {deed}"
        hint = "Anyone can COPY to stdout or from stdin. psql's \\copy command also works for anyone."
        raise PostgresError("42501", message, hint=hint)


def columns_of(node: pb.CopyStmt, relation: Relation) -> list[Column]:
    """Return the columns that COPY names, or all that are not generated. Raise 42703, 42P10 or 42701 for invalid names."""
    if not node.attlist:
        return [column for column in relation.columns if column.generated is None]
    columns = []
    for name in names.strings(node.attlist):
        column = relation.existing_column(name)
        if column.generated is not None:
            raise PostgresError("42P10", f'column "{name}" is a generated column', detail="Generated columns cannot be used in COPY.")
        if column in columns:
            raise PostgresError("42701", f'column "{name}" specified more than once')
        columns.append(column)
    return columns


# ---- COPY TO ----------------------------------------------------------------------------------------------------


def _copy_out(node: pb.CopyStmt, session: Session, options: CopyOptions) -> CopyOut:
    transaction = session.begin_statement()
    planner = QueryPlanner(session, transaction)
    batches: Iterator[pa.RecordBatch] | Iterator[pa.Array] | None = None
    with rendering.running(session, transaction):
        if node.HasField("query"):
            query = unwrap(node.query)
            if query.DESCRIPTOR.name != "SelectStmt":
                return _of_changes(query, session, options)
            analysed = engine.analysed(planner, query)
            result = engine.first(
                planner, analysed, lambda chosen: chosen.run(planner, analysed) if chosen is engine.CATALOG else None, engine.PLANNING
            )
            if result is not None:
                return _of_result(result, session, options)
            if options.arrow and isinstance(analysed.body, Select) and (changes := change_stream.direct(analysed, analysed.body)):
                return _of_published(*changes)
            relation, plan = 0, planner.plan(analysed)
        else:
            relation, plan, batches = _table_plan(node, session, planner, options)
    if node.HasField("query"):
        copy_option.check_forced(options, [column.name for column in plan.columns])
    copied = CopyOut(len(plan.columns), options.binary or options.arrow, (), CopyProgress("COPY TO", relation))
    lines = _lines(plan, batches, session, planner, options, copied)
    copied.lines = _with_header(lines) if options.binary else lines
    return copied


def _table_plan(
    node: pb.CopyStmt, session: Session, planner: QueryPlanner, options: CopyOptions
) -> tuple[int, Plan, Iterator[pa.RecordBatch] | Iterator[pa.Array] | None]:
    """Return the table's oid, its plan, and the same rows read from its files: as batches, or as messages if tasks encode them.

    The last is None if row security applies or if there is no column. Spark then computes the rows of the plan.
    """
    cursor, context = planner.transaction.cursor, session.context
    relation = lookup.target(cursor, context, node.relation)
    privilege.readable(cursor, context.user, relation)
    hint = "Try the COPY (SELECT ...) TO variant."
    if relation.kind in {RelationKind.VIEW, RelationKind.MATERIALIZED_VIEW, RelationKind.FOREIGN_TABLE, RelationKind.PARTITIONED_TABLE}:
        kind = {"v": "view", "m": "materialized view", "f": "foreign table", "p": "partitioned table"}[relation.kind]
        raise PostgresError("42809", f'cannot copy from {kind} "{relation.name}"', hint=hint)
    if relation.kind != RelationKind.TABLE:
        raise PostgresError("42809", f'cannot copy from non-table relation "{relation.name}"')
    columns = columns_of(node, relation)
    copy_option.check_forced(options, [column.name for column in columns], relation)
    privilege.check_columns(cursor, context.user, relation, "SELECT", [column.attnum for column in columns])
    table = from_clause.table_source(planner, planner.frame_of(relation, in_order=True), relation, relation.name, None)
    source = row_security.of_statement(planner, relation, row_security.Statement.SELECT).visible(table)
    by_name = {column.name: column for column in source.star}
    plan = Plan(source.frame, tuple(by_name[column.name] for column in columns))
    if not columns or privilege.has_row_security(cursor, relation):
        return relation.oid, plan, None
    column_names = [column.name for column in columns]
    if not options.arrow and _is_for_tasks(planner, relation):
        return (
            relation.oid,
            plan,
            _by_tasks(planner, relation, column_names, _encoder(rendering.result_columns(plan.columns), session, options)),
        )
    return relation.oid, plan, planner.transaction.reader.pieces(relation, column_names)


def _is_for_tasks(planner: QueryPlanner, relation: Relation) -> bool:
    state, _ = planner.transaction.reader.shown(relation)
    return state.rows > planner.transaction.storage.small_batch_rows and (len(state.files) > 1 or state.rows > copy_lines.PART_ROWS)


def _by_tasks(planner: QueryPlanner, relation: Relation, names: Sequence[str], encoder: RowEncoder) -> Iterator[pa.Array]:
    """Yield the messages of a table's rows, encoded by tasks, then those of rows that are not in files yet."""
    storage = planner.transaction.storage
    state, pending = planner.transaction.reader.shown(relation)
    folder = planner.transaction.reader.table(relation).folder
    yield from copy_lines.of_table(storage.spark, folder, state, names, encoder, storage.exchange)
    for batch in (batch for table in pending for batch in table.select(names).to_batches()):
        yield encoder.of_stored(batch.columns, batch.num_rows)


def _of_changes(query: pb.DeleteStmt, session: Session, options: CopyOptions) -> CopyOut:
    """COPY (INSERT, UPDATE, DELETE … RETURNING …)."""
    if query.DESCRIPTOR.name == "MergeStmt":
        raise PostgresError("0A000", "MERGE not supported in COPY")
    if not query.HasField("returning_clause"):
        raise PostgresError("0A000", "COPY query must have a RETURNING clause")
    result = session.parts.run_statement(query, session)
    assert isinstance(result, ResultSet)
    return _of_result(result, session, options)


def _of_result(result: ResultSet, session: Session, options: CopyOptions) -> CopyOut:
    """Return the COPY of a query that the catalog has answered. Its rows are already text."""
    copied = CopyOut(len(result.columns), options.binary or options.arrow, (), CopyProgress("COPY TO"))
    titles = [column.name for column in result.columns]
    copy_option.check_forced(options, titles)

    if options.arrow:
        columns = [PlanColumn(column.name, TypeRef(column.type_oid, column.typmod), "") for column in result.columns]
        schema = schema_of(columns)
        stored = (pa.RecordBatch.from_arrays(_as_stored(batch, result.columns), schema=schema) for batch in result.batches)
        copied.lines = arrow_messages(schema, stored, copied.progress)
        return copied

    encoder = _encoder(result.columns, session, options)

    def lines() -> Iterator[pa.Array]:
        if options.header:
            yield encoder.header()
        for batch in result.batches:
            copied.progress.rows += batch.num_rows
            if options.binary:
                yield encoder.of_stored(_as_stored(batch, result.columns), batch.num_rows)
            else:
                yield encoder.of_texts(batch.columns if result.columns else [], batch.num_rows)

    copied.lines = _with_header(lines()) if options.binary else lines()
    return copied


def _as_stored(batch: pa.RecordBatch, columns: Sequence[ResultColumn]) -> list[pa.Array]:
    return [read_text(batch.column(place), column.type_oid, column.typmod) for place, column in enumerate(columns)]


def _of_published(shown: Sequence[tuple[int, PlanColumn]], scanned: ChangeScan) -> CopyOut:
    """Return the COPY of published changes in Arrow format. They are sent as they are read."""
    copied = CopyOut(len(shown), True, (), CopyProgress("COPY TO"))
    batches = scanned.batches()
    first = next(batches)

    def chosen(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch.column(place) for place, _ in shown], names=[column.name for _, column in shown])

    selected = (chosen(batch) for batch in itertools.chain([first], batches))
    copied.lines = arrow_messages(chosen(first).schema, selected, copied.progress)
    return copied


def _with_header(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Add the binary header and trailer to rows. As in PostgreSQL, the header is in one message with the first row."""
    head = HEADER
    for messages in rows:
        if head and len(messages):
            yield pa.array([head + messages[0].as_py()], pa.large_binary())
            yield pa.concat_arrays([messages.slice(1)])
            head = b""
        else:
            yield messages
    yield pa.array([head + TRAILER], pa.large_binary())


def _lines(
    plan: Plan,
    batches: Iterator[pa.RecordBatch] | Iterator[pa.Array] | None,
    session: Session,
    planner: QueryPlanner,
    options: CopyOptions,
    copied: CopyOut,
) -> Iterator[pa.Array]:
    transaction = planner.transaction
    encoder = _encoder(rendering.result_columns(plan.columns), session, options)
    if options.header:
        yield encoder.header()
    with rendering.running(session, transaction):
        if batches is None:
            frame = plan.frame.select(*[col(column.key) for column in plan.columns])
            if plan.columns and not options.arrow and not result_spool.is_small(frame):
                batches = copy_lines.of_query(frame, encoder, transaction.storage.exchange)
            else:
                batches = result_spool.batches(frame, transaction.storage.exchange)
        if options.arrow:
            schema = schema_of(plan.columns)
            yield from arrow_messages(schema, held(batches, schema), copied.progress)
            return
        for batch in batches:
            session.check_cancel()
            copied.progress.rows += len(batch)
            if isinstance(batch, pa.RecordBatch):
                yield encoder.of_stored(batch.columns if plan.columns else [], batch.num_rows)
            else:
                yield batch


def _encoder(columns: Sequence[ResultColumn], session: Session, options: CopyOptions) -> RowEncoder:
    return RowEncoder(tuple(columns), options, session.context.forms)


# ---- COPY FROM --------------------------------------------------------------------------------------------------


def _copy_in(node: pb.CopyStmt, session: Session, options: CopyOptions) -> CopyIn:
    transaction = session.begin_statement()
    relation = lookup.target(transaction.cursor, session.context, node.relation)
    refusal = _refusal(session, relation)
    relation = relation if refusal is not None else writable(relation, session, "copy to", "INSERT")
    columns = columns_of(node, relation)
    privilege.check_columns(transaction.cursor, session.context.user, relation, "INSERT", [column.attnum for column in columns])
    planner = QueryPlanner(session, transaction)
    planner.writes(relation, [column.attnum for column in columns])
    if row_security.applies(planner, relation):
        raise not_supported("COPY FROM not supported with row-level security", hint="Use INSERT statements instead.")
    copy_option.check_forced(options, [column.name for column in columns], relation)
    passing = _where(node, planner, relation)

    progress = CopyProgress("COPY FROM", relation.oid)

    def consume(pieces: Iterator[bytes]) -> None:
        if refusal is not None:  # PostgreSQL has announced the copy by then, so the client sends its data
            raise refusal
        writer = NewRows(planner, relation, violations=())
        with rendering.running(session, transaction), firing_triggers(planner, relation, (triggers.INSERT, None)):
            reader = CopyReader(relation, columns, options, session.context.forms)
            for table in reader.tables(pieces):
                session.check_cancel()
                included = passing(writer.completed(table))
                try:
                    writer.append(included)
                except PostgresError as error:
                    # WHERE leaves rows out: the rows that are left do not have the numbers of their lines
                    if error.row is not None and included.num_rows == table.num_rows:
                        error.within(reader.place(error.row, with_text=error.sqlstate != "23505" or writer.fires_before))
                    raise
                # those that INSTEAD OF triggers leave out are counted too
                progress.rows = progress.rows + included.num_rows if relation.kind == RelationKind.VIEW else writer.count
                progress.excluded += table.num_rows - included.num_rows
            writer.check_references()

    return CopyIn(len(columns), options.binary, consume, progress)


def _refusal(session: Session, relation: Relation) -> PostgresError | None:
    """Return the error of a COPY into a sequence, or into a view without INSTEAD OF triggers for INSERT. Raise 42809 for an index."""
    if relation.kind in INDEX_KINDS:
        raise PostgresError("42809", f'"{relation.name}" is an index')
    if relation.kind == RelationKind.SEQUENCE:
        return PostgresError("42809", f'cannot copy to sequence "{relation.name}"')
    if relation.kind != RelationKind.VIEW or fires_instead(session, relation, triggers.INSERT):
        return None
    hint = "To enable copying to a view, provide an INSTEAD OF INSERT trigger."
    return PostgresError("42809", f'cannot copy to view "{relation.name}"', hint=hint)


def _where(node: pb.CopyStmt, planner: QueryPlanner, relation: Relation) -> Callable[[pa.Table], pa.Table]:
    """Return the filter of COPY FROM … WHERE for rows that have all columns of the table."""
    if not node.HasField("where_clause"):
        return lambda rows: rows
    scope = stored_expression.scope_of(relation.columns, relation.name, relation.schema, relation.oid)
    context = planner.context.within(
        construct="COPY FROM WHERE conditions", refuse_subquery="cannot use subquery in COPY FROM WHERE condition", subquery=None
    )
    bound = to_boolean(binder.bind_raw(node.where_clause, scope, context), "WHERE", context)
    attnums = {part.attnum for part in walk(bound) if isinstance(part, ColumnRef)}
    for column in relation.columns:
        if column.generated and attnums & {0, column.attnum}:  # 0: the whole row
            message = "generated columns are not supported in COPY FROM WHERE conditions"
            raise PostgresError("42P10", message, detail=f'Column "{column.name}" is a generated column.')
    privilege.check_columns(planner.transaction.cursor, planner.session.context.user, relation, "SELECT", attnums)
    condition = planner.evaluation.filter(bound)

    def passing(rows: pa.Table) -> pa.Table:
        frame = local_frame(planner.session_spark, rows, spark_columns(relation))
        return frame.where(condition).toArrow().cast(rows.schema)

    return passing


def arrow_messages(schema: pa.Schema, batches: Iterable[pa.RecordBatch], progress: CopyProgress) -> Iterator[pa.Array]:
    yield buffers.single(schema.serialize())
    for batch in batches:
        progress.rows += batch.num_rows
        rows = max(batch.num_rows * MESSAGE_BYTES // max(batch.nbytes, 1), 1)
        for start in range(0, batch.num_rows, rows):
            yield buffers.single(batch.slice(start, rows).serialize())
    yield buffers.single(END_OF_STREAM)


def schema_of(columns: Sequence[PlanColumn]) -> pa.Schema:
    """Return the schema of rows in the form in which a node holds them."""
    return pa.schema([pa.field(column.name, arrow_type(column.type.oid, column.type.typmod)) for column in columns])


def held(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches whose columns have the types of the schema: Spark gives some with other units."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [values if values.type == field.type else values.cast(field.type) for values, field in zip(batch.columns, schema, strict=True)],
            schema=schema,
        )
