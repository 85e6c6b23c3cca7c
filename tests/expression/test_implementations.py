"""The entries of `expression.implementation`: each is found by PostgreSQL's key, and stands once."""

from __future__ import annotations

from collections import Counter

from headgate.expression import builtin
from headgate.expression.builtin import Function
from headgate.expression.implementation.implementations import IMPLEMENTATIONS, TABLES


def test_a_function_stands_in_one_table() -> None:
    keys = Counter(key for table in TABLES for key in table)

    assert [key for key, times in keys.items() if times > 1] == []


def test_an_entry_has_a_form() -> None:
    assert [key for key, each in IMPLEMENTATIONS.items() if (each.spark, each.arrow, each.duckdb) == (None, None, None)] == []


def test_every_key_is_that_of_a_function_of_postgresql() -> None:
    known = {each.key for each in builtin.builtins().functions.values()}

    assert sorted(set(IMPLEMENTATIONS) - known) == []


def test_a_template_names_no_argument_that_the_function_has_not() -> None:
    functions: dict[str, list[Function]] = {}
    for each in builtin.builtins().functions.values():
        functions.setdefault(each.key, []).append(each)

    wrong = [
        key
        for key, each in IMPLEMENTATIONS.items()
        if isinstance(each.duckdb, str)
        for found in functions[key]
        if any(f"{place}}}" in each.duckdb for place in range(len(found.arguments), 5))
    ]

    assert wrong == []
