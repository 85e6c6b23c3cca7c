"""The entries of `expression.implementation`: each is found by PostgreSQL's key, and stands once."""

from __future__ import annotations

from collections import Counter

from headgate.expression import builtin
from headgate.expression.builtin import Function
from headgate.expression.implementation.implementations import AGGREGATE_TABLES, AGGREGATES, IMPLEMENTATIONS, TABLES
from headgate.expression.implementation.set_returning import SETS
from headgate.expression.implementation.window_function import WINDOW_FUNCTIONS


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


def test_an_aggregate_stands_in_one_table() -> None:
    names = Counter(name for table in AGGREGATE_TABLES for name in table)

    assert [name for name, times in names.items() if times > 1] == []


def test_every_aggregate_is_one_of_postgresql() -> None:
    known = {each.name for each in builtin.builtins().functions.values() if each.kind == "a"}

    assert sorted(set(AGGREGATES) - known) == []


def test_every_window_function_is_one_of_postgresql() -> None:
    known = {each.key for each in builtin.builtins().functions.values() if each.kind == "w"}

    assert sorted(set(WINDOW_FUNCTIONS)) == sorted(known)


def test_every_set_is_a_function_of_postgresql_that_returns_one() -> None:
    known = {each.key for each in builtin.builtins().functions.values() if each.retset}

    assert sorted(set(SETS) - known) == []


def test_a_set_has_a_form() -> None:
    assert [key for key, each in SETS.items() if each.rows is None and each.duckdb is None] == []
