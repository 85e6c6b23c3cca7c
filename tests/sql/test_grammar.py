"""libpg_query runs in permanent threads, so that sessions leak no thread-specific keys."""

from __future__ import annotations

import ctypes
import threading

import postgast
import pytest

from headgate.sql import grammar

KEYS = ctypes.CDLL(None)


def free_keys() -> int:
    """Return how many thread-specific keys (pthread_key_create) the process can still create."""
    keys, key = [], ctypes.c_uint()
    while KEYS.pthread_key_create(ctypes.byref(key), None) == 0:
        keys.append(key.value)
    for key_value in keys:
        KEYS.pthread_key_delete(key_value)
    return len(keys)


def test_sessions_leak_no_thread_specific_keys() -> None:
    grammar.parse("SELECT 1")
    keys_before = free_keys()

    def session() -> None:
        tree = grammar.parse("SELECT a FROM t WHERE b = 7")
        assert grammar.deparse(tree) == "SELECT a FROM t WHERE b = 7"
        assert grammar.normalize("SELECT 7") == "SELECT $1"
        assert grammar.fingerprint("SELECT 7") == grammar.fingerprint("SELECT 8")
        assert [token.start for token in grammar.scan("a b").tokens] == [0, 2]

    threads = [threading.Thread(target=session) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert free_keys() >= keys_before - grammar.THREADS


def test_error_of_the_grammar_is_raised_in_the_caller() -> None:
    with pytest.raises(postgast.PgQueryError, match='syntax error at or near "SELEC"') as caught:
        grammar.parse("SELEC 1")
    assert caught.value.cursorpos == 1
