"""READ ONLY transactions: which statements they refuse (manual, SET TRANSACTION).

`check` is asked for every statement before it runs, `check_function` for nextval and setval. DDL is refused, of temporary objects too;
INSERT, UPDATE, DELETE, MERGE, COPY FROM and row locks are, unless each table that they name is temporary. What is wrong in such a statement
itself is told first, as PostgreSQL analyses a statement before it looks at the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import lookup
from headgate.errors import PostgresError
from headgate.sql import command_tag
from headgate.sql.parser import ParseNode, unwrap, walk

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Relation
    from headgate.commands.session import Session

_ALLOWED = {"CheckPointStmt", "ConstraintsSetStmt", "DeclareCursorStmt", "ExplainStmt", "NotifyStmt", "ReindexStmt", "VacuumStmt"}
_WRITING = {"InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"}


def check(node: ParseNode, session: Session, analyse: Callable[[ParseNode], object]) -> None:
    """25006 where the transaction is READ ONLY and the statement is not; `analyse` raises what is wrong with it otherwise, before that."""
    if not session.read_only:
        return
    kind = node.DESCRIPTOR.name
    if kind in _ALLOWED or (kind == "CopyStmt" and not (node.is_from or node.HasField("query"))):
        return
    if kind == "CopyStmt" and node.is_from:
        if _is_permanent(lookup.target(session.begin_statement().cursor, session.context, node.relation)):
            raise _refused("COPY FROM")
        return
    statement = unwrap(node.query) if kind == "CopyStmt" else node
    if statement.DESCRIPTOR.name not in (*_WRITING, "SelectStmt") or command_tag.of(statement) == "SELECT INTO":
        raise _refused(command_tag.of(node))
    named = list(_written(statement, session))
    if any(_is_permanent(each) for each in named):
        if all(each.kind != RelationKind.VIEW for each in named):
            analyse(statement)
        raise _refused(_executed(statement))


def check_function(name: str, sequence: Relation, *, read_only: bool) -> None:
    """25006 for a function that changes a sequence in a READ ONLY transaction."""
    if read_only and _is_permanent(sequence):
        raise _refused(f"{name}()")


def _refused(command: str) -> PostgresError:
    return PostgresError("25006", f"cannot execute {command} in a read-only transaction")


def _is_permanent(relation: Relation) -> bool:
    return relation.persistence != "t"


def _executed(statement: ParseNode) -> str:
    """The command as the executor calls it: a query inside the statement may lock rows."""
    if statement.DESCRIPTOR.name != "SelectStmt":
        return command_tag.of(statement)
    tags = (command_tag.of(each) for each in walk(statement) if each.DESCRIPTOR.name == "SelectStmt")
    return next((each for each in tags if each != "SELECT"), "SELECT")


def _written(statement: pb.SelectStmt, session: Session) -> Iterator[Relation]:
    """The relations that a statement writes to or locks rows of, those in its WITH clause and its subqueries too."""
    cursor, context = session.begin_statement().cursor, session.context
    own = {unwrap(cte).ctename for each in walk(statement) if each.DESCRIPTOR.name == "WithClause" for cte in each.ctes}
    for each in walk(statement):
        if each.DESCRIPTOR.name in _WRITING:
            yield lookup.source(cursor, context, each.relation)
        elif each.DESCRIPTOR.name == "SelectStmt" and each.locking_clause:
            chosen = {unwrap(name).relname for clause in each.locking_clause for name in unwrap(clause).locked_rels}
            for item in (inner for entry in each.from_clause for inner in walk(entry)):
                named = item.DESCRIPTOR.name == "RangeVar" and not (item.relname in own and not item.schemaname)
                if named and (not chosen or (item.alias.aliasname or item.relname) in chosen):
                    yield lookup.source(cursor, context, item)
