"""libpg_query's functions (postgast), called in a few permanent threads.

libpg_query creates a key for thread-local data in each thread that calls it, and releases none; a process has 1,024. A node has a thread
per session, so after a thousand sessions no further code could create a key: libpq could not generate a nonce, and no subscription with a
password could connect. All code that parses or deparses SQL calls this module; nothing else calls postgast.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import postgast
from postgast.errors import check_error
from postgast.native import lib
from postgast.pg_query_pb2 import ParseResult, ScanResult

T = TypeVar("T")

THREADS = 2
_pool = ThreadPoolExecutor(THREADS, "grammar")


def _begin_anew() -> None:
    """Replace the thread pool in a forked process, which does not have its threads."""
    global _pool  # noqa: PLW0603 (the forked process is another one)
    _pool = ThreadPoolExecutor(THREADS, "grammar")


os.register_at_fork(after_in_child=_begin_anew)


def _call(function: Callable[..., T], *arguments: object) -> T:
    try:
        future = _pool.submit(function, *arguments)
    except RuntimeError:  # the interpreter is shutting down, or no thread can be started
        return function(*arguments)
    return future.result()


def parse(text: str) -> ParseResult:
    """Return the parse tree of a text. Raise postgast.PgQueryError."""
    return _call(postgast.parse, text)


def deparse(tree: object) -> str:
    """Return a statement's text. Raise postgast.PgQueryError."""
    return str(_call(postgast.deparse, tree))


def scan(text: str) -> ScanResult:
    """Return the tokens of a text. Raise postgast.PgQueryError."""
    return _call(postgast.scan, text)


def parse_plpgsql(text: str) -> str:
    """Return libpg_query's tree of a CREATE FUNCTION in PL/pgSQL, as JSON that may be malformed. Raise postgast.PgQueryError."""
    return _call(_parse_plpgsql, text)


def _parse_plpgsql(text: str) -> str:
    """Parse as `postgast.parse_plpgsql`, which cannot read the JSON of a trigger function."""
    result = lib.pg_query_parse_plpgsql(text.encode())
    try:
        check_error(result)
        return str(result.plpgsql_funcs.decode())
    finally:
        lib.pg_query_free_plpgsql_parse_result(result)


def normalize(text: str) -> str:
    """Return a statement's text with $1… in place of its constants. Raise postgast.PgQueryError."""
    return str(_call(postgast.normalize, text))


def fingerprint(text: str) -> int:
    """Return the fingerprint, which is equal for statements that differ only in constants. Raise postgast.PgQueryError."""
    return int(_call(postgast.fingerprint, text).fingerprint)
