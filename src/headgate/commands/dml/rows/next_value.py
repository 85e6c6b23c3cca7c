"""nextval in defaults and VALUES: reserve the numbers of all rows at once, and replace the calls by columns of numbers.

Called by `new_rows` and `assignment` for defaults, by `rewrite_table` for the rows that get a new column, and by `insert` for VALUES.
Invariant: each row gets a separate number from each call, in the order of the rows, and currval and lastval then return the last one, as
in PostgreSQL (manual, 9.17). A default that calls currval or lastval gets the number that an earlier default of the same row got.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.catalog.physical import Cursor
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import sequence as sequences
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.session import SessionContext
from headgate.commands import lookup, privilege
from headgate.commands.session import Session
from headgate.commands.transaction import read_only
from headgate.errors import PostgresError, existing
from headgate.expression import rewriting
from headgate.expression.node import ColumnRef, Const, Expression, FuncExpr, TypeRef, walk
from headgate.sql.names import strings
from headgate.sql.parser import ParseNode
from headgate.sql.parser import walk as walk_tree
from headgate.storage.transaction.transaction import Transaction
from headgate.types import registry
from headgate.types.storage import own_name

NEXTVAL = 1574
"""The oid of nextval(regclass)."""
_CURRVAL, _LASTVAL = 1575, 2559
_CURRENT = re.compile("currval|lastval|setval")


@dataclass(frozen=True)
class Numbers:
    """The numbers that a call of nextval returns for a statement's rows, in their order, in column `key`."""

    key: str
    values: sequences.Values

    def array(self, rows: int) -> pa.Array:
        """Return the numbers of `rows` rows, as int64."""
        values, places = self.values, np.arange(rows, dtype=np.int64)
        numbers = values.first + values.step * places
        if rows > values.turn:
            numbers[values.turn :] = values.again + values.step * (places[: rows - values.turn] % values.length)
        return pa.array(numbers)

    def column(self, place: Column) -> Column:
        """Return the number of a row by its position, counted from 0."""
        values, step = self.values, F.lit(self.values.step)
        again = F.lit(values.again) + step * F.pmod(place - F.lit(values.turn), F.lit(values.length))
        return F.when(place < F.lit(values.turn), F.lit(values.first) + place * step).otherwise(again)


# ---- the text of a default ------------------------------------------------------------------------------------------------


def alone(default: str | None) -> str | None:
    """Return the name of the sequence if a default is only a call of nextval, otherwise None."""
    match = sequences.CALL.fullmatch(default or "")
    return None if match is None else match[1].replace("''", "'")


def _find_sequence(cursor: Cursor, context: SessionContext, name: str) -> Relation:
    schema, own = sequences.split_name(name)
    sequence = relations.lookup(cursor, context.database, schema, own, lookup.search_path(cursor, context))
    return existing(sequence, "42P01", f'relation "{name}"')


def needs_order(lists: Iterable[Iterable[ParseNode]], defaults: Iterable[str | None]) -> bool:
    """Return whether VALUES must be evaluated in order: a value may be the number that an earlier one took."""
    calls = (node for row in lists for item in row for node in walk_tree(item) if isinstance(node, pb.FuncCall))
    return any(_CURRENT.search(text or "") for text in defaults) or any(_CURRENT.fullmatch(strings(call.funcname)[-1]) for call in calls)


# ---- the numbers ----------------------------------------------------------------------------------------------------------


def called(expression: Expression) -> bool:
    """Return whether an expression calls nextval of a constant sequence name."""
    return any(_sequence_of(node) is not None for node in walk(expression))


def depends_on_calls(expression: Expression) -> bool:
    """Return whether an expression calls lastval, or nextval or currval of a constant."""
    return any(_sequence_of(node) or _sequence_of(node, _CURRVAL) or _is_lastval(node) for node in walk(expression))


def taken(
    expression: Expression, session: Session, transaction: Transaction, earlier: dict[int, Numbers], rows: int, first: int = 0
) -> tuple[Expression, Sequence[Numbers]]:
    """Return the expression with a bigint column for each call of nextval, currval and lastval, and the numbers for `rows` rows.

    The columns are _nextval<first> and following (`own_name`). `earlier`: the last numbers that the rows got, by the oids of the sequences
    in the order of the calls. Calls of nextval are added to it. Raise 42809 or 42501 as `of_name` does.
    """
    numbers: list[Numbers] = []

    def current(node: Expression) -> Numbers | None:
        name = _sequence_of(node, _CURRVAL)
        if name is not None:
            oid = _find_sequence(transaction.cursor, session.context, name).oid
            return earlier.get(oid) or Numbers("", sequences.Values(_call(session, "currval", oid) if rows else 0, 0))
        if not _is_lastval(node):
            return None
        return next(reversed(earlier.values()), None) or Numbers("", sequences.Values(_call(session, "lastval") if rows else 0, 0))

    def substitute(node: Expression) -> Expression | None:
        name, key = _sequence_of(node), own_name(f"_nextval{first + len(numbers)}")
        own = current(node) if name is None else of_name(name, session, transaction, rows, earlier, key=key)
        if own is None:
            return None
        numbers.append(replace(own, key=key))
        return ColumnRef(type=TypeRef(registry.INT8), name=numbers[-1].key, attnum=1, key=numbers[-1].key)

    return rewriting.rewrite(expression, substitute), numbers


def with_next_values(expression: Expression, session: Session, transaction: Transaction) -> Expression:
    """Replace each call of nextval('s') in an expression of VALUES by a new value. Each such expression is evaluated once."""

    def substitute(node: Expression) -> Expression | None:
        name = _sequence_of(node)
        if name is None:
            return None
        return Const(type=TypeRef(registry.INT8), value=str(of_name(name, session, transaction, 1, {}).values.value(0)))

    return expression if isinstance(expression, Const) else rewriting.rewrite(expression, substitute)


def of_name(
    name: str, session: Session, transaction: Transaction, rows: int, earlier: dict[int, Numbers], *, key: str = own_name("_nextval")
) -> Numbers:
    """Reserve numbers of the sequence with this name, and add them to `earlier`.

    Raise 42809 if it is not a sequence, 42501 without USAGE or UPDATE on it.
    """
    sequence = _find_sequence(transaction.cursor, session.context, name)
    if sequence.kind != RelationKind.SEQUENCE:
        raise PostgresError("42809", f'"{sequence.name}" is not a sequence')
    cursor, role = transaction.cursor, session.context.user
    if not any(privilege.may_on_table(cursor, role, sequence.database, sequence.oid, right) for right in ("USAGE", "UPDATE")):
        raise privilege.denied(cursor, sequence.database, sequence.oid, sequence.name)
    return of_sequence(sequence.oid, session, transaction, rows, earlier, key=key)


def of_sequence(
    oid: int, session: Session, transaction: Transaction, rows: int, earlier: dict[int, Numbers], *, key: str = own_name("_nextval")
) -> Numbers:
    """Reserve numbers of a sequence for `rows` rows, and add them to `earlier`. Raise 2200H if it is exhausted."""
    if not rows:
        return Numbers(key, sequences.Values(0, 1))
    context = session.context
    if session.read_only:
        read_only.check_function("nextval", relations.get(transaction.cursor, context.database, oid), read_only=True)
    values = sequences.take(transaction.storage.catalog.change, transaction.cursor, context.database, oid, rows)
    context.sequence_values[oid] = values.value(rows - 1)
    context.last_sequence = oid
    earlier.pop(oid, None)
    earlier[oid] = Numbers(key, values)
    return earlier[oid]


def _call(session: Session, function: str, *arguments: int) -> int:
    value = session.functions[function](*arguments)
    assert isinstance(value, int)
    return value


def _is_lastval(node: Expression) -> bool:
    return isinstance(node, FuncExpr) and node.function == _LASTVAL


def _sequence_of(node: Expression, function: int = NEXTVAL) -> str | None:
    """Return the name of the sequence if a node calls the function with a constant, otherwise None."""
    if isinstance(node, FuncExpr) and node.function == function and isinstance(node.args[0], Const):
        return node.args[0].value
    return None
