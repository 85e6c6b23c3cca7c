"""Decide which WHERE terms Spark may push down to the files, where statistics skip row groups and files.

Called by `evaluation.Evaluation.filter`. For a pushed term, the statistics of Parquet and of Delta Lake must agree with PostgreSQL's
comparison, for every value that a file can hold.

    | columns of the term                     | term                                  | pushed | reason                           |
    |-----------------------------------------|---------------------------------------|--------|----------------------------------|
    | boolean, smallint, integer, bigint      | any                                   | yes    | statistics are exact             |
    | date, timestamp, timestamptz            | compared with a constant of 0001-9999 | yes    | statistics are exact             |
    | date, timestamp, timestamptz            | any other                             | no     | Spark's literals overflow        |
    | numeric(p, s) that is stored as decimal | compared with a value without columns | yes    | statistics are exact             |
    | text, varchar, uuid                     | compared with a value without columns | yes    | bytes order as the C collation   |
    | char(n), numeric that is stored as text | any                                   | no     | equal values have several forms  |
    | real, double precision                  | any                                   | no     | statistics omit NaN; -0 is not 0 |
    | other types, domains                    | any                                   | no     | no statistics, or no order       |

"Compared" means `=`, `<`, `<=`, `>`, `>=` and IN with a list, of one column. Truncated statistics of long texts only widen the bounds.
"""

from __future__ import annotations

import re

from headgate.expression import builtin
from headgate.expression.node import ArrayExpr, ColumnRef, Const, Expression, OpExpr, Relabel, ScalarArrayOp, SubLink, walk
from headgate.types import registry
from headgate.types.storage import stored_as_text

EXACT_STATISTICS = frozenset({registry.BOOL, registry.INT2, registry.INT4, registry.INT8})
"""Types whose file statistics order values as PostgreSQL does, and whose equal values are identical."""
_COMPARISONS = frozenset({"=", "<", "<=", ">", ">="})
_TEXTS = frozenset({registry.TEXT, registry.VARCHAR, registry.UUID})
_MOMENTS = frozenset({registry.DATE, registry.TIMESTAMP, registry.TIMESTAMPTZ})
_FOUR_DIGIT_YEAR = re.compile(r"\d{4}-\d\d-\d\d(?!.*BC)")


def is_exact(term: Expression) -> bool:
    """Return whether the files' statistics agree with PostgreSQL's comparisons for a term. See the module's table."""
    columns = [node for node in walk(term) if isinstance(node, ColumnRef)]
    return all(column.type.oid in EXACT_STATISTICS for column in columns) or _is_exact_comparison(term)


def _is_exact_comparison(term: Expression) -> bool:
    """Return whether a term compares one column of an ordered type with values that leave the statistics exact."""
    if not isinstance(term, OpExpr | ScalarArrayOp) or len(term.args) != 2:
        return False
    if isinstance(term, ScalarArrayOp) and not (term.any and isinstance(term.args[1], ArrayExpr)):
        return False
    if builtin.operator(term.operator).name not in _COMPARISONS:
        return False
    left, right = map(_inner, term.args)
    column, value = (left, right) if isinstance(left, ColumnRef) else (right, left)
    values = value.elements if isinstance(value, ArrayExpr) else (value,)
    return isinstance(column, ColumnRef) and all(_is_exact_beside(column, operand) for operand in values)


def _is_exact_beside(column: ColumnRef, value: Expression) -> bool:
    """Return whether statistics are exact for a column that is compared with this value."""
    oid = column.type.oid
    if oid in _MOMENTS:
        return isinstance(value, Const) and value.type.oid == oid and bool(_FOUR_DIGIT_YEAR.match(value.value or ""))
    is_ordered = oid in _TEXTS or (oid == registry.NUMERIC and not stored_as_text(oid, column.type.typmod))
    return is_ordered and not any(isinstance(node, ColumnRef | SubLink) for node in walk(value))


def _inner(expression: Expression) -> Expression:
    """Return an expression without a relabelling, which changes no value (varchar to text)."""
    return expression.arg if type(expression) is Relabel else expression
