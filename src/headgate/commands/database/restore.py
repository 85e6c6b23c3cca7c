"""`SET headgate.restore = on`: a schema that pg_dump wrote comes in, and what a replica does not need is let go with a WARNING.

Called by `execute` for each statement of such a session. Whatever defines something and fails is let go, but for a table: it is made with
what can be had of it, columns of unknown types as text. A WARNING and no NOTICE, as pg_dump's scripts switch those off. What must hold:
statements that read or change rows fail as ever, a table is made or its error is raised, and nothing is let go without being told.
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
"""Statements that are no part of a schema: nothing of them is let go."""


def is_wanted(node: ParseNode, session: Session) -> bool:
    """Whether a statement is one of a schema that is restored."""
    if node.DESCRIPTOR.name in _ROWS:
        return False
    try:
        return read_bool(session.settings.text(SETTING)) is True
    except (PostgresError, KeyError):
        return False


def run(node: ParseNode, session: Session, action: Callable[[], Result]) -> Result:
    """Runs a statement, or lets it go."""
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
    done = CommandResult("CREATE TABLE")
    first = attempt(session, [node])
    if first is None:
        return done
    lacking: list[str] = []
    made = pb.CreateStmt()
    made.CopyFrom(node)
    if node.inh_relations and not node.HasField("partbound"):
        parents = [pb.Node(table_like_clause=pb.TableLikeClause(relation=unwrap(each))) for each in node.inh_relations]
        del made.inh_relations[:]
        lacking.append("It inherits nothing here, and has its parents' columns.")
    else:
        parents = []
    columns = _columns(made, session, lacking)
    del made.table_elts[:]
    made.table_elts.extend([*parents, *columns])
    error = attempt(session, [made])
    if error is not None and made.HasField("partspec"):
        made.ClearField("partspec")
        lacking.append("It is not partitioned here.")
        error = attempt(session, [made])
    if error is not None:
        raise first
    session.notices.warning(f'table "{node.relation.relname}" is made with what a node can have of it', detail="\n".join(lacking))
    return done


def _columns(node: pb.CreateStmt, session: Session, lacking: list[str]) -> list[pb.Node]:
    """The columns and constraints that a node takes."""
    plain: list[pb.Node] = []
    for each in node.table_elts:
        column = unwrap(each)
        if column.DESCRIPTOR.name == "ColumnDef" and column.HasField("type_name"):
            if not _is_known(column.type_name, session):
                shown = ".".join(names.strings(column.type_name.names)) + ("[]" if column.type_name.array_bounds else "")
                column.type_name.CopyFrom(statement.type_name("pg_catalog", "text"))
                lacking.append(f'Column "{column.colname}" of type {shown} is text here.')
            plain.append(statement.column(column.colname, column.type_name, [c for c in column.constraints if _is_plain(unwrap(c))]))
    kept = []
    for each in node.table_elts:
        element = unwrap(each)
        if element.DESCRIPTOR.name != "ColumnDef" or not element.HasField("type_name"):
            if element.DESCRIPTOR.name != "Constraint" or _is_read([*plain, each], node, session):
                kept.append(each)
            else:
                lacking.append(f'Constraint "{element.conname}" is let go.')
            continue
        generated = any(unwrap(c).contype == pb.CONSTR_GENERATED for c in element.constraints)
        bare = next(one for one in plain if one.column_def.colname == element.colname)
        others = [one for one in plain if one is not bare]
        if _is_read([*others, each], node, session):
            kept.append(each)
        elif generated:
            lacking.append(f'Generated column "{element.colname}" is left out: its expression is not known here.')
        else:
            kept.append(bare)
            lacking.append(f'Column "{element.colname}" has no default and no CHECK here.')
    return kept


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
