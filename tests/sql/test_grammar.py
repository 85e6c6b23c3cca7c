"""libpg_query in threads that stay."""

from __future__ import annotations

import ctypes
import threading

import postgast
import pytest

from headgate.sql import grammar

KEYS = ctypes.CDLL(None)


def free_keys() -> int:
    """How many keys for data of threads' own the process can still have."""
    found, key = [], ctypes.c_uint()
    while KEYS.pthread_key_create(ctypes.byref(key), None) == 0:
        found.append(key.value)
    for each in found:
        KEYS.pthread_key_delete(each)
    return len(found)


def test_each_session_took_a_key_of_the_process_with_it_until_none_was_left() -> None:
    grammar.parse("SELECT 1")
    before = free_keys()

    def session() -> None:
        tree = grammar.parse("SELECT a FROM t WHERE b = 7")
        assert grammar.deparse(tree) == "SELECT a FROM t WHERE b = 7"
        assert grammar.normalize("SELECT 7") == "SELECT $1"
        assert grammar.fingerprint("SELECT 7") == grammar.fingerprint("SELECT 8")
        assert [token.start for token in grammar.scan("a b").tokens] == [0, 2]

    threads = [threading.Thread(target=session) for _ in range(40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert free_keys() >= before - grammar.THREADS


def test_an_error_of_the_grammar_reaches_who_asked() -> None:
    with pytest.raises(postgast.PgQueryError, match='syntax error at or near "SELEC"') as caught:
        grammar.parse("SELEC 1")
    assert caught.value.cursorpos == 1
