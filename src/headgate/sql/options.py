"""Option lists: `WITH (a = 1, b, c = 'x')` as DefElem nodes, read with PostgreSQL's rules and errors.

Used by the publication, subscription, COPY, database and role commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql.names import shown_type
from headgate.sql.parser import ParseNode, unwrap


@dataclass(frozen=True)
class Option:
    """One option. `value` is None for an option without a value, else a word, a string or a number in text form."""

    name: str
    value: str | None
    location: int
    node: ParseNode | None

    def text(self) -> str:
        """Return the value. Raise 42601 `x requires a parameter` if there is none."""
        if self.value is None:
            raise PostgresError("42601", f"{self.name} requires a parameter")
        return self.value

    def boolean(self) -> bool:
        """Return the Boolean value: true without a value, else true, false, on, off, 1 or 0. Raise 42601 otherwise."""
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
        """Return an integer. Raise 42601 `x requires an integer value` otherwise."""
        try:
            return int(self.text())
        except ValueError as error:
            raise PostgresError("42601", f"{self.name} requires an integer value") from error


def options(nodes: Iterable[pb.Node]) -> list[Option]:
    """Return the DefElem nodes as options, in order."""
    result = []
    for node in nodes:
        element = unwrap(node)
        argument = unwrap(element.arg) if element.HasField("arg") else None
        result.append(Option(element.defname, None if argument is None else _text(argument), element.location, argument))
    return result


def conflicting(option: Option) -> PostgresError:
    return PostgresError("42601", "conflicting or redundant options", location=option.location)


def unique(nodes: Iterable[pb.Node]) -> dict[str, Option]:
    """Return options by name. Raise 42601 for a duplicate option."""
    by_name: dict[str, Option] = {}
    for option in options(nodes):
        if option.name in by_name:
            raise conflicting(option)
        by_name[option.name] = option
    return by_name


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
            return ".".join(_text(unwrap(item)) for item in node.items)
        case "A_Star":
            return "*"
        case "RoleSpec":
            return str(node.rolename)
        case "A_Const":
            return _text(unwrap_constant(node))
        case _:
            raise PostgresError("42601", "unrecognized option value")


def unwrap_constant(node: pb.A_Const) -> ParseNode:
    """Return the Integer, Float, Boolean or String inside an A_Const."""
    for field, value in node.ListFields():
        if field.name in ("ival", "fval", "boolval", "sval", "bsval"):
            return value
    return node.ival
