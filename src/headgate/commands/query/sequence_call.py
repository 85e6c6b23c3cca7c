"""nextval, currval, lastval and setval in the expressions of a query on tables, which call them for each row (manual, 9.17).

Called by `row_by_row`. The numbers of defaults and of VALUES are reserved by `next_value` instead.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence

from headgate.catalog.relation import sequence as sequences
from headgate.commands import lookup
from headgate.commands.query.catalog import regname
from headgate.commands.session import Session
from headgate.expression import builtin
from headgate.expression.node import BoolExpr, Case, Coalesce, Const, Expression, FuncExpr, UserCall
from headgate.types import registry

_NEXTVAL = 1574
_NAMES = {_NEXTVAL: "nextval", 1575: "currval", 1576: "setval", 1765: "setval", 2559: "lastval"}
"""The functions of sequences by their oids."""


def is_call(node: Expression) -> bool:
    """Return whether a node is a call of one of the functions."""
    return isinstance(node, FuncExpr) and node.function in _NAMES


def _named(expression: Expression, *, always: bool = True) -> Iterator[str | None]:
    """Yield the sequence of each call of nextval that every row makes, and None for any other call that may need the session.

    `always`: every row evaluates the expression.
    """
    if isinstance(expression, UserCall):
        yield None
    elif isinstance(expression, FuncExpr) and is_call(expression):
        constant = expression.args[0] if always and expression.function == _NEXTVAL else None
        yield constant.value if isinstance(constant, Const) else None
    always = always and not isinstance(expression, (BoolExpr, Case, Coalesce))
    for child in expression.children():
        yield from _named(child, always=always)


class SequenceCalls:
    """The calls in expressions that are evaluated for one row after the other.

    If each row makes the same calls of nextval, and no others, the numbers of many rows are reserved at once. A reservation is durable, so
    it takes as long as a commit.
    """

    def __init__(self, session: Session, expressions: Sequence[Expression]) -> None:
        self._session = session
        named = [name for expression in expressions for name in _named(expression)]
        self._counts = Counter(name for name in named if name is not None) if None not in named else Counter[str]()
        self._reserved: dict[str, Iterator[int]] = {}

    def reserve(self, rows: int) -> None:
        """Reserve the numbers of the next rows, which are all evaluated."""
        for name, count in self._counts.items() if rows else ():
            transaction, context = self._session.begin_statement(), self._session.context
            oid, first = self._oid(name), self._call(_NEXTVAL, self._oid(name))
            others = rows * count - 1
            numbers = [first]
            if others:
                values = sequences.take(transaction.storage.catalog.change, transaction.cursor, context.database, oid, others)
                numbers += map(values.value, range(others))
                context.sequence_values[oid] = numbers[-1]
            self._reserved[name] = iter(numbers)

    def value(self, node: FuncExpr) -> Const | None:
        """Call a function with constant arguments. Return NULL for a NULL argument, and None if it is another function."""
        if not is_call(node):
            return None
        texts = [argument.value for argument in node.args if isinstance(argument, Const)]
        kinds, arguments = builtin.function(node.function).arguments, list[object]()
        for kind, text in zip(kinds, texts, strict=True):
            if text is None:
                return Const(type=node.type, value=None)
            if text in self._reserved:
                return Const(type=node.type, value=str(next(self._reserved[text])))
            arguments.append(self._oid(text) if kind == registry.REGCLASS else text == "t" if kind == registry.BOOL else int(text))
        return Const(type=node.type, value=str(self._call(node.function, *arguments)))

    def _call(self, function: int, *arguments: object) -> int:
        result = self._session.functions[_NAMES[function]](*arguments)
        assert isinstance(result, int)
        return result

    def _oid(self, text: str) -> int:
        cursor, context = self._session.begin_statement().cursor, self._session.context
        return regname.resolve(cursor, context, functools.partial(lookup.search_path, cursor, context), text, registry.REGCLASS, None)
