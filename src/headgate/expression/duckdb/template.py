"""Templates of DuckDB's SQL, for calls in which only the SQL of the arguments has to be inserted.

Used by `call` for the templates of `expression.implementation`, and by forms that return one. In a template, {0} {1} … are the arguments,
{db} is the database's oid, {p} the search path, {sizes} a table of relation sizes on disk, {blockers} a table of the backends that wait for
others, {texts0} the elements of the array {0} as text, {shift0} 1 if that array counts from 0, otherwise 0, {regclass0} a text as
regclass, and <22011 message> raises that error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb import cast
from headgate.expression.duckdb.value import Env, element_of, raised, zero_based
from headgate.types import registry as t

_PIECE = re.compile(r"\{(texts|shift|regclass)?(\d)\}|\{(db|p|sizes|blockers)\}|<(\w{5}) ([^>]*)>")


def filled(template: str, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    def piece(matched: re.Match[str]) -> str:
        special, place, word, sqlstate, message = matched.groups()
        if sqlstate:
            return raised(sqlstate, message, node.type.oid)
        if word:
            return {"db": env.database, "p": env.path}.get(word) or (env.sizes() if word == "sizes" else env.blockers())
        index = int(place)
        if special == "texts":
            return cast.element_texts(element_of(operands[index].type.oid) or t.TEXT, args[index], env)
        if special == "shift":
            return "1" if zero_based(operands[index], env) else "0"
        if special == "regclass":
            as_class = n.CoerceViaIO(type=n.TypeRef(t.REGCLASS), arg=operands[index], form=n.Form.IMPLICIT)
            return cast.through_text(as_class, args[index], env)
        return args[index]

    return _PIECE.sub(piece, template)
