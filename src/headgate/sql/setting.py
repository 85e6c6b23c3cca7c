"""Reads the values of a setting in SET. Called by SET, ALTER SYSTEM, ALTER ROLE and ALTER DATABASE."""

from __future__ import annotations

from collections.abc import Iterable

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql import parser


def values(args: Iterable[pb.Node]) -> list[str]:
    """Return the values of SET x TO a, b as text."""
    return [constant(parser.unwrap(arg)) for arg in args]


def constant(node: pb.A_Const) -> str:
    """Return the text of a constant in the parse tree. Raise 42601 for any other node."""
    kind = str(node.DESCRIPTOR.name)
    if kind == "TypeCast":  # SET TIME ZONE INTERVAL '3' HOUR
        return constant(parser.unwrap(node.arg))
    if kind == "A_Const":
        field = node.WhichOneof("val")
        value = getattr(node, field)
        if field == "ival":
            return str(value.ival)
        if field == "boolval":
            return "true" if value.boolval else "false"
        return str(getattr(value, field))
    raise PostgresError("42601", "syntax error")
