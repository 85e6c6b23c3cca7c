"""Option lists: `WITH (a = 1, b, c = 'x')` as DefElem nodes, read with PostgreSQL's rules and errors.

Used by the publication, subscription, COPY, database and role commands and by the replication grammar's options.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql.names import shown_type
from headgate.sql.parser import ParseNode, position, unwrap


@dataclass(frozen=True)
class Option:
    """One option: `value` is None for a bare word; a word, a string or a number in text form otherwise."""

    name: str
    value: str | None
    location: int
    node: ParseNode | None

    def text(self) -> str:
        """The value; 42601 `x requires a parameter` when there is none."""
        if self.value is None:
            raise PostgresError("42601", f"{self.name} requires a parameter")
        return self.value

    def boolean(self) -> bool:
        """A bare word is true; true, false, on, off, 1 and 0 are understood."""
        if self.value is None:
            return True
        if self.value in ("0", "1"):
            return self.value == "1"
        word = self.value.lower()
        if word in ("true", "on"):
            return True
        if word in ("false", "off"):
            return False
        raise PostgresError("42601", f"{self.name} requires a Boolean value")

    def integer(self) -> int:
        """A whole number; 42601 `x requires an integer value` otherwise."""
        try:
            return int(self.text())
        except ValueError as error:
            raise PostgresError("42601", f"{self.name} requires an integer value") from error


def options(nodes: Iterable[pb.Node]) -> list[Option]:
    """The DefElem nodes as options, in their order."""
    read = []
    for node in nodes:
        element = unwrap(node)
        argument = unwrap(element.arg) if element.HasField("arg") else None
        read.append(Option(element.defname, None if argument is None else _text(argument), element.location, argument))
    return read


def conflicting(option: Option) -> PostgresError:
    """The error for an option given twice."""
    return PostgresError("42601", "conflicting or redundant options", position=position(option.location))


def unique(nodes: Iterable[pb.Node]) -> dict[str, Option]:
    """Options by name; an option given twice is 42601."""
    found: dict[str, Option] = {}
    for option in options(nodes):
        if option.name in found:
            raise conflicting(option)
        found[option.name] = option
    return found


def _text(node: ParseNode) -> str:
    match node.DESCRIPTOR.name:
        case "Integer":
            return str(node.ival)
        case "Float":
            return str(node.fval)
        case "Boolean":
            return "true" if node.boolval else "false"
        case "String":
            return str(node.sval)
        case "TypeName":
            return shown_type(node)
        case "List":
            return ".".join(_text(unwrap(each)) for each in node.items)
        case "A_Star":
            return "*"
        case "RoleSpec":
            return str(node.rolename)
        case "A_Const":
            return _text(unwrap_constant(node))
        case _:
            raise PostgresError("42601", "unrecognized option value")


def unwrap_constant(node: pb.A_Const) -> ParseNode:
    """The Integer, Float, Boolean or String inside an A_Const."""
    for field, value in node.ListFields():
        if field.name in ("ival", "fval", "boolval", "sval", "bsval"):
            return value
    return node.ival
