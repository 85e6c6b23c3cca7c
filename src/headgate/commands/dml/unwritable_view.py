"""Refuse INSERT, UPDATE and DELETE of a view, with PostgreSQL's error if it refuses them too (rewriteHandler.c)."""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import view as views
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.sql import names
from headgate.sql.parser import kind as kind_of
from headgate.sql.parser import parse, unwrap, walk
from headgate.types import registry

_DOING = {
    "INSERT": ("inserting into", "an INSTEAD OF INSERT trigger or an unconditional ON INSERT DO INSTEAD rule"),
    "UPDATE": ("updating", "an INSTEAD OF UPDATE trigger or an unconditional ON UPDATE DO INSTEAD rule"),
    "DELETE": ("deleting from", "an INSTEAD OF DELETE trigger or an unconditional ON DELETE DO INSTEAD rule"),
}


def not_writable(cursor: Cursor, relation: Relation, doing: str, right: str, *, current: bool) -> PostgresError:
    """Return the error of a write to a view: PostgreSQL's if it refuses the write (`current`: WHERE CURRENT OF), otherwise 0A000."""
    if relation.oid < registry.FIRST_USER_OID:
        return PostgresError("55000", f'cannot {doing} view "{relation.name}"')
    [statement] = parse(views.query(cursor, relation.database, relation.oid))
    reason = _why_not_updatable(statement.node)
    if reason is None and current:
        return PostgresError("0A000", "WHERE CURRENT OF on a view is not implemented")
    if reason is None:
        return not_supported(f'writing through view "{relation.name}" is not supported', hint="Write to the table that the view reads.")
    word, means = _DOING[right]
    return PostgresError(
        "55000", f'cannot {doing} view "{relation.name}"', detail=reason, hint=f"To enable {word} the view, provide {means}."
    )


def _why_not_updatable(select: pb.SelectStmt) -> str | None:
    """Return the reason why a view is not updatable, or None (view_query_is_auto_updatable)."""
    for is_present, what in (
        (select.distinct_clause, "containing DISTINCT"),
        (select.group_clause, "containing GROUP BY"),
        (select.HasField("having_clause"), "containing HAVING"),
        (select.op != pb.SETOP_NONE, "containing UNION, INTERSECT, or EXCEPT"),
        (select.HasField("with_clause"), "containing WITH"),
        (select.HasField("limit_count") or select.HasField("limit_offset"), "containing LIMIT or OFFSET"),
    ):
        if is_present:
            return f"Views {what} are not automatically updatable."
    calls = [node for node in walk(select) if kind_of(node) == "FuncCall"]
    if any(call.HasField("over") for call in calls):
        return "Views that return window functions are not automatically updatable."
    functions = builtin.builtins().functions_named
    if any(
        call.agg_star or any(function.kind == "a" for function in functions.get(names.strings(call.funcname)[-1], ())) for call in calls
    ):
        return "Views that return aggregate functions are not automatically updatable."
    if len(select.from_clause) != 1 or unwrap(select.from_clause[0]).DESCRIPTOR.name != "RangeVar":
        return "Views that do not select from a single table or view are not automatically updatable."
    return None
