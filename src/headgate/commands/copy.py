"""COPY: between a table or query and the client.

COPY … TO STDOUT gives its rows batch by batch (a subscriber's initial copy comes this way, in binary or text), COPY … FROM STDIN
reads what the client sends in pieces and appends it piece by piece, all in the statement's transaction. Files and programs of
the server are refused: a node's files are not its clients'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.catalog.relation import Column, Relation
from headgate.commands import copy_option, lookup, policy, privilege
from headgate.commands.copy_option import CopyOptions
from headgate.commands.copy_reader import Reader
from headgate.commands.insert import target
from headgate.commands.new_rows import NewRows
from headgate.commands.query import from_clause, render, select
from headgate.commands.query.plan import Plan, PlanColumn, col
from headgate.commands.query.planner import Planner
from headgate.commands.result import CopyIn, CopyOut
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.parser import unwrap
from headgate.storage import spool
from headgate.types import copy as copy_format
from headgate.types.binary import write_binary
from headgate.types.copy_binary import HEADER, TRAILER, write_copy_binary
from headgate.types.resultset import ResultSet
from headgate.types.text import read_text


def copy(node: Any, session: Session) -> CopyIn | CopyOut:
    """COPY … TO STDOUT, COPY … FROM STDIN."""
    options = copy_option.read(node.options, from_client=node.is_from)
    if node.is_program or node.filename:
        raise not_supported("COPY to or from a file or program is not supported", hint="Use STDIN or STDOUT, or psql's \\copy.")
    return _copy_in(node, session, options) if node.is_from else _copy_out(node, session, options)


def columns_of(node: Any, relation: Relation) -> list[Column]:
    """The columns that COPY names, or all that are not generated."""
    if not node.attlist:
        return [each for each in relation.columns if each.generated is None]
    found = []
    for name in names.strings(node.attlist):
        column = relation.column(name)
        if column is None:
            raise PostgresError("42703", f'column "{name}" of relation "{relation.name}" does not exist')
        if column.generated is not None:
            raise PostgresError("42P10", f'column "{name}" is a generated column', detail="Generated columns cannot be used in COPY.")
        if column in found:
            raise PostgresError("42701", f'column "{name}" specified more than once')
        found.append(column)
    return found


# ---- COPY TO ----------------------------------------------------------------------------------------------------


def _copy_out(node: Any, session: Session, options: CopyOptions) -> CopyOut:
    transaction = session.begin_statement()
    planner = Planner(session, transaction)
    with render.running(session, transaction):
        if node.HasField("query"):
            query = unwrap(node.query)
            if query.DESCRIPTOR.name != "SelectStmt":
                raise not_supported("COPY of this query is not supported")
            if select.by_catalog(query, session):
                return _of_result(select.run(query, session), session, options)
            plan = planner.select(query, None)
        else:
            plan = _table_plan(node, session, planner)
    copied = CopyOut(len(plan.columns), options.binary, ())
    copied.lines = _lines(plan, session, planner, options, copied)
    return copied


def _table_plan(node: Any, session: Session, planner: Planner) -> Plan:
    cursor, context = planner.transaction.cursor, session.context
    relation = lookup.target(cursor, context, node.relation)
    privilege.readable(cursor, context.user, relation)
    hint = "Try the COPY (SELECT ...) TO variant."
    if relation.kind in "vmfp":
        kind = {"v": "view", "m": "materialized view", "f": "foreign table", "p": "partitioned table"}[relation.kind]
        raise PostgresError("42809", f'cannot copy from {kind} "{relation.name}"', hint=hint)
    if relation.kind != "r":
        raise PostgresError("42809", f'cannot copy from non-table relation "{relation.name}"')
    wanted = columns_of(node, relation)
    privilege.check_columns(cursor, context.user, relation, "SELECT", [each.attnum for each in wanted])
    source = planner.visible(relation, from_clause.table_source(planner, planner.frame_of(relation), relation, relation.name, None))
    by_name = {each.name: each for each in source.star}
    return Plan(source.frame, tuple(by_name[each.name] for each in wanted))


def _of_result(result: ResultSet, session: Session, options: CopyOptions) -> CopyOut:
    """COPY of a query that the catalog answered: its rows are text already."""
    copied = CopyOut(len(result.columns), options.binary, ())

    def lines() -> Iterator[pa.Array]:
        if options.binary:
            yield pa.array([HEADER], pa.large_binary())
        elif options.header:
            yield _header([each.name for each in result.columns], options)
        for batch in result.batches:
            copied.rows += batch.num_rows
            if options.binary:
                arrays = [
                    write_binary(read_text(batch.column(place), each.type_oid, each.typmod), each.type_oid, each.typmod)
                    for place, each in enumerate(result.columns)
                ]
                yield pa.array([write_copy_binary(arrays)], pa.large_binary())
            else:
                yield _rows_of_text(batch.columns, batch.num_rows, options)
        if options.binary:
            yield pa.array([TRAILER], pa.large_binary())

    copied.lines = lines()
    return copied


def _lines(plan: Plan, session: Session, planner: Planner, options: CopyOptions, copied: CopyOut) -> Iterator[pa.Array]:
    transaction = planner.transaction
    frame = plan.frame.select(*[col(each.key) for each in plan.columns])
    if options.binary:
        yield pa.array([HEADER], pa.large_binary())
    elif options.header:
        yield _header([each.name for each in plan.columns], options)
    with render.running(session, transaction):
        for batch in spool.batches(frame, transaction.engine.data_dir / "pgsql_tmp"):
            session.check_cancel()
            copied.rows += batch.num_rows
            yield _binary_rows(batch, plan.columns) if options.binary else _text_rows(batch, plan, session, options)
    if options.binary:
        yield pa.array([TRAILER], pa.large_binary())


def _binary_rows(batch: pa.RecordBatch, columns: Sequence[PlanColumn]) -> pa.Array:
    if not columns:
        return pa.array([b"\0\0"] * batch.num_rows, pa.large_binary())
    arrays = [write_binary(batch.column(place), each.type.oid, each.type.typmod) for place, each in enumerate(columns)]
    lengths = sum(np.asarray(_value_lengths(each)) + 4 for each in arrays) + 2
    return _cut(write_copy_binary(arrays), lengths)


def _value_lengths(values: pa.LargeBinaryArray) -> Any:
    import pyarrow.compute as pc

    return pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)


def _cut(data: bytes, lengths: Any) -> pa.Array:
    """One buffer as an array of rows, without copying."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _text_rows(batch: pa.RecordBatch, plan: Plan, session: Session, options: CopyOptions) -> pa.Array:
    texts = render.text_batch(batch, plan, session)
    return _rows_of_text(texts.columns if plan.columns else [], batch.num_rows, options)


def _rows_of_text(columns: Sequence[pa.Array], rows: int, options: CopyOptions) -> pa.Array:
    if not columns:
        return pa.array([b"\n"] * rows, pa.large_binary())
    if options.csv:
        data = copy_format.write_copy_csv(columns, null=options.null, delimiter=options.delimiter, quote=options.quote)
        return pa.array([data], pa.large_binary())
    data = copy_format.write_copy_text(columns, null=options.null, delimiter=options.delimiter)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A) + 1
    return _cut(data, np.diff(ends, prepend=0))


def _header(titles: Sequence[str], options: CopyOptions) -> pa.Array:
    columns = [pa.array([title], pa.string()) for title in titles]
    if options.csv:
        data = copy_format.write_copy_csv(columns, null=options.null, delimiter=options.delimiter, quote=options.quote)
    else:
        data = copy_format.write_copy_text(columns, null=options.null, delimiter=options.delimiter)
    return pa.array([data], pa.large_binary())


# ---- COPY FROM --------------------------------------------------------------------------------------------------


def _copy_in(node: Any, session: Session, options: CopyOptions) -> CopyIn:
    transaction = session.begin_statement()
    if node.HasField("where_clause"):
        raise not_supported("COPY FROM ... WHERE is not supported")
    relation = target(node.relation, session, "copy to", "INSERT")
    columns = columns_of(node, relation)
    privilege.check_columns(transaction.cursor, session.context.user, relation, "INSERT", [each.attnum for each in columns])
    planner = Planner(session, transaction)
    if relation.row_security and policy.applies(transaction.cursor, session.context.user, relation):
        raise not_supported("COPY FROM not supported with row-level security", hint="Use INSERT statements instead.")

    def consume(pieces: Iterator[bytes]) -> int:
        writer = NewRows(planner, relation)
        rows = 0
        with render.running(session, transaction):
            for table in Reader(relation, columns, options, session.context.time_zone).tables(pieces):
                session.check_cancel()
                rows += writer.append(writer.completed(table)).num_rows
            writer.check_references()
        return rows

    return CopyIn(len(columns), options.binary, consume)
