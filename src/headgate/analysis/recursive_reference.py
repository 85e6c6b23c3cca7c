"""Check the references between the queries of WITH RECURSIVE, and find an order in which each query comes after those that it references.

Called by the analyser before it analyses the queries. As in PostgreSQL (parse_cte.c), a query can reference all queries of the clause, and
itself once, in its recursive term.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError, not_supported
from headgate.sql.parser import ParseNode, beginning, children, unwrap

_STATEMENTS = (pb.SelectStmt, pb.InsertStmt, pb.UpdateStmt, pb.DeleteStmt, pb.MergeStmt)
_NULL_SIDES = {pb.JOIN_LEFT: {"rarg"}, pb.JOIN_RIGHT: {"larg"}, pb.JOIN_FULL: {"larg", "rarg"}}


class Reference(NamedTuple):
    """A table name without a schema that no inner WITH clause defines. `place` is empty if a query may reference itself there."""

    node: pb.RangeVar
    place: str


def in_order(clause: pb.WithClause) -> list[tuple[pb.CommonTableExpr, bool]]:
    """Return the queries of a WITH clause in an order for their analysis, each with whether it references itself.

    Raise 42P19 for an invalid recursive reference, 0A000 for queries that reference each other, 42712 for a name that occurs twice.
    """
    queries = [unwrap(item) for item in clause.ctes]
    for place, cte in enumerate(queries):
        if any(cte.ctename == earlier.ctename for earlier in queries[:place]):
            raise PostgresError("42712", f'WITH query name "{cte.ctename}" specified more than once', location=cte.location)
    if not clause.recursive:
        ordered, recursive = queries, set[str]()
    else:
        names = {cte.ctename for cte in queries}
        uses = {cte.ctename: names & {item.node.relname for item in references(unwrap(cte.ctequery))} for cte in queries}
        recursive = {name for name in names if name in uses[name]}
        ordered = _sorted(queries, {name: used - {name} for name, used in uses.items()})
    for cte in ordered:
        if cte.ctename in recursive:
            _check(cte)
        _refuse_search_and_cycle(cte, is_recursive=cte.ctename in recursive)
    return [(cte, cte.ctename in recursive) for cte in ordered]


def _sorted(queries: Sequence[ParseNode], uses: dict[str, set[str]]) -> list[ParseNode]:
    """Return the queries so that each one comes after those that it uses. The order is PostgreSQL's (TopologicalSort)."""
    ordered = list(queries)
    for place in range(len(ordered)):
        free = next((i for i in range(place, len(ordered)) if not uses[ordered[i].ctename]), None)
        if free is None:
            raise not_supported("mutual recursion between WITH items is not implemented", location=ordered[place].location)
        ordered[place], ordered[free] = ordered[free], ordered[place]
        for later in ordered[place + 1 :]:
            uses[later.ctename].discard(ordered[place].ctename)
    return ordered


def _check(cte: ParseNode) -> None:
    """Raise an error if a query that references itself does not have the form of a recursive query, or does so in an invalid place."""
    query = unwrap(cte.ctequery)
    if not isinstance(query, pb.SelectStmt):
        raise PostgresError("42P19", f'recursive query "{cte.ctename}" must not contain data-modifying statements', location=cte.location)
    if query.op != pb.SETOP_UNION:
        message = f'recursive query "{cte.ctename}" does not have the form non-recursive-term UNION [ALL] recursive-term'
        raise PostgresError("42P19", message, location=cte.location)
    for clause, nodes in (
        ("ORDER BY", query.sort_clause),
        ("OFFSET", [query.limit_offset] if query.HasField("limit_offset") else []),
        ("LIMIT", [query.limit_count] if query.HasField("limit_count") else []),
    ):
        if nodes:
            raise not_supported(f"{clause} in a recursive query is not implemented", location=beginning(nodes[0]))
    if query.locking_clause:
        raise not_supported("FOR UPDATE/SHARE in a recursive query is not implemented")
    count = 0
    parts = [(item, "a subquery") for item in query.with_clause.ctes] + [(query.larg, "its non-recursive term"), (query.rarg, "")]
    hidden = frozenset(unwrap(item).ctename for item in query.with_clause.ctes)
    for part, place in parts:
        for node, own_place in references(part, hidden if place != "a subquery" else frozenset(), place):
            if node.relname != cte.ctename:
                continue
            count += 1
            where = f"within {own_place}" if own_place else "more than once"
            if own_place or count > 1:
                message = f'recursive reference to query "{cte.ctename}" must not appear {where}'
                raise PostgresError("42P19", message, location=node.location)


def _refuse_search_and_cycle(cte: ParseNode, *, is_recursive: bool) -> None:
    for word, field in (("SEARCH", "search_clause"), ("CYCLE", "cycle_clause")):
        if cte.HasField(field):
            if not is_recursive:
                raise PostgresError("42601", "WITH query is not recursive", location=cte.location)
            raise not_supported(f"the {word} clause of WITH is not supported", location=getattr(cte, field).location)


def references(node: ParseNode, hidden: frozenset[str] = frozenset(), place: str = "") -> Iterator[Reference]:
    """Yield the references to tables or WITH queries below a node. `hidden`: names that inner WITH clauses define."""
    if isinstance(node, pb.RangeVar):
        if not node.schemaname and node.relname not in hidden:
            yield Reference(node, place)
        return
    if isinstance(node, _STATEMENTS) and node.HasField("with_clause"):
        queries = [unwrap(item) for item in node.with_clause.ctes]
        if node.with_clause.recursive:
            hidden |= {cte.ctename for cte in queries}
        for cte in queries:
            yield from references(unwrap(cte.ctequery), hidden, place)
            hidden |= {cte.ctename}
    for field, child in children(node):
        if not isinstance(child, pb.WithClause):
            yield from references(child, hidden, _place_of(node, field, place))


def _place_of(node: ParseNode, field: str, place: str) -> str:
    """Return the place of references in a field of a node that is at `place`."""
    if isinstance(node, pb.SubLink) and field == "subselect":
        return "a subquery"
    if place:
        return place
    if isinstance(node, pb.JoinExpr) and field in _NULL_SIDES.get(node.jointype, ()):
        return "an outer join"
    if isinstance(node, pb.SelectStmt) and field in {"larg", "rarg"}:
        if node.op == pb.SETOP_INTERSECT and node.all:
            return "INTERSECT"
        if node.op == pb.SETOP_EXCEPT and (node.all or field == "rarg"):
            return "EXCEPT"
    return ""
