"""READ ONLY transactions: the statements that they reject (manual, SET TRANSACTION).

`check` is called for every statement before it runs, `check_function` for nextval and setval. DDL is rejected, also of temporary objects.
INSERT, UPDATE, DELETE, MERGE, COPY FROM and row locks are rejected unless all tables that they write or lock are temporary. Other errors of
such a statement come first, because PostgreSQL analyses a statement before it checks the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import lookup
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql import command_tag
from headgate.sql.parser import ParseNode, unwrap, walk

_ALLOWED = {
    "CheckPointStmt", "ConstraintsSetStmt", "DeclareCursorStmt", "ExplainStmt", "NotifyStmt", "ReindexStmt", "VacuumStmt",
    "CallStmt", "DoStmt",  # the statements that the body runs are checked
}  # fmt: skip
_WRITING = {"InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"}


def check(node: ParseNode, session: Session, analyse: Callable[[ParseNode], object]) -> None:
    """Raise 25006 if the transaction is READ ONLY and the statement writes. Before that, `analyse` raises other errors of the statement."""
    if not session.read_only:
        return
    kind = node.DESCRIPTOR.name
    if kind in _ALLOWED or (kind == "CopyStmt" and not (node.is_from or node.HasField("query"))):
        return
    if kind == "CopyStmt" and node.is_from:
        if _is_permanent(lookup.target(session.begin_statement().cursor, session.context, node.relation)):
            raise _refusal("COPY FROM")
        return
    statement = unwrap(node.query) if kind == "CopyStmt" else node
    if statement.DESCRIPTOR.name not in (*_WRITING, "SelectStmt") or command_tag.of(statement) == "SELECT INTO":
        raise _refusal(command_tag.of(node))
    relations = list(_written_relations(statement, session))
    if any(_is_permanent(relation) for relation in relations):
        if all(relation.kind != RelationKind.VIEW for relation in relations):
            analyse(statement)
        raise _refusal(_executor_tag(statement))


def check_function(name: str, sequence: Relation, *, read_only: bool) -> None:
    """Raise 25006 for a function that changes a permanent sequence in a READ ONLY transaction."""
    if read_only and _is_permanent(sequence):
        raise _refusal(f"{name}()")


def _refusal(command: str) -> PostgresError:
    return PostgresError("25006", f"cannot execute {command} in a read-only transaction")


def _is_permanent(relation: Relation) -> bool:
    return relation.persistence != "t"


def _executor_tag(statement: ParseNode) -> str:
    """Return the command tag that the executor reports: a query inside the statement may lock rows."""
    if statement.DESCRIPTOR.name != "SelectStmt":
        return command_tag.of(statement)
    tags = (command_tag.of(node) for node in walk(statement) if node.DESCRIPTOR.name == "SelectStmt")
    return next((tag for tag in tags if tag != "SELECT"), "SELECT")


def _written_relations(statement: pb.SelectStmt, session: Session) -> Iterator[Relation]:
    """Yield the relations that a statement writes or whose rows it locks, also in its WITH clause and subqueries."""
    cursor, context = session.begin_statement().cursor, session.context
    own = {unwrap(cte).ctename for node in walk(statement) if node.DESCRIPTOR.name == "WithClause" for cte in node.ctes}
    for node in walk(statement):
        if node.DESCRIPTOR.name in _WRITING:
            yield lookup.source(cursor, context, node.relation)
        elif node.DESCRIPTOR.name == "SelectStmt" and node.locking_clause:
            chosen = {unwrap(name).relname for clause in node.locking_clause for name in unwrap(clause).locked_rels}
            for item in (inner for entry in node.from_clause for inner in walk(entry)):
                is_relation = item.DESCRIPTOR.name == "RangeVar" and not (item.relname in own and not item.schemaname)
                if is_relation and (not chosen or (item.alias.aliasname or item.relname) in chosen):
                    yield lookup.source(cursor, context, item)
