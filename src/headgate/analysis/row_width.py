"""How many columns rows must have: those of VALUES, and those of both sides of a set operation.

Called by the analyser, and by INSERT, whose VALUES may contain DEFAULT.
"""

from __future__ import annotations

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql.parser import beginning

WORDS = {pb.SETOP_UNION: "UNION", pb.SETOP_INTERSECT: "INTERSECT", pb.SETOP_EXCEPT: "EXCEPT"}


def require_like_first(row: Sequence[pb.Node], first: Sequence[pb.Node]) -> None:
    """Raise 42601 if a row of VALUES has another length than the first row (transformValuesClause)."""
    if len(row) != len(first):
        raise PostgresError("42601", "VALUES lists must all be the same length", location=beginning(row[0]))


def require_equal_sides(node: pb.SelectStmt, left: Sequence[object], right: Sequence[object]) -> None:
    """Raise 42601 at the right side's first column if the sides of a set operation have other numbers of columns.

    There is no position if the right side is VALUES or TABLE (transformSetOperationTree).
    """
    if len(left) != len(right):
        first = node.rarg
        while first.op != pb.SETOP_NONE:
            first = first.larg
        location = beginning(first.target_list[0]) if first.target_list else -1
        raise PostgresError("42601", f"each {WORDS[node.op]} query must have the same number of columns", location=location)
