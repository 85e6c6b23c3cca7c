"""The set-returning function ``headgate.changes(publication, table, from_lsn, to_lsn)``: a table's published changes between two LSNs.

Its columns depend on its arguments, so the planner calls `item` instead of looking the function up. `driver.change_stream` answers a
query that only names columns of the function in bounded memory. Any other query first writes the rows to temporary files, which Spark
reads. These files are removed with the transaction.

The role needs REPLICATION or membership in headgate_read_changes, and SELECT on the published columns. If row-level security applies to the
table, the call is rejected, because the changes of hidden rows cannot be told apart from the others. `change_range` describes the rows.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame

from headgate.analysis.analyser import Analyser
from headgate.analysis.from_clause import aliased
from headgate.analysis.query import ChangesItem, PlanColumn, scope_table
from headgate.catalog.procedure import OWN_SCHEMA
from headgate.catalog.relation.relation import Column
from headgate.catalog.security import role as roles
from headgate.commands import lookup, privilege
from headgate.commands.query.plan import Plan
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding import binder
from headgate.expression.binding.scope import EMPTY
from headgate.expression.node import TypeRef
from headgate.lsn import Lsn
from headgate.pgoutput.change_columns import HEAD, OLD
from headgate.publisher.change_range import ChangeRange
from headgate.sql import grammar, names
from headgate.sql.parser import ParseNode, parse, unwrap, walk
from headgate.storage.location import data_location
from headgate.storage.spark.local_relation import local_frame
from headgate.types import buffers, registry
from headgate.types.resultset import ResultSet
from headgate.types.text import record
from headgate.types.text.text import write_text

NAME = "changes"
_ARGUMENTS = ("publication", "relation", "from_lsn", "to_lsn")
_HEAD_TYPES = (registry.TEXT, registry.INT8, registry.INT8, registry.INT8, registry.TIMESTAMPTZ, registry.TEXT)
SMALL_ROWS = 20_000
"""Maximum number of rows that are passed to Spark in memory. More rows are written to a temporary file."""


def is_call(node: ParseNode) -> bool:
    """Return whether a parse tree node is a call of headgate.changes."""
    return node.DESCRIPTOR.name == "FuncCall" and names.strings(node.funcname) == [OWN_SCHEMA, NAME]


def is_in(query: ParseNode) -> bool:
    """Return whether a query calls headgate.changes anywhere."""
    return any(is_call(node) for node in walk(query))


def may_read(session: Session) -> None:
    """Raise 42501 unless the role may read changes."""
    cursor, user = session.begin_statement().cursor, session.context.user
    role = roles.get(cursor, user)
    if not (role.superuser or role.replication or privilege.owns(cursor, user, roles.READ_CHANGES)):
        hint = f'Grant the role "{roles.READ_CHANGES_NAME}", or the attribute REPLICATION.'
        raise PostgresError("42501", "permission denied to read changes", hint=hint)


def opened(session: Session, publication: str, table: str, bounds: tuple[Lsn | None, Lsn]) -> tuple[ChangeRange, tuple[Column, ...]]:
    """Return the change range and its columns. Raise 42501 if the role may not read them or if row-level security applies."""
    may_read(session)
    cursor, user, node = session.begin_statement().cursor, session.context.user, session.parts
    relation = lookup.named(cursor, session.context, table)
    if privilege.under_row_security(cursor, user, relation):
        raise PostgresError("42501", f'query would be affected by row-level security policy for table "{relation.name}"')
    change_range = ChangeRange(node.engine, relation, publication, bounds, session.check_cancel)
    with node.slots.snapshots.holding(bounds[1] if bounds[0] is None else bounds[0]):
        columns = change_range.columns
    privilege.check_columns(cursor, user, relation, "SELECT", [column.attnum for column in columns])
    return change_range, columns


@dataclass(frozen=True)
class ChangeScan:
    """A call of headgate.changes with evaluated arguments."""

    session: Session
    range: ChangeRange
    columns: tuple[PlanColumn, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Meanwhile, the log from the start of the range on is protected from cleanup."""
        position = self.range.end if self.range.start is None else self.range.start
        with self.session.parts.slots.snapshots.holding(position):
            for batch in self.range.batches():
                self.session.check_cancel()
                yield batch


def item(analyser: Analyser, node: pb.RangeFunction, session: Session, *, describing: bool) -> ChangesItem | None:
    """Return a call of headgate.changes as a FROM item, or None for another function."""
    if not is_call(unwrap(unwrap(node.functions[0]).items[0])):
        return None
    scan = _bind_call(analyser, node, session, describing=describing)
    alias = node.alias.aliasname or NAME
    columns = aliased(scan.columns, alias, names.strings(node.alias.colnames))
    return ChangesItem((scope_table(alias, columns, row_key=analyser.row_key(alias, columns)),), columns, scan=scan, call=_text_of(node))


def _text_of(node: pb.RangeFunction) -> str:
    statement = pb.ParseResult()
    statement.CopyFrom(grammar.parse("SELECT * FROM f()"))
    called = statement.stmts[0].stmt.select_stmt.from_clause[0].range_function
    called.functions[0].list.items[0].CopyFrom(node.functions[0].list.items[0])
    return grammar.deparse(statement).removeprefix("SELECT * FROM ")


def _bind_call(analyser: Analyser, node: pb.RangeFunction, session: Session, *, describing: bool) -> ChangeScan:
    call = unwrap(unwrap(node.functions[0]).items[0])
    if node.is_rowsfrom or node.coldeflist or node.ordinality or len(node.functions) != 1:
        raise not_supported("this form of headgate.changes is not supported", location=call.location)
    query = _typed_arguments(call)
    values = _describe_arguments(query, call, analyser, session) if describing else _values(query, session)
    if values[0] is None or values[1] is None or values[3] is None:
        raise PostgresError("22004", "publication, relation and to_lsn of headgate.changes must not be null")
    start = None if values[2] is None else Lsn.parse(values[2])
    change_range, columns = opened(session, values[0], values[1], (start, Lsn.parse(values[3])))
    own = [
        PlanColumn(column.name, TypeRef(column.type_oid, column.typmod, column.collation), analyser.key(column.name)) for column in columns
    ]
    head = [PlanColumn(name, _type(oid), analyser.key(name)) for (name, _), oid in zip(HEAD, _HEAD_TYPES, strict=True)]
    fields = tuple(registry.Attribute(column.name, column.type_oid, column.typmod) for column in columns)
    old = PlanColumn(OLD, TypeRef(registry.RECORD), analyser.key(OLD), attributes=fields)
    return ChangeScan(session, change_range, (*head, *own, old))


def _type(oid: int) -> TypeRef:
    return TypeRef(oid, -1, registry.builtin().by_oid(oid).collation)


def _typed_arguments(call: pb.FuncCall) -> pb.SelectStmt:
    """Return a query of the arguments with their types, in the order of `_ARGUMENTS`. Raise 42883 if they do not match the signature."""
    arguments: dict[str, pb.Node] = {}
    for place, argument in enumerate(call.args):
        inner = unwrap(argument)
        named = inner.DESCRIPTOR.name == "NamedArgExpr"
        name = inner.name if named else _ARGUMENTS[place] if place < len(_ARGUMENTS) else ""
        if name not in _ARGUMENTS or name in arguments:
            arguments.clear()
            break
        arguments[name] = inner.arg if named else argument
    if set(arguments) != set(_ARGUMENTS):
        text = f"function {OWN_SCHEMA}.{NAME} does not exist with these arguments"
        hint = f"Its arguments are {', '.join(_ARGUMENTS)}."
        raise PostgresError("42883", text, hint=hint, location=call.location)
    query = grammar.parse("SELECT NULL::text, NULL::text, NULL::pg_lsn, NULL::pg_lsn").stmts[0].stmt.select_stmt
    for target, name in zip(query.target_list, _ARGUMENTS, strict=True):
        target.res_target.val.type_cast.arg.CopyFrom(arguments[name])
    return query


def _values(query: pb.SelectStmt, session: Session) -> list[str | None]:
    """Evaluate the arguments, which cannot reference a row, and return them as text."""
    tree = pb.ParseResult()
    tree.stmts.add().stmt.select_stmt.CopyFrom(query)
    [statement] = parse(grammar.deparse(tree))
    result = session.parts.run_statement(statement.node, session)
    assert isinstance(result, ResultSet)
    [batch] = [batch for batch in result.batches if batch.num_rows]
    return [column[0].as_py() for column in batch.columns]


def _describe_arguments(query: pb.SelectStmt, call: pb.FuncCall, analyser: Analyser, session: Session) -> list[str | None]:
    """Return the arguments of a call that is only described. LSNs that are parameters become the end of the log.

    The types of the parameters are inferred in place. A call whose range has other columns fails when it is executed (`check_unchanged`).
    """
    has_parameters = []
    for target in query.target_list:
        has_parameters.append(any(descendant.DESCRIPTOR.name == "ParamRef" for descendant in walk(target)))
        binder.bind_raw(target.res_target.val, EMPTY, analyser.context)
    if any(has_parameters[:2]):
        detail = "The columns depend on the publication and the relation."
        message = "publication and relation of headgate.changes must not be parameters"
        raise not_supported(message, detail=detail, location=call.location)
    if any(has_parameters):
        for target, value in zip(query.target_list[2:], (None, session.parts.engine.log.end), strict=True):
            constant = pb.A_Const(isnull=True) if value is None else pb.A_Const(sval=pb.String(sval=str(value)))
            target.res_target.val.type_cast.arg.CopyFrom(pb.Node(a_const=constant))
    return _values(query, session)


def plan(planner: Planner, scanned: ChangeScan) -> Plan:
    """Return the rows of a call, which Spark reads."""
    keys = [column.key for column in scanned.columns]
    batches = (pa.RecordBatch.from_arrays(as_stored(batch, scanned.columns), names=keys) for batch in scanned.batches())
    first = [next(batches)] if not planner.describing else [_stored_nothing(scanned, keys)]
    for batch in batches if not planner.describing else ():
        first.append(batch)
        if sum(batch.num_rows for batch in first) > SMALL_ROWS:
            return Plan(_spool(planner, first, batches), scanned.columns)
    return Plan(local_frame(planner.session_spark, pa.Table.from_batches(first)), scanned.columns)


def _stored_nothing(scanned: ChangeScan, keys: Sequence[str]) -> pa.RecordBatch:
    nothing = next(scanned.range.batches())
    return pa.RecordBatch.from_arrays(as_stored(nothing, scanned.columns), names=list(keys))


def _spool(planner: Planner, first: Sequence[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> DataFrame:
    """Write the rows to a file that is removed with the transaction and return its frame.

    If the node is killed, startup removes the file.
    """
    place = planner.transaction.storage.exchange / f"changes-{uuid.uuid4()}"
    weakref.finalize(planner.transaction, data_location.remove_tree, place)
    data_location.make_folder(place)
    with data_location.written(place / "rows.parquet", is_cached=False) as file, pq.ParquetWriter(file, first[0].schema) as writer:
        for batch in first:
            writer.write_batch(batch)
        for batch in rest:
            writer.write_batch(batch)
    return planner.session_spark.read.parquet(data_location.uri(place))


def as_stored(batch: pa.RecordBatch, columns: Sequence[PlanColumn]) -> list[pa.Array]:
    """Return the columns in stored form, with the old row as the text of a record."""
    old = batch.column(batch.num_columns - 1)
    fields = [
        write_text(buffers.field(old, field.name), column.type.oid) for field, column in zip(old.type, columns[len(HEAD) : -1], strict=True)
    ]
    return [*batch.columns[:-1], record.joined(fields, old.is_valid())]
