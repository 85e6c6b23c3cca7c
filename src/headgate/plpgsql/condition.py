"""The names of error conditions (manual, appendix A) as RAISE and EXCEPTION write them.

psycopg has a class for each SQLSTATE of PostgreSQL's errcodes.txt, named as the condition: ``DivisionByZero`` is division_by_zero.
"""

from __future__ import annotations

import functools
import re

from psycopg import errors

from headgate.errors import PostgresError

OTHERS = "others"
UNCAUGHT = frozenset({"57014", "P0004"})
"""What OTHERS leaves alone: query_canceled and assert_failure."""
_CODE = re.compile(r"[0-9A-Z]{5}\Z")


@functools.cache
def _codes() -> dict[str, tuple[str, ...]]:
    codes_by_name: dict[str, list[str]] = {}
    for name in dir(errors):
        code = getattr(getattr(errors, name), "sqlstate", None)
        if isinstance(code, str):
            codes_by_name.setdefault(re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(), []).append(code)
    return {name: tuple(codes) for name, codes in codes_by_name.items()}


def sqlstates(condition: str) -> tuple[str, ...]:
    """Return the SQLSTATEs of a condition's name, or the SQLSTATE that it is. Raise 42704 if there is no such condition."""
    if _CODE.match(condition):
        return (condition,)
    codes = _codes().get(condition)
    if codes is None:
        raise PostgresError("42704", f'unrecognized exception condition "{condition}"')
    return codes


def covers(condition: str, sqlstate: str) -> bool:
    """Return whether WHEN of a condition handles an error. A class (``…000``) covers all of its errors."""
    if condition == OTHERS:
        return sqlstate not in UNCAUGHT
    return any(code == sqlstate or (code.endswith("000") and code[:2] == sqlstate[:2]) for code in sqlstates(condition))
