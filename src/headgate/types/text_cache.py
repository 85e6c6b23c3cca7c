"""Caches for functions that read a text, for example an array, a constant or a pattern.

Users decide how long a text is, and the results for hundreds of long ones would fill the memory. `cached` keeps results for short texts
only. `limited` also keeps those for long ones, up to a sum of their lengths. It looks a result up more slowly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

LONGEST = 4096
"""The number of characters up to which a text is short."""
T = TypeVar("T")
Others = TypeVarTuple("Others")


def cached(most: int) -> Callable[[Callable[[str, *Others], T]], Callable[[str, *Others], T]]:
    """Cache the results of a function for the `most` short texts that were used last. Results must not be modified."""

    def decorated(function: Callable[[str, *Others], T]) -> Callable[[str, *Others], T]:
        kept = functools.lru_cache(maxsize=most)(function)

        def call(text: str, *others: *Others) -> T:
            return kept(text, *others) if len(text) <= LONGEST else function(text, *others)

        call.__doc__ = function.__doc__
        return call

    return decorated


def limited(most: int, overhead: int) -> Callable[[Callable[[str, *Others], T]], Callable[[str, *Others], T]]:
    """Cache the results of a function, except None, for the texts that were used last, together at most `most` characters.

    `overhead`: the number of characters that each result counts in addition to its text. Results must not be modified.
    """

    def decorated(function: Callable[[str, *Others], T]) -> Callable[[str, *Others], T]:
        recent: dict[tuple[str, *Others], T] = {}
        earlier: dict[tuple[str, *Others], T] = {}
        size = 0

        def call(text: str, *others: *Others) -> T:
            nonlocal recent, earlier, size
            key = (text, *others)
            result = recent.get(key)
            if result is None:
                result = earlier.get(key)
                result = function(text, *others) if result is None else result
                recent[key] = result
                size += len(text) + overhead
                if size > most // 2:
                    earlier, recent, size = recent, {}, 0
            return result

        call.__doc__ = function.__doc__
        return call

    return decorated
