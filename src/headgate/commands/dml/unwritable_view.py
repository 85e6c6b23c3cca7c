"""INSERT, UPDATE and DELETE of a view: refused, in PostgreSQL's words where it refuses them too (rewriteHandler.c)."""

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


def not_writable(cursor: Cursor, relation: Relation, doing: str, right: str, *, current: bool = False) -> PostgresError:
    """The error of a write to a view: PostgreSQL's where it refuses that too (`current`: WHERE CURRENT OF), else 0A000."""
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
    """view_query_is_auto_updatable's reason."""
    for found, what in (
        (select.distinct_clause, "containing DISTINCT"),
        (select.group_clause, "containing GROUP BY"),
        (select.HasField("having_clause"), "containing HAVING"),
        (select.op != pb.SETOP_NONE, "containing UNION, INTERSECT, or EXCEPT"),
        (select.HasField("with_clause"), "containing WITH"),
        (select.HasField("limit_count") or select.HasField("limit_offset"), "containing LIMIT or OFFSET"),
    ):
        if found:
            return f"Views {what} are not automatically updatable."
    calls = [each for each in walk(select) if kind_of(each) == "FuncCall"]
    if any(each.HasField("over") for each in calls):
        return "Views that return window functions are not automatically updatable."
    functions = builtin.builtins().functions_named
    if any(each.agg_star or any(one.kind == "a" for one in functions.get(names.strings(each.funcname)[-1], ())) for each in calls):
        return "Views that return aggregate functions are not automatically updatable."
    if len(select.from_clause) != 1 or unwrap(select.from_clause[0]).DESCRIPTOR.name != "RangeVar":
        return "Views that do not select from a single table or view are not automatically updatable."
    return None
