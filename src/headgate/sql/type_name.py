"""Parses a type name that someone else wrote, and rejects a text that is anything else.

Called for what a publisher sends (`commands.subscription.applied_ddl`), which is data and never becomes part of a statement as it came.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql import grammar
from headgate.sql.parser import parse, unwrap

_CAST = "SELECT NULL::"
LONGEST = 1000
"""Characters; names have 63 bytes at most."""


def parsed(text: str) -> pb.TypeName:
    """Parse the name of a type for a statement that is built as a tree. Raise 08P01 if the text is anything else."""
    name = _name(text) if len(text) <= LONGEST else None
    if name is not None:
        alone = grammar.parse(f"{_CAST}text")
        alone.stmts[0].stmt.select_stmt.target_list[0].res_target.val.type_cast.type_name.CopyFrom(name)
        # anything else in the text (FROM, an alias, a second statement) makes it longer than the cast alone
        if grammar.deparse(alone) == grammar.deparse(grammar.parse(_CAST + text)):
            return name
    raise PostgresError("08P01", "publisher sent an invalid type name", detail="It is no name of a type, or more than one.")


def _name(text: str) -> pb.TypeName | None:
    """The TypeName of a text that begins with one; None where it does not, or says more of it than a type has."""
    try:
        statements = parse(_CAST + text)
    except PostgresError:
        return None
    if statements[0].kind != "SelectStmt" or len(statements[0].node.target_list) != 1:
        return None
    cast = unwrap(unwrap(statements[0].node.target_list[0]).val)
    if cast.DESCRIPTOR.name != "TypeCast" or unwrap(cast.arg).DESCRIPTOR.name != "A_Const":
        return None
    name = cast.type_name
    plain = all(unwrap(each).DESCRIPTOR.name in ("A_Const", "ColumnRef") for each in name.typmods) and not name.setof and not name.pct_type
    return name if plain else None
