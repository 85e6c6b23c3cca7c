"""Errors of expressions that run inside Spark, brought back as PostgreSQL's.

The compiler raises with ``headgate:SQLSTATE:message`` (see `value.raising`); Spark's own ANSI errors (overflow, division by
zero, casts) mean one PostgreSQL error each. `from_spark` is for whoever runs a job that evaluates compiled expressions.
"""

from __future__ import annotations

import re

from headgate.errors import PostgresError

MARK = "headgate:"
_MARKED = re.compile(r"headgate:([0-9A-Z]{5}):([^\n]*)")
_CONDITION = re.compile(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\] ([^\n]*)")
_INTEGERS = {"SMALLINT": "smallint", "INT": "integer", "BIGINT": "bigint"}
_DECIMAL = re.compile(r"Decimal\((\d+), ?(\d+)\)", re.IGNORECASE)


def marked(sqlstate: str, message: str) -> str:
    """The text that carries an error through Spark."""
    return f"{MARK}{sqlstate}:{message}"


def from_spark(exception: BaseException) -> PostgresError:
    """The PostgreSQL error that a Spark exception stands for; XX000 with Spark's first line if it stands for none."""
    seen: BaseException | None = exception
    while seen is not None:
        if isinstance(seen, PostgresError):
            return seen
        seen = seen.__cause__
    text = str(exception)
    found = _MARKED.search(text)
    if found:
        message = re.sub(r" SQLSTATE: [0-9A-Z]{5}$", "", found[2])
        return PostgresError(found[1], *_split(message.rstrip()))
    for condition, message in _CONDITION.findall(text):
        error = _of_condition(condition, message)
        if error is not None:
            return error
    return PostgresError("XX000", text.strip().split("\n")[0])


def _split(message: str) -> tuple[str, str | None]:
    head, separator, detail = message.partition("|DETAIL|")
    return head, detail if separator else None


def _of_condition(condition: str, message: str) -> PostgresError | None:
    if condition in ("DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO"):
        return PostgresError("22012", "division by zero")
    if condition.startswith("BINARY_ARITHMETIC_OVERFLOW"):
        return PostgresError("22003", "smallint out of range" if re.search(r"\d+S\b", message) else "integer out of range")
    if condition.startswith("ARITHMETIC_OVERFLOW"):
        return PostgresError("22003", "bigint out of range" if "long" in message.lower() else "integer out of range")
    if condition.startswith("CAST_OVERFLOW"):
        target = re.search(r'cast to "(\w+)"', message)
        return PostgresError("22003", f"{_INTEGERS.get(target[1] if target else '', 'integer')} out of range")
    if condition.startswith(("NUMERIC_VALUE_OUT_OF_RANGE", "DECIMAL_PRECISION_EXCEEDS")):
        return _field_overflow(message)
    return None


def _field_overflow(message: str) -> PostgresError:
    found = _DECIMAL.search(message)
    if found is None:
        return PostgresError("22003", "numeric field overflow")
    return field_overflow(int(found[1]), int(found[2]))


def field_overflow(precision: int, scale: int) -> PostgresError:
    """PostgreSQL's error for a value that numeric(precision, scale) cannot hold."""
    whole = precision - scale
    return PostgresError(
        "22003",
        "numeric field overflow",
        detail=f"A field with precision {precision}, scale {scale} must round to an absolute value less than "
        f"{'10^' + str(whole) if whole else '1'}.",
    )
