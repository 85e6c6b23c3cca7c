"""Sessions whose steps come in every order: what a node makes of it is what PostgreSQL does, or stronger in a way that is documented."""

from __future__ import annotations

import pytest
from tests.server import specs_definitions, specs_rows
from tests.server.permutation import Ensemble, Stage
from tests.server.play import Play

SPECS = {**specs_rows.SPECS, **specs_definitions.SPECS}
SLICE = (
    "OTV, an observed transaction vanishes, read committed", "G2-item, write skew, serializable", "two add a key, repeatable read",
    "DROP TABLE beside SELECT", "prepared beside INSERT",
)  # fmt: skip
"""Of these one permutation is played in each run of the suite."""


def ensemble(plays: tuple[Play, Play], name: str) -> Ensemble:
    on_node, on_postgres = (Stage(play, SPECS[name]) for play in plays)
    return Ensemble(on_node, on_postgres)


@pytest.mark.parametrize("name", SLICE)
def test_one_order_of_the_steps(plays: tuple[Play, Play], name: str) -> None:
    _, reports = ensemble(plays, name).play(name, 1)
    assert not reports, "\n".join(reports)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_the_steps_in_many_orders(plays: tuple[Play, Play], name: str) -> None:
    _, reports = ensemble(plays, name).play(name)
    assert not reports, "\n".join(reports)


def test_there_are_enough_orders() -> None:
    assert sum(len(spec.permutations(name)) for name, spec in SPECS.items()) >= 600
