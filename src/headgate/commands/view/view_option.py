"""The options of views: WITH (…) of CREATE VIEW, SET (…) and RESET (…) of ALTER VIEW (reloptions.c).

`commands.query.planner` reads them when it reads a view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation import view as views
from headgate.errors import PostgresError, not_supported
from headgate.settings.definition import read_bool
from headgate.sql.options import Option, options
from headgate.sql.parser import unwrap

if TYPE_CHECKING:
    from headgate.commands.table.alteration import Alteration

_BOOLEAN = ("security_barrier", "security_invoker")


def read(nodes: Iterable[pb.Node]) -> list[str]:
    """The options as pg_class.reloptions has them; 22023 for what is none, or none of its values."""
    found: dict[str, str] = {}
    for option in options(nodes):
        if option.name in found:
            raise PostgresError("22023", f'parameter "{option.name}" specified more than once')
        found[option.name] = _checked(option)
    return [f"{name}={value}" for name, value in found.items()]


def _checked(option: Option) -> str:
    value = "true" if option.value is None else option.value
    if option.name == "check_option":
        raise not_supported("WITH CHECK OPTION is not supported", hint="A view of a node cannot be written to.")
    if option.name not in _BOOLEAN:
        raise PostgresError("22023", f'unrecognized parameter "{option.name}"')
    if read_bool(value) is None:
        raise PostgresError("22023", f'invalid value for boolean option "{option.name}": {value}')
    return value


def alter(alteration: Alteration, command: pb.AlterTableCmd) -> None:
    """ALTER VIEW … SET (…) and RESET (…)."""
    relation = alteration.relation
    nodes = unwrap(getattr(command, "def")).items
    before = dict(each.split("=", 1) for each in views.options(alteration.cursor, relation.database, relation.oid))
    named = [option.name for option in options(nodes)]
    if command.subtype == pb.AT_ResetRelOptions:
        if any(option.value is not None for option in options(nodes)):
            raise PostgresError("42601", "RESET must not include values for parameters")
        given = []
    else:
        given = read(nodes)
    kept = [f"{name}={value}" for name, value in before.items() if name not in named]
    views.set_options(alteration.cursor, relation.database, relation.oid, [*kept, *given])
