"""Parses an untrusted type name, and rejects a text that is anything else.

Called for type names that a publisher sends (`commands.subscription.applied_ddl`). They are data and never become part of a statement as
text.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.sql import grammar
from headgate.sql.parser import parse, unwrap

_CAST = "SELECT NULL::"
LONGEST = 1000
"""The maximum number of characters; names have at most 63 bytes."""


def parsed(text: str) -> pb.TypeName:
    """Parse the name of a type for a statement that is built as a tree. Raise 08P01 if the text is anything else."""
    name = _name(text) if len(text) <= LONGEST else None
    if name is not None:
        alone = grammar.parse(f"{_CAST}text")
        alone.stmts[0].stmt.select_stmt.target_list[0].res_target.val.type_cast.type_name.CopyFrom(name)
        # anything else in the text (FROM, an alias, a second statement) makes it longer than just the cast
        if grammar.deparse(alone) == grammar.deparse(grammar.parse(_CAST + text)):
            return name
    raise PostgresError("08P01", "publisher sent an invalid type name", detail="It is not the name of a single type.")


def _name(text: str) -> pb.TypeName | None:
    """Return the TypeName at the beginning of a text, or None if there is none or it has more than a type's modifiers."""
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
    is_plain = (
        all(unwrap(modifier).DESCRIPTOR.name in ("A_Const", "ColumnRef") for modifier in name.typmods)
        and not name.setof
        and not name.pct_type
    )
    return name if is_plain else None
