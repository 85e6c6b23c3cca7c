"""Decide in which order the terms of WHERE are evaluated and over which rows. The result is a sequence of filter conditions.

The planner calls it for SELECT, UPDATE … FROM and DELETE … USING. Over one table, a term is evaluated if all terms before it are true
(PostgreSQL's ExecInitQual). Over a join, PostgreSQL evaluates each term at the lowest join that has its tables (initsplan.c,
distribute_qual_to_rels), whatever is written before it. It joins by an equality before it evaluates other terms of the same tables:

    | term                                                | when                                     |
    |-----------------------------------------------------|------------------------------------------|
    | names one table                                     | first, in turn with that table's others  |
    | equality of expressions of two tables               | then, as the join condition              |
    | names several tables                                | then, fewest tables first, in turn       |
    | names no table, is volatile or has a subquery       | then, in turn                            |
    | [NOT] EXISTS, [NOT] IN, = ANY of a subquery         | last, each by itself (a join in Spark)   |
    | names an outer query                                | after the terms that can precede it      |

Spark recognizes equalities and terms of one side of a join only as plain terms of an AND. `expression.spark.compiler.qual` hides a term
that may raise, and the terms in turn with it, from its optimizer. A condition is the AND of its terms, and each term belongs to one
condition, except that the last condition of the terms that name an outer query repeats the ones before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from headgate.commands.query.evaluation import is_membership
from headgate.commands.query.plan import EqualColumns
from headgate.commands.query.pushdown import EXACT_STATISTICS
from headgate.expression import builtin, rewriting
from headgate.expression.binding.scope import ScopeTable
from headgate.expression.implementation.system import is_volatile
from headgate.expression.node import BoolExpr, BoolKind, ColumnRef, Expression, OpExpr, SubLink, conjuncts, joined, walk
from headgate.expression.spark.call import may_raise

Homes: TypeAlias = Mapping[str, int]
"""The FROM item of each column, by the column's key. Whole rows have an entry too."""


@dataclass(frozen=True)
class InTurn:
    """Terms of an AND that are evaluated in order."""

    expression: Expression


@dataclass(frozen=True)
class Equality:
    """An equality that joins the rows of two tables."""

    term: OpExpr


def conditions(expression: Expression, tables: Sequence[ScopeTable], equal: Sequence[EqualColumns]) -> list[InTurn | Equality]:
    """Return the conditions to apply to the rows of the tables, in order. `equal`: pairs of columns with the same value in each row."""
    own, outer = _apart(_terms(expression))
    homes = _homes(tables)
    members = [term for term in own if is_membership(term)]
    ordinary = [term for term in own if not is_membership(term)]
    inferred = _infer(ordinary, [*equal, *(pair for term in ordinary for pair in pairs(term))])
    return [*map(InTurn, inferred), *_in_evaluation_order(ordinary, homes), *map(InTurn, members), *_correlated_conditions(outer, homes)]


def pairs(condition: Expression) -> list[EqualColumns]:
    """Return the pairs of columns that a condition makes equal and identical (`are_same`)."""
    column_pairs = []
    for left, right in (term.args for term in conjuncts(condition) if _is_equality(term)):
        if isinstance(left, ColumnRef) and isinstance(right, ColumnRef) and are_same(left, right):
            column_pairs.append((left, right))
    return column_pairs


def are_same(left: ColumnRef, right: ColumnRef) -> bool:
    """Return whether two columns are identical if they are equal. Numerics (1.0 and 1.00) and intervals need not be."""
    return left.type == right.type and left.type.oid in EXACT_STATISTICS and not (left.levels_up or right.levels_up)


def _about(term: Expression, column: ColumnRef) -> Expression:
    return rewriting.rewrite(term, lambda node: column if isinstance(node, ColumnRef) else None)


def _infer(parts: Sequence[Expression], equal: Sequence[EqualColumns]) -> list[Expression]:
    """Infer terms for the other column of an equal pair, from terms of one column that cannot raise. They may skip files there.

    Spark's own inference (`constraintPropagation`) also infers from terms that raise, so it is switched off.
    """
    equal_columns: dict[str, list[ColumnRef]] = {}
    for left, right in equal:
        equal_columns.setdefault(left.key, []).append(right)
        equal_columns.setdefault(right.key, []).append(left)
    inferred: list[Expression] = []
    for term in parts if equal_columns else ():
        named = {node.key for node in walk(term) if isinstance(node, ColumnRef)}
        if len(named) != 1 or may_raise(term) or _stands_alone(term):
            continue
        inferred += [_about(term, column) for column in equal_columns.get(named.pop(), ())]
    return inferred


def on(condition: Expression, tables: Sequence[ScopeTable]) -> tuple[list[OpExpr], list[Expression]]:
    """Split the terms of JOIN … ON into equalities whose sides may both raise, and the other terms, which are evaluated in order."""
    homes = _homes(tables)
    keys: list[OpExpr] = []
    ordinary = []
    for term in _terms(condition):
        if _joins(term, homes) and all(map(may_raise, term.args)):
            keys.append(term)
        else:
            ordinary.append(term)
    return keys, ordinary


def _homes(tables: Sequence[ScopeTable]) -> Homes:
    homes = {column.key: place for place, table in enumerate(tables) for column in table.columns}
    return homes | {table.row_key: place for place, table in enumerate(tables)}


def without_outer(condition: Expression) -> tuple[Expression | None, Expression | None]:
    """Split an AND into the terms of this query alone and those that name an outer query. None stands for no terms."""
    terms = conjuncts(condition)
    named = [term for term in terms if _is_correlated(term)]
    own = [term for term in terms if not _is_correlated(term)]
    return joined(BoolKind.AND, own) if own else None, joined(BoolKind.AND, named) if named else None


def _terms(condition: Expression) -> list[Expression]:
    """Return the terms of an AND.

    The common terms of all sides of an OR, often an equality, come first (prepqual.c, process_duplicate_ors).
    """
    return [term for part in conjuncts(condition) for term in _factor(part)]


def _factor(part: Expression) -> list[Expression]:
    if not isinstance(part, BoolExpr) or part.kind is not BoolKind.OR:
        return [part]
    sides = [conjuncts(argument) for argument in part.args]
    common = [term for term in sides[0] if all(term in side for side in sides[1:])]
    if not common:
        return [part]
    rest = [[term for term in side if term not in common] for side in sides]
    if not all(rest):
        return common
    return [*common, joined(BoolKind.OR, [joined(BoolKind.AND, side) for side in rest])]


def _apart(parts: Sequence[Expression]) -> tuple[list[Expression], list[Expression]]:
    """Split the terms into those that are evaluated without the outer query, and the others.

    Spark turns terms that name an outer query into a join condition, which it evaluates last. A term that names no outer query is evaluated
    separately if it is written before all that do or cannot raise, because conditions of a query in between rely on it.
    """
    first = next((place for place, term in enumerate(parts) if _is_correlated(term)), len(parts))
    later = [(term, _is_correlated(term) or may_raise(term)) for term in parts[first:]]
    return [*parts[:first], *(term for term, stays in later if not stays)], [term for term, stays in later if stays]


def _in_evaluation_order(parts: Sequence[Expression], homes: Homes) -> list[InTurn | Equality]:
    """Return the conditions of terms, starting with those that are evaluated at the lowest level."""
    single: dict[frozenset[object], list[Expression]] = {}
    several: dict[frozenset[object], list[Expression]] = {}
    equalities: list[OpExpr] = []
    last = []
    for term in parts:
        named = _tables(term, homes)
        if not named or _stands_alone(term):
            last.append(term)
        elif len(named) == 1:
            single.setdefault(named, []).append(term)
        elif _joins(term, homes):
            equalities.append(term)
        else:
            several.setdefault(named, []).append(term)
    if parts and not equalities and len(single) + len(several) <= 1:
        return [InTurn(joined(BoolKind.AND, parts))]
    groups = [*single.values(), *(several[names] for names in sorted(several, key=len)), *([last] if last else [])]
    in_turn = [InTurn(joined(BoolKind.AND, group)) for group in groups]
    return [*in_turn[: len(single)], *map(Equality, equalities), *in_turn[len(single) :]]


def _correlated_conditions(parts: Sequence[Expression], homes: Homes) -> list[InTurn | Equality]:
    """Return the conditions of terms of which at least one names an outer query.

    They are evaluated in order, with two exceptions. Terms that name only the outer query come first, because PostgreSQL evaluates them
    once per outer row. Equalities come next, because Spark joins the two queries by them.
    """
    gates, rest = [], []
    equalities: list[OpExpr] = []
    for term in parts:
        if _tables(term, homes) == {"outer"}:
            gates.append(term)
        elif _joins(term, homes) and _is_correlated(term):
            equalities.append(term)
        else:
            rest.append(term)
    ordered: list[InTurn | Equality] = [InTurn(joined(BoolKind.AND, gates))] if gates else []
    ordered += map(Equality, equalities)
    # terms of this query alone are evaluated only for rows that meet the other terms, so those are repeated here
    return [*ordered, InTurn(joined(BoolKind.AND, [*gates, *equalities, *rest]))] if rest else ordered


def _tables(expression: Expression, homes: Homes) -> frozenset[object]:
    """Return the tables that an expression names. A merged column of JOIN … USING counts as a table, and so does an outer query."""
    named = [node for node in walk(expression) if isinstance(node, ColumnRef)]
    return frozenset("outer" if column.levels_up else homes.get(column.key, column.key) for column in named)


def _joins(term: Expression, homes: Homes) -> TypeGuard[OpExpr]:
    """Return whether a term is an equality of expressions of different tables."""
    if not _is_equality(term):
        return False
    left, right = (_tables(side, homes) for side in term.args)
    return bool(left) and bool(right) and not left & right


def _is_equality(term: Expression) -> TypeGuard[OpExpr]:
    return isinstance(term, OpExpr) and len(term.args) == 2 and builtin.operator(term.operator).name == "="


def _stands_alone(term: Expression) -> bool:
    """Return whether the value of a term depends on more than its columns: it has a subquery or is volatile."""
    return any(isinstance(node, SubLink) or is_volatile(node) for node in walk(term))


def _is_correlated(expression: Expression) -> bool:
    return any(isinstance(node, ColumnRef) and node.levels_up for node in walk(expression))
