"""The specs of PostgreSQL's isolation tests (src/test/isolation), and how their permutations run on a server.

A spec has SQL that sets up and tears down its tables, sessions with named steps, and permutations of the steps. `run` passes the text to
PostgreSQL's own program, isolationtester, and returns what it prints for each permutation. `of_permutation` returns one permutation as a
`Spec` of `tests.server.permutation`, which can run its steps in other orders too, so that `judge` can decide about a difference.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tests.conftest import PG_BIN
from tests.server.judgement import Arrangement, Outcome, Step
from tests.server.permutation import Spec, Stage

TESTER = PG_BIN.parent / "lib/pgxs/src/test/isolation/isolationtester"
STEP_SECONDS = 8
"""Seconds after which isolationtester cancels a step that waits while its session's next step is due."""

_TOKEN = re.compile(r'\s+|#[^\n]*|\{(?P<sql>[^}]*)\}|"(?P<quoted>[^"]*)"|(?P<word>[A-Za-z_][\w-]*|\d+)|(?P<mark>[(),*])')
_BEGIN = re.compile(r"\s*(?:BEGIN|START TRANSACTION)\b", re.IGNORECASE)
_END = re.compile(r"\s*(?:COMMIT|ROLLBACK|ABORT|END|PREPARE TRANSACTION\s.*)\s*;?\s*$", re.IGNORECASE | re.DOTALL)
_SECONDS = 180


@dataclass(frozen=True)
class Session:
    """A session of a spec: its steps by name, and the SQL before and after them."""

    name: str
    steps: dict[str, str]
    setup: str = ""
    teardown: str = ""


@dataclass(frozen=True)
class IsolationSpec:
    """A spec. `permutations` has the steps' names, each with what isolationtester is to wait for, such as `step1(*)`."""

    setup: tuple[str, ...]
    teardown: str
    sessions: tuple[Session, ...]
    permutations: tuple[tuple[str, ...], ...]

    @property
    def steps(self) -> dict[str, tuple[str, str]]:
        """Return the name of the session and the SQL of each step."""
        return {name: (session.name, sql) for session in self.sessions for name, sql in session.steps.items()}

    def text(self) -> str:
        """Return the spec in isolationtester's language."""
        lines = [f"setup {{{sql}}}" for sql in self.setup]
        lines += [f"teardown {{{self.teardown}}}"] if self.teardown else []
        for session in self.sessions:
            lines.append(f'session "{session.name}"')
            lines += [f"setup {{{session.setup}}}"] if session.setup else []
            lines += [f'step "{name}" {{{sql}}}' for name, sql in session.steps.items()]
            lines += [f"teardown {{{session.teardown}}}"] if session.teardown else []
        return "\n".join([*lines, *(f"permutation {' '.join(names)}" for names in self.permutations)])


def parse(text: str) -> IsolationSpec:
    """Return the spec with this text. A spec without permutations has all of them."""
    words = list(_words(text))
    setup, teardown, sessions, permutations = [], "", list[Session](), list[tuple[str, ...]]()
    while words:
        match words.pop(0):
            case "setup":
                sql = words.pop(0)[1:-1]
                if sessions:
                    sessions[-1] = replace(sessions[-1], setup=sql)
                else:
                    setup.append(sql)
            case "teardown":
                sql = words.pop(0)[1:-1]
                if sessions:
                    sessions[-1] = replace(sessions[-1], teardown=sql)
                else:
                    teardown = sql
            case "session":
                sessions.append(Session(words.pop(0), {}))
            case "step":
                name = words.pop(0)
                sessions[-1].steps[name] = words.pop(0)[1:-1]
            case "permutation":
                permutations.append(tuple(_steps(words)))
            case word:
                raise AssertionError(word)
    if not permutations:
        permutations = list(_all_orders([tuple(session.steps) for session in sessions]))
    return IsolationSpec(tuple(setup), teardown, tuple(sessions), tuple(permutations))


def _words(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        matched = _TOKEN.match(text, place)
        assert matched, text[place:]
        place = matched.end()
        if matched["sql"] is not None:
            yield f"{{{matched['sql']}}}"
        elif word := matched["quoted"] or matched["word"] or matched["mark"]:
            yield word


def _steps(words: list[str]) -> Iterator[str]:
    while words and words[0] != "permutation":
        name = f'"{words.pop(0)}"'
        if words and words[0] == "(":
            end = words.index(")")
            marks = [word if word in "(,*" or word == "notices" or word.isdigit() else f'"{word}"' for word in words[:end]]
            name += " ".join(marks) + ")"
            del words[: end + 1]
        yield name


def _all_orders(piles: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    if not any(piles):
        yield ()
    for number, pile in enumerate(piles):
        if pile:
            for rest in _all_orders([*piles[:number], pile[1:], *piles[number + 1 :]]):
                yield (f'"{pile[0]}"', *rest)


def run(spec: IsolationSpec, name: str, conninfo: str) -> tuple[list[str], str]:
    """Run a spec in isolationtester. Return what it printed for each permutation that it began, and the error with which it ended, if any."""
    environment = {
        **os.environ,
        "PGAPPNAME": f"isolation/{name}",
        "PGDATESTYLE": "Postgres, MDY",
        "PGISOLATIONTIMEOUT": str(STEP_SECONDS),
        "PGTZ": "PST8PDT",
    }
    with subprocess.Popen(
        [TESTER, conninfo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as tester:
        try:
            printed, errors = tester.communicate(spec.text(), timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            tester.kill()
            printed, errors = tester.communicate()
            errors += f"\nisolationtester ran for more than {_SECONDS} seconds"
    lines = [line for line in errors.splitlines() if not line.startswith("unused step name: ")]
    return [part.partition("\n")[2].strip("\n") for part in printed.split("\nstarting permutation:")[1:]], "\n".join(lines).strip()


@dataclass(frozen=True)
class PermutationSpec(Spec):
    """One permutation of an isolation spec.

    `setups`: the SQL that creates its tables. `before`: the SQL of each session before its steps. `after`: the teardown.
    """

    setups: tuple[str, ...] = ()
    before: dict[str, str] = field(default_factory=dict)
    after: str = ""
    order: tuple[Step, ...] = ()

    def text(self, step: Step) -> tuple[str, ...]:
        """Return the statements of a step."""
        return (self.sessions[step.session][step.number],)

    def transactions(self) -> list[frozenset[Step]]:
        """Return the steps of each transaction."""
        transactions: list[list[Step]] = []
        for name, steps in self.steps().items():
            inside = is_new = bool(_BEGIN.match(self.before[name]))
            for step in steps:
                [sql] = self.text(step)
                begins = not inside and bool(_BEGIN.match(sql))
                if begins or is_new or not inside:
                    transactions.append([])
                transactions[-1].append(step)
                is_new = False
                inside = (inside or begins) and not _END.search(sql)
        return [frozenset(steps) for steps in transactions]

    def steps(self) -> dict[str, list[Step]]:
        """Return the steps of each session."""
        return {name: [Step(name, number) for number in range(len(statements))] for name, statements in self.sessions.items()}

    def permutations(self, seed: str) -> list[tuple[Step, ...]]:
        """Return the permutation."""
        return [self.order]

    def reads(self) -> frozenset[Step]:
        """Return the SELECTs that take no lock on a node."""
        steps = [step for session_steps in self.steps().values() for step in session_steps]
        return frozenset(
            step for step in steps
            if re.match(r"\s*SELECT\b", self.text(step)[0], re.IGNORECASE)
            and not re.search(r"\bFOR\s+(UPDATE|SHARE|NO\s+KEY|KEY)\b|pg_\w*lock", self.text(step)[0], re.IGNORECASE)
        )  # fmt: skip


def of_permutation(spec: IsolationSpec, permutation: tuple[str, ...]) -> PermutationSpec:
    """Return a permutation as a spec whose steps can run in other orders."""
    statements: dict[str, list[str]] = {session.name: [] for session in spec.sessions}
    order = []
    for name in permutation:
        session, sql = spec.steps[name.partition("(")[0].strip('"')]
        order.append(Step(session, len(statements[session])))
        statements[session].append(sql)
    tables = dict.fromkeys(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", "\n".join(spec.setup), re.IGNORECASE))
    return PermutationSpec(
        setup="",
        rows="",
        setups=spec.setup,
        sessions={name: tuple(steps) for name, steps in statements.items()},
        queries=tuple(f"SELECT t::text FROM {table} t ORDER BY 1" for table in tables),
        before={session.name: session.setup for session in spec.sessions},
        after=spec.teardown,
        order=tuple(order),
    )


class PermutationStage(Stage):
    """A server that runs a permutation of an isolation spec in the orders that are asked for."""

    spec: PermutationSpec

    def prepare(self) -> None:
        """Create the tables, and set up the sessions."""
        if self.spec.after:
            self.play.say("watcher", self.spec.after)
        self.make("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        for sql in self.spec.setups:
            self.make(sql)
        for name, sql in self.spec.before.items():
            self.play.say(name, "DISCARD ALL")
            if sql:
                self.play.say(name, sql)

    def perform(self, arrangement: Arrangement) -> Outcome:
        """Run the steps in this order and return the outcome, with sorted rows for a query that does not sort them."""
        outcome = super().perform(arrangement)
        answers = {
            step: sorted(answer, key=str) if isinstance(answer, list) and "ORDER BY" not in self.spec.text(step)[0].upper() else answer
            for step, answer in outcome.answers.items()
        }
        return replace(outcome, answers=answers)
