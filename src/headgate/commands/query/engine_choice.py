"""Who answers a query: the catalog, in its own SQL, or Spark, through the planner.

Called by `select` for a query that is run or described, by `planner` for the query of a view that is read, and by
`commands.view.view` for one that is made. What must hold: one query goes one way, whether it is run, described, explained or stands in a
view.

Expressions have one meaning, that of `headgate.expression`; the catalog's SQL is near to it for what catalogs hold, no more. So:

    reads a user's or transition table, or published changes         Spark
    reads system relations only                                      the catalog, unless it refuses (0A000) what Spark has
    reads nothing, calls a function that acts or names regclass      the catalog, unless it does not know the function
    reads nothing else                                               Spark, unless only the catalog has a function or type of it
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import duckdb
from postgast import pg_query_pb2 as pb

from headgate.commands.query import change_scan
from headgate.commands.query.catalog import query as catalog_query
from headgate.commands.query.catalog import volatile_function
from headgate.commands.query.plan import Plan
from headgate.commands.session import Session
from headgate.errors import PostgresError, causes
from headgate.expression.duckdb.value import REGISTERED
from headgate.sql.names import strings
from headgate.sql.parser import ParseNode, walk
from headgate.types import registry

T = TypeVar("T")
_UNKNOWN = ("0A000", "42883")
_REGISTERED = frozenset(registry.format_type(each) for each in REGISTERED)


def find(node: pb.SelectStmt, session: Session, planned: Callable[[], Plan]) -> tuple[bool, Plan | None]:
    """Whether the catalog answers a SelectStmt; if not, its plan, where `planned` had to make it to know."""
    if (
        change_scan.is_in(node)
        or reads_transition_table(node, session)
        or not catalog_query.uses_catalog_only(node, session.context, session.begin_statement().cursor)
    ):
        return False, None
    if reads_relations(node):
        return True, None
    if any(volatile_function.acts(each, session.functions) or _names_registered(each) for each in walk(node)):
        return _refused(node, session) not in _UNKNOWN, None
    try:
        return False, planned()
    except PostgresError as error:
        if error.sqlstate in _UNKNOWN and not _locks(node) and _refused(node, session) is None:
            return True, None
        raise


def instead(refused: PostgresError, session: Session, planned: Callable[[], T]) -> T:
    """What Spark makes of a query on system relations that the catalog has refused; raises `refused` where Spark has not got it either.

    A refusal that is DuckDB's own came while the query ran, and DuckDB answers nothing more in that transaction.
    """
    if refused.sqlstate != "0A000":
        raise refused
    if _came_while_running(refused) and not session.begin_statement().look_again():
        raise refused
    try:
        return planned()
    except PostgresError as error:
        if error.sqlstate in _UNKNOWN:
            raise refused from error
        raise


def _came_while_running(refused: PostgresError) -> bool:
    return isinstance(next((each for each in causes(refused) if not isinstance(each, PostgresError)), None), duckdb.Error)


def _locks(node: pb.SelectStmt) -> bool:
    """Whether the query locks rows: of that the catalog knows nothing."""
    return any(each.DESCRIPTOR.name == "LockingClause" for each in walk(node))


def reads_relations(node: pb.SelectStmt) -> bool:
    """Whether any relation stands in the query, a system relation too; what FOR UPDATE OF names stands in it elsewhere."""
    relations = locked = 0
    for message in walk(node):
        relations += message.DESCRIPTOR.name == "RangeVar"
        locked += len(message.locked_rels) if message.DESCRIPTOR.name == "LockingClause" else 0
    return relations > locked


def reads_transition_table(query: ParseNode, session: Session) -> bool:
    """Return whether a query may read a transition table of the trigger whose function runs it."""
    tables = session.transition_tables
    return bool(tables) and any(
        each.DESCRIPTOR.name == "RangeVar" and not each.schemaname and each.relname in tables for each in walk(query)
    )


def _names_registered(node: ParseNode) -> bool:
    """Whether a node of the tree names regclass or one of its like, whose values only the catalog can read and print."""
    return node.DESCRIPTOR.name == "TypeName" and bool(node.names) and strings(node.names)[-1] in _REGISTERED


def _refused(node: pb.SelectStmt, session: Session) -> str | None:
    """With what SQLSTATE the catalog refuses the query; None if it takes it."""
    given = tuple(each.type_oid for each in session.parameters)
    try:
        catalog_query.describe(node, session.context, session.begin_statement().cursor, given, session.functions)
    except PostgresError as error:
        return error.sqlstate
    return None
