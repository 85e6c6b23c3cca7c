"""The elements of CREATE SCHEMA s CREATE TABLE … CREATE VIEW … GRANT …, which are created in the new schema, by its owner.

Called by `schema`, as PostgreSQL's transformCreateSchemaStmtElements: regardless of their order in the statement, sequences are created
first, then tables, views, indexes and grants, so that each finds the objects that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from postgast import pg_query_pb2 as pb

from headgate.catalog.session import SessionContext
from headgate.commands import privilege
from headgate.commands.result import CommandResult
from headgate.commands.role import grant
from headgate.commands.sequence import sequence
from headgate.commands.session import Session
from headgate.commands.table import index, table
from headgate.commands.view import view
from headgate.errors import PostgresError, not_supported
from headgate.sql.parser import ParseNode, unwrap

_KINDS: dict[str, tuple[str | None, Callable[[ParseNode, Session], CommandResult]]] = {
    "CreateSeqStmt": ("sequence", sequence.create_sequence),
    "CreateStmt": ("relation", table.create),
    "ViewStmt": ("view", view.create),
    "IndexStmt": ("relation", index.create),
    "GrantStmt": (None, grant.grant),
}
"""The elements in the order of their creation, with the field that names the relation and the function that creates it."""


def check(elements: Iterable[pb.Node], schema: str) -> None:
    """Raise 42P15 for an element that names another schema, 0A000 for one that a node cannot create."""
    for element in map(unwrap, elements):
        kind = element.DESCRIPTOR.name
        if kind not in _KINDS:
            raise not_supported("CREATE SCHEMA with triggers is not supported")
        field, _ = _KINDS[kind]
        schema_name = "" if field is None else getattr(element, field).schemaname
        if schema_name not in ("", schema):
            raise PostgresError("42P15", f"CREATE specifies a schema ({schema_name}) different from the one being created ({schema})")


def make(elements: Iterable[pb.Node], session: Session, schema: str, owner: str, owner_oid: int) -> None:
    order = list(_KINDS)
    superuser = privilege.is_superuser(session.begin_statement().cursor, owner)
    with _inside(session.context, schema, owner, owner_oid, superuser=superuser):
        for element in sorted(map(unwrap, elements), key=lambda element_node: order.index(element_node.DESCRIPTOR.name)):
            field, action = _KINDS[element.DESCRIPTOR.name]
            if field is not None:
                getattr(element, field).schemaname = schema
            action(element, session)


@contextmanager
def _inside(context: SessionContext, schema: str, owner: str, owner_oid: int, *, superuser: bool) -> Iterator[None]:
    """Put the schema first in the search_path, and make its owner the current user."""
    saved = context.search_path, context.user, context.user_oid, context.superuser
    context.search_path = [schema, *context.search_path]
    context.user, context.user_oid, context.superuser = owner, owner_oid, superuser
    try:
        yield
    finally:
        context.search_path, context.user, context.user_oid, context.superuser = saved
