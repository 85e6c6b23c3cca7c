"""Compares the outcome of a permutation of sessions on a node with PostgreSQL's, and decides whether the difference is allowed.

An outcome is the result of every step, and the contents at the end. The verdict on the node's outcome is the first of these that holds:

    equal      it equals PostgreSQL's for the same permutation. A transaction that both reject may fail at different steps
    waited     it equals PostgreSQL's for the steps in the order in which the node has answered them, or started them
    serial     it equals PostgreSQL's for the same transactions one after another, in an order that agrees with the times at which they ended
    refused    transactions failed with 40001 or 40P01 on the node, or on PostgreSQL if they failed with another error on the node. The
               rest is one of the above for PostgreSQL without these transactions
    unlocked   it is one of the above if each SELECT of a READ COMMITTED transaction runs in a separate transaction: readers take no locks
               on a node
    failure    none of these

docs/compatibility.md describes the differences of locks that the verdicts between `equal` and `failure` stand for. Each `Spec`
(`permutation`) has the verdicts that may occur. This module has no connection to a server: the caller passes a function that runs an
arrangement of the steps on PostgreSQL.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SERIALIZATION = {"40001", "40P01"}


class Step(NamedTuple):
    """A step of a session, with its position among the session's steps."""

    session: str
    number: int


class Verdict(enum.StrEnum):
    """The result of the comparison, as the module describes."""

    EQUAL = "equal"
    WAITED = "waited"
    SERIAL = "serial"
    REFUSED = "refused"
    UNLOCKED = "unlocked"
    FAILURE = "failure"


@dataclass(frozen=True)
class Outcome:
    """The results of steps (an error is a tuple with its SQLSTATE), the contents, and the order in which steps were sent and answered.

    `events`: a step and whether it was sent (True) or answered (False).
    """

    answers: Mapping[Step, Any]
    contents: Any
    events: Sequence[tuple[Step, bool]] = field(default=(), compare=False)

    @property
    def order(self) -> tuple[Step, ...]:
        """The steps in the order in which they were answered."""
        return tuple(step for step, is_sent in self.events if not is_sent)

    def without(self, steps: frozenset[Step]) -> Outcome:
        """Return the outcome without the results of these steps."""
        return Outcome({step: answer for step, answer in self.answers.items() if step not in steps}, self.contents)

    def failed(self, *, any_error: bool = False) -> frozenset[Step]:
        """Return the steps that failed because of another transaction, or with `any_error` all that failed."""
        errors = ((step, answer[0]) for step, answer in self.answers.items() if isinstance(answer, tuple))
        return frozenset(step for step, code in errors if any_error or code in SERIALIZATION)


@dataclass(frozen=True)
class Arrangement:
    """Steps in an order. Those of `outside` run in separate sessions."""

    order: tuple[Step, ...]
    outside: frozenset[Step] = frozenset()


Transactions = Sequence[frozenset[Step]]


def judge(
    node: Outcome,
    postgres: Outcome,
    permutation: tuple[Step, ...],
    transactions: Transactions,
    rerun: Callable[[Arrangement], Outcome],
    reads: frozenset[Step] = frozenset(),
) -> Verdict:
    """Return the verdict on the permutation. `reads`: the SELECTs of READ COMMITTED transactions."""
    none = frozenset[Step]()
    refused = [
        transaction
        for transaction in transactions
        if transaction & (node.failed() | postgres.failed()) and transaction & node.failed(any_error=True)
    ]
    by_both = none.union(*(steps for steps in refused if steps & node.failed() and steps & postgres.failed()))
    if node.without(by_both) == postgres.without(by_both):
        return Verdict.EQUAL
    lost = none.union(*refused)
    tried: set[tuple[Arrangement, bool]] = set()
    for outside, dropped in itertools.product(dict.fromkeys((none, reads)), dict.fromkeys((none, lost))):
        apart = [transaction - outside for transaction in transactions if transaction - outside] + [
            frozenset({step}) for step in sorted(outside)
        ]
        for verdict, order in _orders(node, permutation, apart):
            arrangement = Arrangement(tuple(step for step in order if step not in dropped), outside - dropped)
            if (arrangement, bool(dropped)) not in tried and node.without(dropped) == rerun(arrangement).without(dropped):
                return Verdict.UNLOCKED if outside else Verdict.REFUSED if dropped else verdict
            tried.add((arrangement, bool(dropped)))
    return Verdict.FAILURE


def _orders(node: Outcome, permutation: tuple[Step, ...], transactions: Transactions) -> Iterator[tuple[Verdict, tuple[Step, ...]]]:
    """Yield the orders of the steps to run on PostgreSQL for comparison, with their verdicts."""
    yield Verdict.WAITED, permutation
    yield Verdict.WAITED, node.order
    yield Verdict.WAITED, tuple(step for step, is_sent in node.events if is_sent)
    for order in _serial(node, transactions):
        yield Verdict.SERIAL, order


def _serial(node: Outcome, transactions: Transactions) -> Iterator[tuple[Step, ...]]:
    """Yield the serial orders of the transactions in which each one that ended before another began stays before it."""
    position = {event: index for index, event in enumerate(node.events)}
    sent = lambda step: position.get((step, True), len(position))  # noqa: E731
    begun = [min(map(sent, transaction)) for transaction in transactions]
    ended = [max(position.get((step, False), len(position)) for step in transaction) for transaction in transactions]

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        remaining = [number for number in range(len(transactions)) if number not in chosen]
        if not remaining:
            yield chosen
        for number in remaining:
            if all(ended[rival] > begun[number] for rival in remaining if rival != number):
                yield from extend((*chosen, number))

    for order in extend(()):
        yield tuple(step for transaction in order for step in sorted(transactions[transaction], key=sent))
