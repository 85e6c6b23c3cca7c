"""The look-ups that the analysis needs from the session: relations, and the columns of functions that engines evaluate.

The owner of the analysis (`commands.query.planner`) fills in the callables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation import Relation
from headgate.expression.node import FuncExpr, TypeRef
from headgate.sql.parser import ParseNode

if TYPE_CHECKING:
    from headgate.analysis.analyser import Analyser
    from headgate.analysis.query import FromItem, PlanColumn

NamedType: TypeAlias = tuple[str, TypeRef]


@dataclass(frozen=True)
class Names:
    """The callables of one statement.

    relation          the relation that a query names; 42P01 if there is none. The bool: whether the role needs USAGE on the schema
    relation_of_oid   the relation with an oid
    transition        the table whose changed rows a transition table has
    set_columns       the columns of a call that engines can evaluate for each row, or None; an empty name is the alias's
    catalog_columns   the columns of a query that the catalog answers
    changes           a call of headgate.changes as a FROM item, or None for another function
    modify            runs a data-modifying statement in WITH: its columns, or None without RETURNING, and its rows
    """

    relation: Callable[[pb.RangeVar, bool], Relation]
    relation_of_oid: Callable[[int], Relation | None]
    transition: Callable[[str], Relation | None]
    set_columns: Callable[[FuncExpr], Sequence[NamedType] | None]
    catalog_columns: Callable[[str], Sequence[NamedType]]
    changes: Callable[[Analyser, pb.RangeFunction], FromItem | None]
    modify: Callable[[Analyser, ParseNode], tuple[tuple[PlanColumn, ...] | None, Any]]
