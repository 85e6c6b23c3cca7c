"""What SET names as the values of a setting. Called by SET, ALTER SYSTEM, ALTER ROLE and ALTER DATABASE."""

from __future__ import annotations

from collections.abc import Iterable

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql import parser


def values(args: Iterable[pb.Node]) -> list[str]:
    """The values of SET x TO a, b as text."""
    return [constant(parser.unwrap(arg)) for arg in args]


def constant(node: pb.A_Const) -> str:
    """The text of a constant of the grammar."""
    kind = str(node.DESCRIPTOR.name)
    if kind == "TypeCast":  # SET TIME ZONE INTERVAL '3' HOUR
        return constant(parser.unwrap(node.arg))
    if kind == "A_Const":
        which = node.WhichOneof("val")
        value = getattr(node, which)
        if which == "ival":
            return str(value.ival)
        if which == "boolval":
            return "true" if value.boolval else "false"
        return str(getattr(value, which))
    raise PostgresError("42601", "syntax error")
