"""The look-ups that the analysis needs from the session: relations, changes, and data-modifying statements in WITH.

The owner of the analysis (`commands.query.query_planner`) fills in the callables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.sql.parser import ParseNode

if TYPE_CHECKING:
    from headgate.analysis.analyser import Analyser
    from headgate.analysis.query import FromItem, PlanColumn


@dataclass(frozen=True)
class Names:
    """The callables of one statement.

    relation          the relation that a query names; 42P01 if there is none. The bool: whether the role needs USAGE on the schema
    relation_of_oid   the relation with an oid
    transition        the table whose changed rows a transition table has
    changes           a call of headgate.changes as a FROM item, or None for another function
    modify            runs a data-modifying statement in WITH: its columns, or None without RETURNING, and its rows
    """

    relation: Callable[[pb.RangeVar, bool], Relation]
    relation_of_oid: Callable[[int], Relation | None]
    transition: Callable[[str], Relation | None]
    changes: Callable[[Analyser, pb.RangeFunction], FromItem | None]
    modify: Callable[[Analyser, ParseNode], tuple[tuple[PlanColumn, ...] | None, Any]]
