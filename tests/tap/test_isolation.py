"""PostgreSQL's isolation tests (src/test/isolation) have PostgreSQL's results on a node, except for the differences listed here.

Each permutation of a spec runs in isolationtester, on a PostgreSQL and on a node. If the outputs differ, because a node locks tables
instead of rows, `judge` decides whether the node's results are correct. A permutation without a correct result must be listed in
`expected_permutations.py`, with its reason. A listed one that has a correct result fails the test too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.conftest import Server
from tests.server.judgement import Verdict
from tests.server.permutation import Ensemble
from tests.server.play import Play
from tests.tap import isolation_spec, source
from tests.tap.expected_permutations import ADAPTED, DIFFERENT, NOT_RUN
from tests.tap.isolation_spec import IsolationSpec, PermutationStage, of_permutation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MOST = 6
"""The number of permutations of a spec that are run."""
SPECS = """
    aborted-keyrevoke alter-table-1 alter-table-2 alter-table-3 alter-table-4 async-notify classroom-scheduling create-trigger deadlock-hard
    deadlock-simple deadlock-soft deadlock-soft-2 delete-abort-savept delete-abort-savept-2 detach-partition-concurrently-1
    detach-partition-concurrently-2 drop-index-concurrently-1 eval-plan-qual-trigger fk-contention fk-deadlock fk-deadlock2
    fk-partitioned-1 fk-partitioned-2 fk-snapshot freeze-the-dead index-only-scan inplace-inval insert-conflict-do-nothing
    insert-conflict-do-nothing-2 insert-conflict-do-update insert-conflict-do-update-2 insert-conflict-do-update-3
    insert-conflict-do-update-4 intra-grant-inplace lock-committed-keyupdate lock-committed-update lock-update-delete
    lock-update-traversal merge-delete merge-insert-update merge-join merge-match-recheck merge-update multiple-cic
    multiple-row-versions multixact-no-deadlock multixact-no-forget nowait nowait-2 nowait-3 nowait-4 nowait-5 partial-index
    partition-concurrent-attach partition-drop-index-locking partition-key-update-1 partition-key-update-2 partition-key-update-3
    partition-key-update-4 predicate-lock-hot-tuple project-manager propagate-lock-delete read-only-anomaly read-write-unique
    read-write-unique-2 read-write-unique-3 read-write-unique-4 receipt-report referential-integrity reindex-concurrently ri-trigger
    sequence-ddl simple-write-skew skip-locked skip-locked-2 skip-locked-3 skip-locked-4 temporal-range-integrity timeouts total-cash
    truncate-conflict tuplelock-conflict tuplelock-partition tuplelock-update tuplelock-upgrade-no-deadlock two-ids update-conflict-out
    update-locked-tuple vacuum-concurrent-drop vacuum-conflict vacuum-skip-locked
""".split()


class Pair:
    """A node and a PostgreSQL, each with a database for one spec."""

    def __init__(self, node: Server, postgres: Server) -> None:
        self._databases = [(server, server.new_database()) for server in (node, postgres)]
        self._plays: tuple[Play, Play] | None = None

    def printed(self, spec: IsolationSpec, name: str) -> Iterator[tuple[str, str]]:
        """Return what isolationtester prints for each permutation, on the node and on PostgreSQL."""
        yield from zip(*(self._printed(spec, name, server, database) for server, database in self._databases), strict=True)

    def _printed(self, spec: IsolationSpec, name: str, server: Server, database: str) -> list[str]:
        printed: list[str] = []
        while len(printed) < len(spec.permutations):
            server.psql(database, "SET client_min_messages = error; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            remaining = replace(spec, permutations=spec.permutations[len(printed) :])
            part, error = isolation_spec.run(remaining, name, server.conninfo(database, application_name=f"isolation/{name}"))
            printed += [*part[:-1], f"{part[-1]}\n{error}"] if part and error else part or [error]
        return printed

    def verdict(self, spec: IsolationSpec, permutation: tuple[str, ...]) -> tuple[Verdict, str]:
        """Return the verdict on a permutation, and a report of it."""
        if self._plays is None:
            (node, on_node), (postgres, on_postgres) = self._databases
            self._plays = Play(node, on_node), Play(postgres, on_postgres)
        one = of_permutation(spec, permutation)
        stages = [PermutationStage(play, one) for play in self._plays]
        [verdict], reports = Ensemble(*stages).play("permutation")
        return verdict, "\n".join(reports)

    def close(self) -> None:
        for play in self._plays or ():
            play.close()


@pytest.fixture
def pair(node: Server, postgres: Server) -> Iterator[Pair]:
    """Both servers."""
    servers = Pair(node, postgres)
    yield servers
    servers.close()


def read_spec(name: str) -> IsolationSpec:
    """Return a spec with at most `MOST` of its permutations, and without the SQL that nodes do not support if it is only a part."""
    text = (source.fetch_source() / "src/test/isolation/specs" / f"{name}.spec").read_text()
    for pattern, replacement in ADAPTED.get(name, {}).items():
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    spec = isolation_spec.parse(text)
    runnable = [names for names in spec.permutations if {name.partition("(")[0].strip('"') for name in names} <= spec.steps.keys()]
    count = min(MOST, len(runnable))
    return replace(spec, permutations=tuple(runnable[number * len(runnable) // count] for number in range(count)))


@pytest.mark.parametrize("name", SPECS)
def test_permutations_have_the_results_that_postgresql_gives(name: str, pair: Pair) -> None:
    spec, differences = read_spec(name), DIFFERENT.get(name, {})
    failures: list[str] = []
    used: set[str] = set()
    for permutation, (on_node, on_postgres) in zip(spec.permutations, pair.printed(spec, name), strict=True):
        verdict, report = (Verdict.EQUAL, "") if on_node == on_postgres else pair.verdict(spec, permutation)
        text = " ".join(names.strip('"') for names in permutation)
        pattern = next((pattern for pattern in differences if re.search(pattern, f"{text}\n{on_node}")), None)
        if verdict is Verdict.FAILURE and pattern is None:
            failures.append(f"{text}\n{report}\n--- node\n{on_node}\n--- PostgreSQL\n{on_postgres}")
        elif verdict is Verdict.FAILURE and pattern is not None:
            used.add(pattern)
    assert not failures, "\n\n".join(failures)
    assert used or not differences, "no listed difference occurred"


def test_every_spec_of_the_source_package_is_listed() -> None:
    folder = source.fetch_source() / "src/test/isolation/specs"
    assert sorted([*SPECS, *NOT_RUN]) == sorted(path.stem for path in folder.glob("*.spec"))
