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
    """Return the options in the form of pg_class.reloptions. Raise 22023 for an unknown option or an invalid value."""
    values: dict[str, str] = {}
    for option in options(nodes):
        if option.name in values:
            raise PostgresError("22023", f'parameter "{option.name}" specified more than once')
        values[option.name] = _check(option)
    return [f"{name}={value}" for name, value in values.items()]


def _check(option: Option) -> str:
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
    before = dict(entry.split("=", 1) for entry in views.options(alteration.cursor, relation.database, relation.oid))
    option_names = [option.name for option in options(nodes)]
    if command.subtype == pb.AT_ResetRelOptions:
        if any(option.value is not None for option in options(nodes)):
            raise PostgresError("42601", "RESET must not include values for parameters")
        new_values = []
    else:
        new_values = read(nodes)
    remaining = [f"{name}={value}" for name, value in before.items() if name not in option_names]
    views.set_options(alteration.cursor, relation.database, relation.oid, [*remaining, *new_values])
