"""Puts named arguments of a call (``make_interval(days => 3)``) into their positions among the others (manual, 4.3).

Called by `function_call`. Invariant: afterwards a call is as if its arguments were positional. Parameters that are left out before
the last given one have their default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from postgast import pg_query_pb2 as pb

from headgate.catalog import procedure
from headgate.errors import PostgresError
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.overload_resolution import no_function
from headgate.expression.node import Expression, TypeRef
from headgate.sql import names
from headgate.sql.parser import ParseNode, beginning, parse_expression, unwrap

_DATE: dict[str, str | None] = {"year": None, "month": None, "day": None}
_TIME: dict[str, str | None] = {"hour": None, "min": None, "sec": None}
_TIMESTAMP: dict[str, str | None] = {"year": None, "month": None, "mday": None, **_TIME}
_SPAN: dict[str, str | None] = dict.fromkeys(("years", "months", "weeks", "days", "hours", "mins"), "0")
_CHANGED: dict[str, str | None] = {"jsonb_in": None, "path": None, "replacement": None}
PARAMETERS: dict[str, dict[str, str | None]] = {
    "make_date": _DATE,
    "make_time": _TIME,
    "make_timestamp": _TIMESTAMP,
    "make_timestamptz": {**_TIMESTAMP, "timezone": None},
    "make_interval": {**_SPAN, "secs": "0.0::float8"},
    "jsonb_set": {**_CHANGED, "create_if_missing": "true"},
    "jsonb_insert": {**_CHANGED, "insert_after": "false"},
    "pg_create_logical_replication_slot": {
        "slot_name": None,
        "plugin": None,
        "temporary": "false",
        "twophase": "false",
        "failover": "false",
    },
    "pg_create_physical_replication_slot": {"slot_name": None, "immediately_reserve": "false", "temporary": "false"},
    "pg_terminate_backend": {"pid": None, "timeout": "0::int8"},
    "jsonb_set_lax": {**_CHANGED, "create_if_missing": "true", "null_value_treatment": "'use_json_null'::text"},
}
"""The functions whose parameters have names and defaults, in their order (pg_proc); of others the names are in the catalogs."""


class Typed(Protocol):
    """An argument of a call: a typed expression or a value."""

    @property
    def type(self) -> TypeRef: ...


def is_named(argument: ParseNode) -> bool:
    """Return whether an unwrapped argument of a FuncCall has a name."""
    return bool(argument.DESCRIPTOR.name == "NamedArgExpr")


def _names(node: pb.FuncCall) -> list[str | None]:
    return [argument.name if is_named(argument) else None for argument in map(unwrap, node.args)]


def signature(node: pb.FuncCall, args: Sequence[Typed], context: BindContext) -> str:
    """Return the call as PostgreSQL's messages show it: ``make_interval(integer, days => integer)``."""
    shown = [
        f"{'' if name is None else f'{name} => '}{context.show_type(value.type.oid)}"
        for name, value in zip(_names(node), args, strict=True)
    ]
    return f"{'.'.join(names.strings(node.funcname))}({', '.join(shown)})"


def check_order(node: pb.FuncCall, context: BindContext) -> None:
    """Raise 42601 for a name that a call uses twice, and for a positional argument after a named one."""
    argument_names = _names(node)
    for place, name in enumerate(argument_names):
        if (name is None and any(argument_names[:place])) or (name is not None and name in argument_names[:place]):
            message = "positional argument cannot follow named argument" if name is None else f'argument name "{name}" used more than once'
            where = beginning(node.args[place]) if name is None else unwrap(node.args[place]).location
            raise PostgresError("42601", message, location=where)


def placed(
    node: pb.FuncCall, args: Sequence[Expression], context: BindContext, bind: Callable[[ParseNode], Expression]
) -> list[Expression]:
    """Return the arguments of a FuncCall in the order of the function's parameters. `bind` binds the defaults.

    Raises 42601 as `check_order`, and 42883 for a name that no function of this name has, or if a parameter without a default is left out.
    """
    check_order(node, context)
    argument_names = _names(node)
    plain = next((place for place, name in enumerate(argument_names) if name is not None), len(argument_names))
    called = names.strings(node.funcname)[-1]
    parameters = PARAMETERS.get(called) or dict.fromkeys(procedure.parameter_names(called))
    arguments = dict(zip(list(parameters)[:plain], args, strict=False))
    for name, value in zip(argument_names[plain:], args[plain:], strict=True):
        if name not in parameters or name in arguments:
            raise no_function(signature(node, args, context), context, node.location)
        arguments[str(name)] = value
    last = max(place for place, name in enumerate(parameters) if name in arguments)
    done = []
    for name, default in list(parameters.items())[: last + 1]:
        if name not in arguments and default is None:
            raise no_function(signature(node, args, context), context, node.location)
        done.append(arguments[name] if name in arguments else bind(parse_expression(str(default))))
    return done
