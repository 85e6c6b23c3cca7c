"""The cache of PL/pgSQL functions is limited by the length of their texts."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from headgate.commands.function import body
from headgate.commands.function.body import Body
from headgate.commands.function.host import Prepared
from headgate.plpgsql import compiler


def test_few_long_bodies_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: OrderedDict[object, Body] = OrderedDict()
    monkeypatch.setattr(body, "_kept", kept)
    monkeypatch.setattr(body, "_lengths", {})
    function = Body(compiler.compiled("BEGIN END", "f", [], "", lambda _: False), Prepared(), None, None)
    for number, length in enumerate([1_000, 1_000_000, 1_000_000, 90_000, 9_000_000]):
        body._keep({("tree", number): function, ("names", number): function}, length)
        assert sum(body._lengths.values()) <= max(body.MOST_CHARACTERS, 2 * length)
    assert list(kept) == [("tree", 4), ("names", 4)]
