"""Permutations of the steps of sessions, in the manner of PostgreSQL's isolationtester, on a PostgreSQL and on a node.

A `Spec` says what is there, what each session says step by step, and what is asked at the end. Of all ways to put the steps of the
sessions in one order (`permutations`; those where one session comes behind the other left out) some are drawn, the same in each run, and
each is played on both servers (`Stage.perform`) and judged (`judgement`):

    BEGIN      is no step: it is said with the statement behind it
    waits      a step that waits for a lock (`Play.settle`) lets the others go on
    deferred   a step of a session that still waits for an answer is said as soon as the session has it, before the next step
    stuck      what still waits when all has been said has nobody to wait for: that is its answer, the session is cancelled, and what
               was deferred behind it is not said

Between two permutations everything in the schema public is made anew; where no step changes a definition, only its rows.
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
"""Who seems to wait for a lock so long, when nobody has it, waits for ever: nobody is that slow on a busy machine."""

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
"""What definitions there are at the end."""


@dataclass(frozen=True)
class Spec:
    """See the module. `rows` fill what `setup` makes; `level` is that of each BEGIN; `may`: what the node may differ in."""

    setup: str
    rows: str
    sessions: dict[str, tuple[str, ...]]
    asked: tuple[str, ...] = ()
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
        """`may`; SERIALIZABLE refuses more, and others than PostgreSQL does."""
        return self.may | ({Verdict.REFUSED, Verdict.SERIAL} if self.level == SERIALIZABLE else set())

    def text(self, step: Step) -> tuple[str, ...]:
        """What a step says: BEGIN too where it is the first of a transaction."""
        steps = self.sessions[step.session]
        begin = [f"BEGIN ISOLATION LEVEL {self.level}"] if step.number and steps[step.number - 1] == "BEGIN" else []
        return (*begin, steps[step.number])

    def steps(self) -> dict[str, list[Step]]:
        """The steps of each session."""
        return {
            name: [Step(name, number) for number, sql in enumerate(statements) if sql != "BEGIN"]
            for name, statements in self.sessions.items()
        }

    def transactions(self) -> list[frozenset[Step]]:
        """The steps of each transaction; what ends a prepared one is of it, whoever says it."""
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
        """The SELECTs that take no lock on a node."""
        if self.level != READ_COMMITTED:
            return frozenset()
        return frozenset(
            step for steps in self.steps().values() for step in steps
            if re.match(r"SELECT", self.text(step)[-1]) and not re.search(r"FOR (UPDATE|SHARE|NO KEY|KEY)", self.text(step)[-1])
        )  # fmt: skip

    def permutations(self, seed: str) -> list[tuple[Step, ...]]:
        """Some of the orders of all steps; the same for the same seed."""
        steps = self.steps()
        letters = [name for name, session_steps in steps.items() for _ in session_steps]
        drawn: dict[tuple[str, ...], None] = {}
        chance = random.Random(seed)
        for _ in range(60 * self.take):
            chance.shuffle(letters)
            if len(list(itertools.groupby(letters))) > len(steps):
                drawn.setdefault(tuple(letters))
            if len(drawn) == self.take:
                break
        return [tuple(_in_turn(steps, letters_drawn)) for letters_drawn in drawn]


def _in_turn(steps: dict[str, list[Step]], names: Sequence[str]) -> Iterator[Step]:
    remaining = {name: iter(session_steps) for name, session_steps in steps.items()}
    for name in names:
        yield next(remaining[name])


class Stage:
    """A server on which the permutations of one spec are played."""

    def __init__(self, play: Play, spec: Spec) -> None:
        self.play, self.spec = play, spec
        self._made = False

    def prepare(self) -> None:
        """Makes what the spec begins with."""
        if self._made and not self.spec.definitions:
            tables = ", ".join(re.findall(r"CREATE TABLE (\w+)", self.spec.setup))
            self.make(f"TRUNCATE {tables}; {self.spec.rows}")
        else:
            self.make(
                f"DROP PUBLICATION IF EXISTS p, q; DROP SCHEMA public CASCADE; CREATE SCHEMA public; {self.spec.setup}; {self.spec.rows}"
            )
        self._made = True

    def make(self, sql: str) -> None:
        """Says what must not fail."""
        answer = self.play.say("watcher", sql)
        assert not isinstance(answer, tuple), f"{sql}: {answer}"

    def perform(self, arrangement: Arrangement) -> Outcome:
        """Plays the steps on what the spec has made, and gives the outcome."""
        self.prepare()
        played = _Played(self.play, self.spec, arrangement.outside)
        for step in arrangement.order:
            played.add(step)
        if played.asked:
            played.hear_out(arrangement.order[-1])
        for step in played.asked.values():
            played.answers[step] = "stuck"
        leftovers = self.play.rest()
        contents = [leftovers, *(_comparable(self.play.say("watcher", query)) for query in (*self.spec.asked, *CATALOG))]
        return Outcome(played.answers, contents, played.events)


class _Played:
    """Steps as they are said and answered; `asked`: those that are not answered, by who has said them."""

    def __init__(self, play: Play, spec: Spec, outside: frozenset[Step]) -> None:
        self.play, self.spec, self.outside = play, spec, outside
        self.answers: dict[Step, Any] = {}
        self.events: list[tuple[Step, bool]] = []
        self.asked: dict[str, Step] = {}
        self._deferred: list[Step] = []
        self._unbegun: set[str] = set()
        """Sessions whose BEGIN is still to be said: the statement behind it was said outside."""
        self._failed: set[str] = set()
        """Sessions whose transaction has failed outside."""

    def add(self, step: Step) -> None:
        """Says a step, or defers it, and what was deferred where that is possible now; returns when all who were asked wait."""
        self._deferred.append(step)
        self._go_on(step, said=True)

    def hear_out(self, last: Step) -> None:
        """Hears who is not stuck but slow, before it is said who is."""
        while self.asked and self._hear(last, SLOW_SECONDS):
            self._go_on(last, said=True)

    def _go_on(self, step: Step, *, said: bool) -> None:
        while said or self._hear(step):
            said = False
            for deferred in list(self._deferred):
                if self._name(deferred) not in self.asked and deferred.session not in {
                    earlier.session for earlier in self._deferred[: self._deferred.index(deferred)]
                }:
                    self._say(deferred)
                    said = True

    def _name(self, step: Step) -> str:
        return f"{step.session} outside" if step in self.outside else step.session

    def _say(self, step: Step) -> None:
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
        self.asked[self._name(step)] = step
        self.events.append((step, True))
        self.play.send(self._name(step), *begin, sql)

    def _hear(self, new: Step, least: float = STEADY) -> bool:
        """Whether somebody was answered. Who has just let others go on is answered before them, whoever hears it first."""
        heard = self.play.settle(least)
        for name, answer in heard:
            step = self.asked.pop(name)
            self.answers[step] = _comparable(answer)
            if step in self.outside and isinstance(answer, tuple):
                self._failed.add(step.session)
            position = self.events.index((step, True)) + 1 if step == new and answer[:1] != ("40P01",) else len(self.events)
            self.events.insert(position, (step, False))
        return bool(heard)


def _comparable(answer: Any) -> Any:
    """An error without its words; that a name is taken is told by PostgreSQL's look-up or by its index, as it happens."""
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
        """What was found of each permutation, and the reports of those that differ more than the spec says."""
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
        for on_node, on_postgres, query in zip(node.contents, postgres.contents, ("left prepared", *spec.asked, *CATALOG), strict=True):
            if on_node != on_postgres:
                lines.append(f"  {query}\n    node       {on_node}\n    PostgreSQL {on_postgres}")
    return "\n".join(lines)
