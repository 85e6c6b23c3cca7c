"""Permutations of the steps of concurrent sessions, as in PostgreSQL's isolationtester, on PostgreSQL and on a node.

A `Spec` has the tables, the statements of each session, and the queries at the end. A permutation is one order of the steps of all sessions
(`Spec.permutations`). Orders in which the sessions run one after another are omitted. Some permutations are drawn, the same ones in each
run. Each runs on both servers (`Stage.perform`), and the outcomes are compared (`judgement`):

    BEGIN      is not a step: it is sent together with the next statement
    waiting    while a step waits for a lock (`Play.settle`), the steps of other sessions continue
    deferred   a step of a session that still waits for a result is sent as soon as the session has the result, before the next step
    stuck      a step that still waits after all steps have been sent waits for no session. "stuck" is its result, its session is
               cancelled, and the session's deferred steps are not sent

Between two permutations the schema public is created again, or only its rows if no step changes a definition.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.server.judgement import Arrangement, Outcome, Step, Verdict, judge
from tests.server.play import STEADY, Play

READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE = "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"
_log = logging.getLogger("tests.permutation")

LEVELS = (READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE)
SLOW_SECONDS = 1.5
"""A step that has waited this long after all steps were sent is stuck. A step that is merely slow takes less time."""

CATALOG = (
    "SELECT relname::text, relkind::text FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
    "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
    " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, a.attnum",
    "SELECT conname::text, contype::text, conrelid::regclass::text, convalidated FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 3",
    "SELECT inhrelid::regclass::text, inhparent::regclass::text FROM pg_inherits ORDER BY 1",
    "SELECT pubname::text FROM pg_publication ORDER BY 1",
    "SELECT pubname::text, tablename::text, attnames::text[], rowfilter FROM pg_publication_tables ORDER BY 1, 2",
    "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY 1",
)
"""Queries for the definitions at the end."""


@dataclass(frozen=True)
class Spec:
    """The sessions and their steps. `setup` creates the tables and `rows` fills them. `queries`: those at the end.

    `take`: the number of permutations. `level`: the isolation level of each BEGIN. `may`: the verdicts that are not failures.
    """

    setup: str
    rows: str
    sessions: dict[str, tuple[str, ...]]
    queries: tuple[str, ...] = ()
    take: int = 6
    level: str = READ_COMMITTED
    may: frozenset[Verdict] = frozenset({Verdict.EQUAL, Verdict.WAITED})
    definitions: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        changing = re.compile(r"CREATE|ALTER|DROP")
        statements = [sql for steps in self.sessions.values() for sql in steps]
        object.__setattr__(self, "definitions", any(changing.match(sql) for sql in statements))

    @property
    def allowed(self) -> frozenset[Verdict]:
        """The verdicts that are not failures. With SERIALIZABLE, a node may reject other transactions than PostgreSQL does."""
        return self.may | ({Verdict.REFUSED, Verdict.SERIAL} if self.level == SERIALIZABLE else set())

    def text(self, step: Step) -> tuple[str, ...]:
        """Return the statements of a step, with BEGIN if it is the first of a transaction."""
        steps = self.sessions[step.session]
        begin = [f"BEGIN ISOLATION LEVEL {self.level}"] if step.number and steps[step.number - 1] == "BEGIN" else []
        return (*begin, steps[step.number])

    def steps(self) -> dict[str, list[Step]]:
        """Return the steps of each session."""
        return {
            name: [Step(name, number) for number, sql in enumerate(statements) if sql != "BEGIN"]
            for name, statements in self.sessions.items()
        }

    def transactions(self) -> list[frozenset[Step]]:
        """Return the steps of each transaction. COMMIT PREPARED or ROLLBACK PREPARED of any session belongs to the prepared one."""
        transactions: list[list[Step]] = []
        prepared: dict[str, list[Step]] = {}
        ends: list[tuple[str, Step]] = []
        for name, statements in self.sessions.items():
            inside = False
            for step in self.steps()[name]:
                sql = statements[step.number]
                if end := re.fullmatch(r"(?:COMMIT|ROLLBACK) PREPARED (.*)", sql):
                    ends.append((end[1], step))
                    continue
                begins = len(self.text(step)) > 1
                if begins or not inside:
                    transactions.append([])
                transactions[-1].append(step)
                inside = (inside or begins) and not re.fullmatch(r"COMMIT|ROLLBACK|PREPARE TRANSACTION .*", sql)
                if end := re.fullmatch(r"PREPARE TRANSACTION (.*)", sql):
                    prepared[end[1]] = transactions[-1]
        for gid, step in ends:
            prepared[gid].append(step)
        return [frozenset(steps) for steps in transactions]

    def reads(self) -> frozenset[Step]:
        """Return the SELECTs that take no lock on a node."""
        if self.level != READ_COMMITTED:
            return frozenset()
        return frozenset(
            step for steps in self.steps().values() for step in steps
            if re.match(r"SELECT", self.text(step)[-1]) and not re.search(r"FOR (UPDATE|SHARE|NO KEY|KEY)", self.text(step)[-1])
        )  # fmt: skip

    def permutations(self, seed: str) -> list[tuple[Step, ...]]:
        """Return some of the orders of all steps: the same ones for the same seed."""
        steps = self.steps()
        letters = [name for name, session_steps in steps.items() for _ in session_steps]
        chosen_orders: dict[tuple[str, ...], None] = {}
        chance = random.Random(seed)
        for _ in range(60 * self.take):
            chance.shuffle(letters)
            if len(list(itertools.groupby(letters))) > len(steps):
                chosen_orders.setdefault(tuple(letters))
            if len(chosen_orders) == self.take:
                break
        return [tuple(_in_turn(steps, letters_drawn)) for letters_drawn in chosen_orders]


def _in_turn(steps: dict[str, list[Step]], names: Sequence[str]) -> Iterator[Step]:
    remaining = {name: iter(session_steps) for name, session_steps in steps.items()}
    for name in names:
        yield next(remaining[name])


class Stage:
    """A server that runs the permutations of one spec."""

    def __init__(self, play: Play, spec: Spec) -> None:
        self.play, self.spec = play, spec
        self._made = False

    def prepare(self) -> None:
        """Create the tables of the spec and their rows."""
        if self._made and not self.spec.definitions:
            tables = ", ".join(re.findall(r"CREATE TABLE (\w+)", self.spec.setup))
            self.make(f"TRUNCATE {tables}; {self.spec.rows}")
        else:
            self.make(
                f"DROP PUBLICATION IF EXISTS p, q; DROP SCHEMA public CASCADE; CREATE SCHEMA public; {self.spec.setup}; {self.spec.rows}"
            )
        self._made = True

    def make(self, sql: str) -> None:
        """Run statements that must succeed."""
        answer = self.play.say("watcher", sql)
        assert not isinstance(answer, tuple), f"{sql}: {answer}"

    def perform(self, arrangement: Arrangement) -> Outcome:
        """Run the steps in this order and return the outcome."""
        self.prepare()
        played = _Played(self.play, self.spec, arrangement.outside)
        for step in arrangement.order:
            played.add(step)
        if played.waiting:
            played.collect_slow(arrangement.order[-1])
        for step in played.waiting.values():
            played.answers[step] = "stuck"
        leftovers = self.play.rest()
        contents = [leftovers, *(_comparable(self.play.say("watcher", query)) for query in (*self.spec.queries, *CATALOG))]
        return Outcome(played.answers, contents, played.events)


class _Played:
    """The steps that have been sent, and their results. `waiting`: the step without a result, by session."""

    def __init__(self, play: Play, spec: Spec, outside: frozenset[Step]) -> None:
        self.play, self.spec, self.outside = play, spec, outside
        self.answers: dict[Step, Any] = {}
        self.events: list[tuple[Step, bool]] = []
        self.waiting: dict[str, Step] = {}
        self._deferred: list[Step] = []
        self._unbegun: set[str] = set()
        """Sessions whose BEGIN has not been sent, because the statement after it ran in a separate session."""
        self._failed: set[str] = set()
        """Sessions whose statement in a separate session has failed."""

    def add(self, step: Step) -> None:
        """Send a step, or defer it, and send deferred steps. Return when all steps without a result wait for locks."""
        self._deferred.append(step)
        self._send_deferred(step, has_results=True)

    def collect_slow(self, last: Step) -> None:
        """Collect the results of steps that are slow but not stuck."""
        while self.waiting and self._collect(last, SLOW_SECONDS):
            self._send_deferred(last, has_results=True)

    def _send_deferred(self, step: Step, *, has_results: bool) -> None:
        while has_results or self._collect(step):
            has_results = False
            for deferred in list(self._deferred):
                if self._name(deferred) not in self.waiting and deferred.session not in {
                    earlier.session for earlier in self._deferred[: self._deferred.index(deferred)]
                }:
                    self._send(deferred)
                    has_results = True

    def _name(self, step: Step) -> str:
        return f"{step.session} outside" if step in self.outside else step.session

    def _send(self, step: Step) -> None:
        self._deferred.remove(step)
        *begin, sql = self.spec.text(step)
        if step in self.outside:
            self._unbegun |= {step.session} if begin else set()
            begin = []
        elif step.session in self._unbegun:
            self._unbegun.discard(step.session)
            begin = [f"BEGIN ISOLATION LEVEL {self.spec.level}"]
        if step not in self.outside and step.session in self._failed:
            self._failed.discard(step.session)
            begin = [*begin, "SELECT 1 / 0"]
        self.waiting[self._name(step)] = step
        self.events.append((step, True))
        self.play.send(self._name(step), *begin, sql)

    def _collect(self, new: Step, least: float = STEADY) -> bool:
        """Collect results and return whether there were any. The step that unblocks others counts as answered before them."""
        results = self.play.settle(least)
        for name, answer in results:
            step = self.waiting.pop(name)
            self.answers[step] = _comparable(answer)
            if step in self.outside and isinstance(answer, tuple):
                self._failed.add(step.session)
            position = self.events.index((step, True)) + 1 if step == new and answer[:1] != ("40P01",) else len(self.events)
            self.events.insert(position, (step, False))
        return bool(results)


def _comparable(answer: Any) -> Any:
    """Return a result, or the SQLSTATE of an error. PostgreSQL reports a name in use with one of several SQLSTATEs, depending on timing."""
    if not isinstance(answer, tuple):
        return answer
    code, message = answer[:2]
    is_taken = code in {"42P06", "42P07", "42710"} or (code == "23505" and 'constraint "pg_' in message)
    return ("name taken",) if is_taken else (code,)


@dataclass
class Ensemble:
    """A spec on both servers."""

    node: Stage
    postgres: Stage

    def play(self, seed: str, take: int | None = None) -> tuple[list[Verdict], list[str]]:
        """Run the permutations. Return their verdicts, and a report of each one whose verdict the spec does not allow."""
        spec = self.node.spec
        verdicts, reports = [], []
        reruns: dict[Arrangement, Outcome] = {}

        def rerun(arrangement: Arrangement) -> Outcome:
            if arrangement not in reruns:
                reruns[arrangement] = self.postgres.perform(arrangement)
            return reruns[arrangement]

        for order in spec.permutations(seed)[:take]:
            on_node = self.node.perform(Arrangement(order))
            on_postgres = rerun(Arrangement(order))
            verdict = judge(on_node, on_postgres, order, spec.transactions(), rerun, spec.reads())
            verdicts.append(verdict)
            report = _report(spec, seed, verdict, order, on_node, on_postgres)
            _log.info("%s", report)
            if verdict not in spec.allowed:
                reports.append(report)
        return verdicts, reports


def _report(spec: Spec, seed: str, verdict: Verdict, order: Sequence[Step], node: Outcome, postgres: Outcome) -> str:
    lines = [f"{seed} ({spec.level}): {verdict}", "  steps: " + " ".join(f"{step.session}{step.number}" for step in order)]
    if verdict is not Verdict.EQUAL:
        for where, outcome in (("node", node), ("PostgreSQL", postgres)):
            lines.append(f"  {where}")
            for step, is_sent in outcome.events:
                suffix = "" if is_sent else f" -> {outcome.answers[step]}"
                lines.append(
                    f"    {step.session}{step.number} {'; '.join(spec.text(step))}{suffix}"
                    if is_sent
                    else f"    {step.session}{step.number}{suffix}"
                )
            stuck = [step for step, answer in outcome.answers.items() if answer == "stuck"]
            lines += [f"    {step.session}{step.number} is stuck" for step in stuck]
        for on_node, on_postgres, query in zip(node.contents, postgres.contents, ("left prepared", *spec.queries, *CATALOG), strict=True):
            if on_node != on_postgres:
                lines.append(f"  {query}\n    node       {on_node}\n    PostgreSQL {on_postgres}")
    return "\n".join(lines)
