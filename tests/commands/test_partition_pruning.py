"""An UPDATE or DELETE reads the leaves that PostgreSQL's plan reads."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from tests.storage.test_routing import COLUMNS, create, table

from headgate.catalog.relation.partition import build
from headgate.commands import stored_expression
from headgate.commands.dml import partition_pruning as prune
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.node import conjuncts
from headgate.sql.parser import parse_expression

TREE = [
    table(1, key=("l", "a")),
    table(2, 1, "FOR VALUES IN (1, 2, NULL)", ("r", "bn")),
    table(3, 2, "FOR VALUES FROM ('a', 0) TO ('m', 5)"),
    table(4, 2, "FOR VALUES FROM ('m', 5) TO (MAXVALUE, MAXVALUE)"),
    table(5, 2, "DEFAULT"),
    table(6, 1, "FOR VALUES IN (3, 4)", ("h", "b")),
    table(7, 6, "FOR VALUES WITH (modulus 2, remainder 0)"),
    table(8, 6, "FOR VALUES WITH (modulus 2, remainder 1)"),
    table(9, 1, "FOR VALUES IN (8, 9)", ("r", "n")),
    table(10, 9, "FOR VALUES FROM (MINVALUE) TO (0)"),
    table(11, 9, "FOR VALUES FROM (0) TO (10)"),
    table(12, 9, "FOR VALUES FROM (10) TO (20)"),
    table(13, 1, "DEFAULT"),
]
CONDITIONS = """
a = 1 AND b = 'm' AND n = 5
a = 1 AND b < 'b'
1 = a AND b >= 't'
a IS NULL AND b = 'm'
a < 2 AND b > 's'
a IN (2, 3) AND b IN ('a', 'b')
a >= 5 AND b = 'c'
b IS NULL
a = 8 AND n < 0
a = 8 AND n <= 0
a = 8 AND n > 9
a = 8 AND n >= 10
a = 8 AND n = 10
a = 8 AND n BETWEEN 3 AND 10
a = 8 AND n IS NULL
a = 9 AND n IS NOT NULL
a = 9 AND n IN (-1, 15)
a = 100
a > 100
a IS NOT NULL
a = 1 AND b IS NULL
b = 'x'
"""


def test_where_prunes_the_partitions_that_postgresql_prunes(postgres: Any) -> None:
    root, scope = build(TREE[0], TREE[1:]), stored_expression.scope_of(COLUMNS, "t1")
    different = []
    with psycopg.connect(postgres.conninfo(postgres.new_database()), autocommit=True) as native:
        for partition in TREE:
            native.execute(create(partition))
        for condition in CONDITIONS.strip().split("\n"):
            bound = binder.bind_condition(parse_expression(condition), scope, "WHERE", context=BindContext())
            limits = [limit for part in conjuncts(bound) if (limit := prune._limit(part, TREE[0])) is not None]
            actual = {leaf.name for leaf in prune._remaining(root, limits)}
            plan = "\n".join(row for (row,) in native.execute(f"EXPLAIN SELECT * FROM t1 WHERE {condition}").fetchall())
            expected = set(re.findall(r"Scan on (\w+)", plan))
            if actual != expected:
                different.append((condition, actual, expected))
    assert not different
