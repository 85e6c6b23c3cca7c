"""Analyse the bodies of system views, whose names are those of pg_catalog, information_schema and the node's own tables.

Called by `from_item`. An analysis is kept for the life of the process, because nothing changes the objects that a body names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from postgast import pg_query_pb2 as pb

from headgate.analysis.analyser import Analyser
from headgate.analysis.names import Names
from headgate.analysis.query import PlanColumn, Query
from headgate.catalog import system_view
from headgate.catalog.relation.relation import Relation
from headgate.commands import lookup
from headgate.errors import not_supported
from headgate.expression.binding.context import BindContext
from headgate.sql.parser import ParseNode, parse
from headgate.types.text_column import TextSettings


@lru_cache(maxsize=1024)
def definition(schema: str, name: str, announced: int, forms: TextSettings) -> Query:
    """Return the analysed body of a system view. `announced`: the release that the node announces. `forms`: how constants are read."""
    view = system_view.relation(schema, name, announced)
    assert view is not None
    [statement] = parse(system_view.FROM_CATALOG.get(name) or view.definition or "")

    def relation(node: pb.RangeVar, _check: bool) -> Relation:
        named = lookup.system_relation(node.schemaname or "pg_catalog", node.relname, announced, 0)
        assert named is not None
        return named

    return analyser(relation, BindContext(forms=forms), in_view=True).select(statement.node, None)


def analyser(relation: Callable[[pb.RangeVar, bool], Relation], context: BindContext, *, in_view: bool = False) -> Analyser:
    """Return an analyser of queries that read system relations and change nothing. `relation`: returns the relation that a query names."""
    names = Names(
        relation=relation,
        relation_of_oid=lambda _: None,
        transition=lambda _: None,
        changes=lambda _, __: None,
        modify=_refuse_modification,
    )
    return Analyser(names, context, {}, in_view=in_view)


def _refuse_modification(_: Analyser, __: ParseNode) -> tuple[tuple[PlanColumn, ...] | None, None]:
    raise not_supported("data-modifying statements in WITH are not supported in a query on system catalogs")
