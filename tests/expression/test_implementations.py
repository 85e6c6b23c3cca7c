"""Each entry of `expression.implementation` has the key of a PostgreSQL function and occurs once."""

from __future__ import annotations

from collections import Counter

from headgate.expression import builtin
from headgate.expression.builtin import Function
from headgate.expression.implementation.implementations import AGGREGATE_TABLES, AGGREGATES, IMPLEMENTATIONS, TABLES
from headgate.expression.implementation.set_returning import SETS
from headgate.expression.implementation.window_function import WINDOW_FUNCTIONS


def test_function_is_in_one_table() -> None:
    keys = Counter(key for table in TABLES for key in table)

    assert [key for key, times in keys.items() if times > 1] == []


def test_entry_has_an_implementation() -> None:
    assert [key for key, entry in IMPLEMENTATIONS.items() if (entry.spark, entry.arrow, entry.duckdb) == (None, None, None)] == []


def test_every_key_is_a_function_of_postgresql() -> None:
    known_keys = {function.key for function in builtin.builtins().functions.values()}

    assert sorted(set(IMPLEMENTATIONS) - known_keys) == []


def test_template_names_only_arguments_of_the_function() -> None:
    functions: dict[str, list[Function]] = {}
    for function in builtin.builtins().functions.values():
        functions.setdefault(function.key, []).append(function)

    wrong = [
        key
        for key, function in IMPLEMENTATIONS.items()
        if isinstance(function.duckdb, str)
        for described in functions[key]
        if any(f"{index}}}" in function.duckdb for index in range(len(described.arguments), 5))
    ]

    assert wrong == []


def test_aggregate_is_in_one_table() -> None:
    names = Counter(name for table in AGGREGATE_TABLES for name in table)

    assert [name for name, times in names.items() if times > 1] == []


def test_every_aggregate_exists_in_postgresql() -> None:
    known_names = {function.name for function in builtin.builtins().functions.values() if function.kind == "a"}

    assert sorted(set(AGGREGATES) - known_names) == []


def test_every_window_function_exists_in_postgresql() -> None:
    known_keys = {function.key for function in builtin.builtins().functions.values() if function.kind == "w"}

    assert sorted(set(WINDOW_FUNCTIONS)) == sorted(known_keys)


def test_every_set_function_returns_a_set_in_postgresql() -> None:
    known_keys = {function.key for function in builtin.builtins().functions.values() if function.retset}

    assert sorted(set(SETS) - known_keys) == []


def test_set_function_has_an_implementation() -> None:
    assert [key for key, entry in SETS.items() if entry.rows is None and entry.duckdb is None] == []
