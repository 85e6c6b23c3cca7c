"""VACUUM, ANALYZE, REINDEX.

ANALYZE does nothing, because Spark plans by Delta's statistics. VACUUM lets the storage remove files that no reader can need any more. All
of them check their tables' names and privileges as PostgreSQL does.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.catalog import database as databases
from headgate.catalog import namespace
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup, privilege
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql import names
from headgate.sql.options import Option, options
from headgate.sql.parser import ParseNode, unwrap

_OF_ANALYZE = frozenset({"verbose", "skip_locked"})
_OF_VACUUM = _OF_ANALYZE | {
    "analyze", "freeze", "full", "disable_page_skipping", "index_cleanup", "process_toast", "truncate", "parallel",
}  # fmt: skip
_OF_REINDEX = frozenset({"verbose", "concurrently", "tablespace"})
_MOST_WORKERS = 1024


def vacuum(node: ParseNode, session: Session) -> CommandResult:
    word = "VACUUM" if node.is_vacuumcmd else "ANALYZE"
    chosen = _vacuum_options(node, word)
    if node.is_vacuumcmd and not chosen.get("analyze") and any(unwrap(item).va_cols for item in node.rels):
        raise PostgresError("0A000", "ANALYZE option must be specified when a column list is provided")
    if node.is_vacuumcmd:
        session.prevent_in_block("VACUUM")
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    for item in node.rels:
        relation = lookup.target(cursor, context, unwrap(item).relation)
        if relation.kind not in TABLE_KINDS | {RelationKind.MATERIALIZED_VIEW}:
            session.notices.warning(f'skipping "{relation.name}" --- cannot vacuum non-tables or special system tables')
        elif not privilege.owns(cursor, context.user, relation.owner):
            session.notices.warning(f'skipping "{relation.name}" --- only table or database owner can {word.lower()} it')
        else:
            _check_columns(relation, names.strings(unwrap(item).va_cols))
    if node.is_vacuumcmd:
        transaction.storage.clean()
    return CommandResult(word)


def _vacuum_options(node: ParseNode, word: str) -> dict[str, bool]:
    """Return the options of VACUUM or ANALYZE that are on. Raise 42601 and 0A000 as ExecVacuum does (vacuum.c)."""
    known_options = _OF_VACUUM if node.is_vacuumcmd else _OF_ANALYZE
    chosen: dict[str, bool] = {}
    for option in options(node.options):
        if option.name not in known_options:
            raise PostgresError("42601", f'unrecognized {word} option "{option.name}"', location=option.location)
        if option.name == "parallel":
            chosen["parallel"] = _workers(option) > 0
        elif option.name == "index_cleanup" and (option.value or "auto").lower() == "auto":
            continue
        else:
            chosen[option.name] = option.boolean()
    if chosen.get("full") and chosen.get("parallel"):
        raise PostgresError("0A000", "VACUUM FULL cannot be performed in parallel")
    if chosen.get("full") and chosen.get("disable_page_skipping"):
        raise PostgresError("0A000", "VACUUM option DISABLE_PAGE_SKIPPING cannot be used with FULL")
    return chosen


def _workers(option: Option) -> int:
    if option.value is None:
        raise PostgresError("42601", f"parallel option requires a value between 0 and {_MOST_WORKERS}", location=option.location)
    if not 0 <= option.integer() <= _MOST_WORKERS:
        raise PostgresError("42601", f"parallel workers for vacuum must be between 0 and {_MOST_WORKERS}", location=option.location)
    return option.integer()


def _check_columns(relation: Relation, columns: Sequence[str]) -> None:
    """Raise 42703 or 42701 for a column of ANALYZE that the table does not have, or that is named twice."""
    for index, name in enumerate(columns):
        relation.existing_column(name)
        if name in columns[:index]:
            raise PostgresError("42701", f'column "{name}" of relation "{relation.name}" appears more than once')


def reindex(node: ParseNode, session: Session) -> CommandResult:
    """Execute REINDEX, which does nothing because indexes hold no data."""
    for option in options(node.params):
        if option.name not in _OF_REINDEX:
            raise PostgresError("42601", f'unrecognized REINDEX option "{option.name}"', location=option.location)
        if option.name != "tablespace":
            option.boolean()
    transaction = session.begin_statement()
    cursor, context = transaction.cursor, session.context
    if node.HasField("relation"):
        relation = lookup.target(cursor, context, node.relation)
        kind = "index" if node.kind == pb.REINDEX_OBJECT_INDEX else "table"
        privilege.check_owner(cursor, context.user, relation.owner, kind, relation.name)
        return CommandResult("REINDEX")
    if node.kind == pb.REINDEX_OBJECT_SCHEMA:
        schema = namespace.get(cursor, context.database, node.name)
        privilege.check_owner_of_schema(cursor, context.user, context.database, schema)
        return CommandResult("REINDEX")
    if node.name and node.name != context.database_name:
        raise PostgresError("0A000", "can only reindex the currently open database")
    database = databases.get(cursor, context.database_name)
    privilege.check_owner(cursor, context.user, database.owner, "database", database.name)
    return CommandResult("REINDEX")
