"""WHERE: in which order its terms are looked at, and over which rows → the conditions that a frame passes one behind the other.

Called by the planner for SELECT, UPDATE … FROM and DELETE … USING. Over one table the terms are looked at as they are written, each where
those before it are true (PostgreSQL's ExecInitQual). Over a join PostgreSQL looks at each term as far below as its tables are
(initsplan.c, distribute_qual_to_rels), whatever stands before it, and joins by an equality before it looks at what else names the same
tables:

    | term                                                | when                                     |
    |-----------------------------------------------------|------------------------------------------|
    | names one table                                     | first, in turn with that table's others  |
    | equality of what one table has and another has      | then: rows are joined by it              |
    | names several tables                                | then, those of fewer first, in turn      |
    | names none, is volatile or has a subquery           | then, in turn                            |
    | [NOT] EXISTS, [NOT] IN, = ANY of a subquery         | last, each for itself (a join to Spark)  |
    | names a query around this one                       | behind what may be looked at without it  |

Spark finds an equality, and what names one side of a join, where they stand under AND as they are; a term that may raise is kept from its
optimizer together with what is in turn with it (`expression.spark.compiler.qual`). What must hold: a condition is the AND of its
terms; a term is in one condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from headgate.commands.query.clause.volatile_call import is_volatile
from headgate.commands.query.plan import EqualColumns
from headgate.expression import builtin, rewriting
from headgate.expression.binding.scope import ScopeTable
from headgate.expression.node import BoolExpr, BoolKind, ColumnRef, Expression, OpExpr, SubLink, conjuncts, joined, walk
from headgate.expression.spark.call import may_raise
from headgate.types import registry

Homes: TypeAlias = Mapping[str, int]
"""Which table of FROM a column is of, by its key; of whole rows too."""
EXACT_STATISTICS = frozenset({registry.BOOL, registry.INT2, registry.INT4, registry.INT8})
"""Types of which the files' statistics say what PostgreSQL's comparisons do, and of which equal values are the same."""


@dataclass(frozen=True)
class InTurn:
    """Terms under AND that are looked at one behind the other."""

    expression: Expression


@dataclass(frozen=True)
class Equality:
    """A term by which rows of two tables find each other."""

    term: OpExpr


def conditions(expression: Expression, tables: Sequence[ScopeTable], equal: Sequence[EqualColumns] = ()) -> list[InTurn | Equality]:
    """What rows of the tables pass, one behind the other; `equal`: columns that are the same in each of them."""
    own, outer = _apart(_terms(expression))
    homes = _homes(tables)
    members = [each for each in own if is_membership(each)]
    others = [each for each in own if not is_membership(each)]
    inferred = _inferred(others, [*equal, *(pair for each in others for pair in pairs(each))])
    return [*map(InTurn, inferred), *_placed(others, homes), *map(InTurn, members), *_correlated(outer, homes)]


def pairs(condition: Expression) -> list[EqualColumns]:
    """The columns that a condition says are equal and so the same (`are_same`)."""
    found = []
    for left, right in (each.args for each in conjuncts(condition) if _is_equality(each)):
        if isinstance(left, ColumnRef) and isinstance(right, ColumnRef) and are_same(left, right):
            found.append((left, right))
    return found


def are_same(left: ColumnRef, right: ColumnRef) -> bool:
    """Whether two columns of FROM that are equal have one value, as numerics (1.0 and 1.00) and intervals need not."""
    return left.type == right.type and left.type.oid in EXACT_STATISTICS and not (left.levels_up or right.levels_up)


def _about(term: Expression, column: ColumnRef) -> Expression:
    """A term of one column, of another."""
    return rewriting.rewrite(term, lambda each: column if isinstance(each, ColumnRef) else None)


def _inferred(parts: Sequence[Expression], equal: Sequence[EqualColumns]) -> list[Expression]:
    """What follows for the other column of a pair from a term of one column that cannot raise: it may leave out files there.

    Spark's own inference (`constraintPropagation`) does the same with terms that raise, so it is switched off.
    """
    other: dict[str, list[ColumnRef]] = {}
    for left, right in equal:
        other.setdefault(left.key, []).append(right)
        other.setdefault(right.key, []).append(left)
    found: list[Expression] = []
    for each in parts if other else ():
        named = {below.key for below in walk(each) if isinstance(below, ColumnRef)}
        if len(named) != 1 or may_raise(each) or _stands_alone(each):
            continue
        found += [_about(each, there) for there in other.get(named.pop(), ())]
    return found


def on(condition: Expression, tables: Sequence[ScopeTable]) -> tuple[list[OpExpr], list[Expression]]:
    """The terms of JOIN … ON: equalities both of whose sides may raise, and the others, which count in turn."""
    homes = _homes(tables)
    keys: list[OpExpr] = []
    others = []
    for each in _terms(condition):
        if _joins(each, homes) and all(map(may_raise, each.args)):
            keys.append(each)
        else:
            others.append(each)
    return keys, others


def _homes(tables: Sequence[ScopeTable]) -> Homes:
    homes = {column.key: place for place, table in enumerate(tables) for column in table.columns}
    return homes | {table.row_key: place for place, table in enumerate(tables)}


def is_membership(term: Expression) -> bool:
    """Whether a term asks if a subquery has a row: as a term under AND, Spark makes a join by keys of it, and elsewhere one in a loop."""
    if isinstance(term, BoolExpr) and term.kind is BoolKind.NOT:
        return is_membership(term.args[0])
    return isinstance(term, SubLink) and term.kind in ("ANY", "EXISTS")


def _terms(condition: Expression) -> list[Expression]:
    """What stands under AND; of an OR, first what each of its sides asks for (prepqual.c, process_duplicate_ors): often an equality."""
    return [term for part in conjuncts(condition) for term in _factored(part)]


def _factored(part: Expression) -> list[Expression]:
    if not isinstance(part, BoolExpr) or part.kind is not BoolKind.OR:
        return [part]
    sides = [conjuncts(each) for each in part.args]
    common = [each for each in sides[0] if all(each in side for side in sides[1:])]
    if not common:
        return [part]
    rest = [[each for each in side if each not in common] for side in sides]
    if not all(rest):
        return common
    return [*common, joined(BoolKind.OR, [joined(BoolKind.AND, side) for side in rest])]


def _apart(parts: Sequence[Expression]) -> tuple[list[Expression], list[Expression]]:
    """The terms that are looked at without a query around this one, and the others.

    Spark makes what names columns of a query around it the condition of a join, which it looks at behind all else. What names none, and
    stands before all that do or cannot raise, is kept out of it: conditions of a query in between rely on it.
    """
    first = next((place for place, each in enumerate(parts) if _is_correlated(each)), len(parts))
    later = [(each, _is_correlated(each) or may_raise(each)) for each in parts[first:]]
    return [*parts[:first], *(each for each, stays in later if not stays)], [each for each, stays in later if stays]


def _placed(parts: Sequence[Expression], homes: Homes) -> list[InTurn | Equality]:
    """The conditions of terms, those first that are looked at the furthest below."""
    single: dict[frozenset[object], list[Expression]] = {}
    several: dict[frozenset[object], list[Expression]] = {}
    equalities: list[OpExpr] = []
    last = []
    for each in parts:
        named = _tables(each, homes)
        if not named or _stands_alone(each):
            last.append(each)
        elif len(named) == 1:
            single.setdefault(named, []).append(each)
        elif _joins(each, homes):
            equalities.append(each)
        else:
            several.setdefault(named, []).append(each)
    if parts and not equalities and len(single) + len(several) <= 1:
        return [InTurn(joined(BoolKind.AND, parts))]
    groups = [*single.values(), *(several[each] for each in sorted(several, key=len)), *([last] if last else [])]
    found = [InTurn(joined(BoolKind.AND, each)) for each in groups]
    return [*found[: len(single)], *map(Equality, equalities), *found[len(single) :]]


def _correlated(parts: Sequence[Expression], homes: Homes) -> list[InTurn | Equality]:
    """The conditions of terms of which one names a query around this one.

    In turn, but for what names nothing else, which PostgreSQL looks at once for a row of that query, and for the equalities, by which Spark
    joins the two.
    """
    gates, rest = [], []
    equalities: list[OpExpr] = []
    for each in parts:
        if _tables(each, homes) == {"outer"}:
            gates.append(each)
        elif _joins(each, homes) and _is_correlated(each):
            equalities.append(each)
        else:
            rest.append(each)
    found: list[InTurn | Equality] = [InTurn(joined(BoolKind.AND, gates))] if gates else []
    found += map(Equality, equalities)
    # what names this query alone is looked at for no other rows than those that are found by the others: they stand here once more
    return [*found, InTurn(joined(BoolKind.AND, [*gates, *equalities, *rest]))] if rest else found


def _tables(expression: Expression, homes: Homes) -> frozenset[object]:
    """The tables that an expression names; a column that JOIN … USING made of two is for itself, and so is a query around this one."""
    named = [each for each in walk(expression) if isinstance(each, ColumnRef)]
    return frozenset("outer" if each.levels_up else homes.get(each.key, each.key) for each in named)


def _joins(term: Expression, homes: Homes) -> TypeGuard[OpExpr]:
    """Whether a term says that what one table has is equal to what another has."""
    if not _is_equality(term):
        return False
    left, right = (_tables(each, homes) for each in term.args)
    return bool(left) and bool(right) and not left & right


def _is_equality(term: Expression) -> TypeGuard[OpExpr]:
    return isinstance(term, OpExpr) and len(term.args) == 2 and builtin.operator(term.operator).name == "="


def _stands_alone(term: Expression) -> bool:
    """Whether a term says nothing of its columns alone: it has a subquery, or calls what is another each time."""
    return any(isinstance(each, SubLink) or is_volatile(each) for each in walk(term))


def _is_correlated(expression: Expression) -> bool:
    return any(isinstance(each, ColumnRef) and each.levels_up for each in walk(expression))
