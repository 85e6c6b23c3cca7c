"""Choose the engine of a query: the catalog (DuckDB SQL), or the planner's, which is the driver or Spark.

`select` calls this module for a query that is run or described, `planner` for the query of a view that is read, and `commands.view.view`
for a view that is created. A query must use the same engine whether it is run, described, explained or part of a view.

Expressions are defined by `headgate.expression`. The catalog's SQL matches it closely enough only for the data in catalogs. The rules:

    reads a user's or transition table, or published changes         Spark
    reads system relations only                                      the catalog, or Spark if only the catalog rejects it (0A000)
    reads nothing, calls a function that acts or names regclass      the catalog, unless it does not know the function
    reads nothing else                                               Spark, unless only the catalog has the function or type
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import duckdb
from postgast import pg_query_pb2 as pb

from headgate.commands.query import change_scan
from headgate.commands.query.catalog import query as catalog_query
from headgate.commands.query.catalog import volatile_function
from headgate.commands.session import Session
from headgate.errors import PostgresError, causes
from headgate.expression.duckdb.value import REGISTERED
from headgate.sql.names import strings
from headgate.sql.parser import ParseNode, walk
from headgate.types import registry

T = TypeVar("T")
_UNKNOWN = ("0A000", "42883")
_REGISTERED = frozenset(registry.format_type(type_oid) for type_oid in REGISTERED)


def find(node: pb.SelectStmt, session: Session, planned: Callable[[], T]) -> tuple[bool, T | None]:
    """Return whether the catalog answers a SELECT, and the value of `planned` if it had to be called and the catalog does not answer."""
    if (
        change_scan.is_in(node)
        or reads_transition_table(node, session)
        or not catalog_query.uses_catalog_only(node, session.context, session.begin_statement().cursor)
    ):
        return False, None
    if reads_relations(node):
        return True, None
    if any(volatile_function.acts(descendant, session.functions) or _names_registered(descendant) for descendant in walk(node)):
        return _refused(node, session) not in _UNKNOWN, None
    try:
        return False, planned()
    except PostgresError as error:
        if error.sqlstate in _UNKNOWN and not _locks(node) and _refused(node, session) is None:
            return True, None
        raise


def instead(refused: PostgresError, session: Session, planned: Callable[[], T]) -> T:
    """Return Spark's plan of a query that the catalog has rejected. Raise `refused` again if Spark does not support the query either.

    If DuckDB itself failed while the query ran, its transaction is aborted and has to be reopened first.
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
    return isinstance(next((cause for cause in causes(refused) if not isinstance(cause, PostgresError)), None), duckdb.Error)


def _locks(node: pb.SelectStmt) -> bool:
    """Return whether the query has a locking clause, which the catalog ignores."""
    return any(descendant.DESCRIPTOR.name == "LockingClause" for descendant in walk(node))


def reads_relations(node: pb.SelectStmt) -> bool:
    """Return whether the query reads a relation, system relations included. The names in FOR UPDATE OF do not count."""
    relations = locked = 0
    for message in walk(node):
        relations += message.DESCRIPTOR.name == "RangeVar"
        locked += len(message.locked_rels) if message.DESCRIPTOR.name == "LockingClause" else 0
    return relations > locked


def reads_transition_table(query: ParseNode, session: Session) -> bool:
    """Return whether a query may read a transition table of the trigger whose function runs it."""
    tables = session.transition_tables
    return bool(tables) and any(
        descendant.DESCRIPTOR.name == "RangeVar" and not descendant.schemaname and descendant.relname in tables
        for descendant in walk(query)
    )


def _names_registered(node: ParseNode) -> bool:
    """Return whether a node names regclass or a similar type, whose values only the catalog can read and print."""
    return node.DESCRIPTOR.name == "TypeName" and bool(node.names) and strings(node.names)[-1] in _REGISTERED


def _refused(node: pb.SelectStmt, session: Session) -> str | None:
    """Return the SQLSTATE with which the catalog rejects the query, or None if it accepts the query."""
    parameter_types = tuple(parameter.type_oid for parameter in session.parameters)
    try:
        catalog_query.describe(node, session.context, session.begin_statement().cursor, parameter_types, session.functions)
    except PostgresError as error:
        return error.sqlstate
    return None
