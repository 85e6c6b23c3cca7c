"""Sessions whose steps come in any order give PostgreSQL's result on a node, or a stronger one that is documented."""

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
"""Each run of the suite runs one permutation of each of these specs."""


def ensemble(plays: tuple[Play, Play], name: str) -> Ensemble:
    on_node, on_postgres = (Stage(play, SPECS[name]) for play in plays)
    return Ensemble(on_node, on_postgres)


@pytest.mark.parametrize("name", SLICE)
def test_one_order_of_the_steps_agrees_with_postgresql(plays: tuple[Play, Play], name: str) -> None:
    _, reports = ensemble(plays, name).play(name, 1)
    assert not reports, "\n".join(reports)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_many_orders_of_the_steps_agree_with_postgresql(plays: tuple[Play, Play], name: str) -> None:
    _, reports = ensemble(plays, name).play(name)
    assert not reports, "\n".join(reports)


def test_specs_have_at_least_600_orders() -> None:
    assert sum(len(spec.permutations(name)) for name, spec in SPECS.items()) >= 600
