"""`SET headgate.restore = on`: restore a schema from a pg_dump script, and skip what a replica does not need with a WARNING.

Called by `execute` for each statement of such a session. A statement that defines something and fails is skipped, except CREATE TABLE. The
table is created as far as possible, with columns of unknown types as text. Messages are WARNINGs, because scripts of pg_dump suppress
NOTICEs. Invariant: statements that read or change rows fail as usual, a table is created or its error is raised, and nothing is
skipped silently.
"""

from __future__ import annotations

from collections.abc import Callable

from postgast import pg_query_pb2 as pb

from headgate.commands.result import CommandResult, Result
from headgate.commands.session import Session
from headgate.commands.table import table_definition
from headgate.commands.transaction.subtransaction import attempt
from headgate.errors import PostgresError
from headgate.settings.definition import read_bool
from headgate.sql import command_tag, names, statement
from headgate.sql.parser import ParseNode, unwrap

SETTING = "headgate.restore"
_ROWS = frozenset({
    "SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "CopyStmt", "ExplainStmt", "VacuumStmt", "CreatedbStmt",
    "DropdbStmt", "CreateSubscriptionStmt", "AlterSubscriptionStmt", "DropSubscriptionStmt", "ConstraintsSetStmt",
})  # fmt: skip
"""Statements that do not belong to a schema. They are never skipped."""


def is_wanted(node: ParseNode, session: Session) -> bool:
    """Return whether a statement belongs to a schema that is being restored."""
    if node.DESCRIPTOR.name in _ROWS:
        return False
    try:
        return read_bool(session.settings.text(SETTING)) is True
    except (PostgresError, KeyError):
        return False


def run(node: ParseNode, session: Session, action: Callable[[], Result]) -> Result:
    """Execute a statement, or skip it if it fails."""
    if node.DESCRIPTOR.name == "CreateStmt":
        return _create_table(node, session)
    results: list[Result] = []
    error = attempt(session, [node], lambda _: results.append(action()))
    if error is None:
        return results[0]
    tag = command_tag.of(node)
    session.notices.warning(f"{tag} is let go: {error.message}", sqlstate=error.sqlstate, detail=error.detail)
    return CommandResult(tag)


def _create_table(node: pb.CreateStmt, session: Session) -> CommandResult:
    result = CommandResult("CREATE TABLE")
    first = attempt(session, [node])
    if first is None:
        return result
    missing: list[str] = []
    reduced = pb.CreateStmt()
    reduced.CopyFrom(node)
    if node.inh_relations and not node.HasField("partbound"):
        parents = [pb.Node(table_like_clause=pb.TableLikeClause(relation=unwrap(parent))) for parent in node.inh_relations]
        del reduced.inh_relations[:]
        missing.append("It inherits nothing here, and has its parents' columns.")
    else:
        parents = []
    columns = _columns(reduced, session, missing)
    del reduced.table_elts[:]
    reduced.table_elts.extend([*parents, *columns])
    error = attempt(session, [reduced])
    if error is not None and reduced.HasField("partspec"):
        reduced.ClearField("partspec")
        missing.append("It is not partitioned here.")
        error = attempt(session, [reduced])
    if error is not None:
        raise first
    session.notices.warning(f'table "{node.relation.relname}" is created with the parts that a node supports', detail="\n".join(missing))
    return result


def _columns(node: pb.CreateStmt, session: Session, lacking: list[str]) -> list[pb.Node]:
    plain_columns: list[pb.Node] = []
    for element_node in node.table_elts:
        column = unwrap(element_node)
        if column.DESCRIPTOR.name == "ColumnDef" and column.HasField("type_name"):
            if not _is_known(column.type_name, session):
                type_text = ".".join(names.strings(column.type_name.names)) + ("[]" if column.type_name.array_bounds else "")
                column.type_name.CopyFrom(statement.type_name("pg_catalog", "text"))
                lacking.append(f'Column "{column.colname}" of type {type_text} is text here.')
            plain_columns.append(
                statement.column(
                    column.colname, column.type_name, [constraint for constraint in column.constraints if _is_plain(unwrap(constraint))]
                )
            )
    kept_elements = []
    for element_node in node.table_elts:
        element = unwrap(element_node)
        if element.DESCRIPTOR.name != "ColumnDef" or not element.HasField("type_name"):
            if element.DESCRIPTOR.name != "Constraint" or _is_read([*plain_columns, element_node], node, session):
                kept_elements.append(element_node)
            else:
                lacking.append(f'Constraint "{element.conname}" is let go.')
            continue
        generated = any(unwrap(constraint).contype == pb.CONSTR_GENERATED for constraint in element.constraints)
        plain_column = next(candidate for candidate in plain_columns if candidate.column_def.colname == element.colname)
        other_columns = [candidate for candidate in plain_columns if candidate is not plain_column]
        if _is_read([*other_columns, element_node], node, session):
            kept_elements.append(element_node)
        elif generated:
            lacking.append(f'Generated column "{element.colname}" is omitted: its expression is not supported here.')
        else:
            kept_elements.append(plain_column)
            lacking.append(f'Column "{element.colname}" has no default and no CHECK here.')
    return kept_elements


def _is_plain(constraint: pb.Constraint) -> bool:
    return constraint.contype in (pb.CONSTR_NOTNULL, pb.CONSTR_NULL, pb.CONSTR_PRIMARY, pb.CONSTR_UNIQUE, pb.CONSTR_IDENTITY)


def _is_known(kind: ParseNode, session: Session) -> bool:
    element = statement.column("a", kind)
    cursor, context = session.begin_statement().cursor, session.context
    try:
        table_definition.read([element], "t", cursor, context.database, context.forms)
    except PostgresError:
        return False
    return True


def _is_read(elements: list[pb.Node], node: pb.CreateStmt, session: Session) -> bool:
    cursor, context = session.begin_statement().cursor, session.context
    try:
        table_definition.read(elements, node.relation.relname, cursor, context.database, context.forms)
    except PostgresError:
        return False
    return True
