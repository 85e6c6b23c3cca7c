"""A cache for functions of one text, such as what reads an array or a constant.

Users decide how long the texts are: hundreds of results for long ones would fill the memory. So only short texts are cached.
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
