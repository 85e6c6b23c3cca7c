"""libpg_query's functions (postgast), called in a few threads that stay.

libpg_query makes a key for data of a thread's own in each thread that calls it, and gives none back; a process has 1,024. A node has a
thread for each session, so behind a thousand sessions nothing that needed a key for the first time could have one: libpq could not
generate a nonce any more, and no subscription with a password could connect. Called by whoever takes SQL apart or puts it together;
nothing else calls postgast.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import postgast
from postgast.errors import check_error
from postgast.native import lib
from postgast.pg_query_pb2 import ParseResult, ScanResult

T = TypeVar("T")

THREADS = 2
_pool = ThreadPoolExecutor(THREADS, "grammar")


def _begin_anew() -> None:
    """A process that was forked has none of the threads."""
    global _pool  # noqa: PLW0603 (what was forked is another process)
    _pool = ThreadPoolExecutor(THREADS, "grammar")


os.register_at_fork(after_in_child=_begin_anew)


def _called(function: Callable[..., T], *arguments: object) -> T:
    try:
        asked = _pool.submit(function, *arguments)
    except RuntimeError:  # the interpreter ends, or there is no thread to be had
        return function(*arguments)
    return asked.result()


def parse(text: str) -> ParseResult:
    """The parse tree of a text; raises postgast.PgQueryError."""
    return _called(postgast.parse, text)


def deparse(tree: Any) -> str:
    """A statement's text; raises postgast.PgQueryError."""
    return str(_called(postgast.deparse, tree))


def scan(text: str) -> ScanResult:
    """The tokens of a text; raises postgast.PgQueryError."""
    return _called(postgast.scan, text)


def parse_plpgsql(text: str) -> str:
    """What libpg_query says of a CREATE FUNCTION in PL/pgSQL, as JSON that may be malformed; raises postgast.PgQueryError."""
    return _called(_parse_plpgsql, text)


def _parse_plpgsql(text: str) -> str:
    """As `postgast.parse_plpgsql`, which cannot read the JSON of a trigger function."""
    result = lib.pg_query_parse_plpgsql(text.encode())
    try:
        check_error(result)
        return str(result.plpgsql_funcs.decode())
    finally:
        lib.pg_query_free_plpgsql_parse_result(result)


def normalize(text: str) -> str:
    """A statement's text with $1… in place of its constants; raises postgast.PgQueryError."""
    return str(_called(postgast.normalize, text))


def fingerprint(text: str) -> int:
    """What statements have in common that differ in constants alone; raises postgast.PgQueryError."""
    return int(_called(postgast.fingerprint, text).fingerprint)
