"""Whether what a node made of a permutation of sessions may differ from what PostgreSQL made of it.

An outcome is what every step was answered and what is there at the end. The node's is one of these, the first that holds:

    equal      it is PostgreSQL's of the same permutation; a transaction that both refuse may be told so at different steps
    waited     it is PostgreSQL's of the steps in the order in which the node has answered them, or begun them
    serial     it is PostgreSQL's of the same transactions one after the other, in an order that no one of them could see to be wrong
    refused    transactions failed with 40001 or 40P01, on the node, or on PostgreSQL where they failed otherwise on the node, and the rest is
               one of the above for PostgreSQL without these transactions
    unlocked   it is one of the above where each SELECT of a READ COMMITTED transaction is run outside of it, as one of its own: readers
               take no locks on a node
    failure    it is none of these

All but `equal` and `failure` are what docs/compatibility.md says of locks; which of them may occur stands in each `Spec` (`permutation`).
Nothing here talks to a server: who judges hands over a function that runs an arrangement of the steps on PostgreSQL.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SERIALIZATION = {"40001", "40P01"}


class Step(NamedTuple):
    """A step of a session, by its place among those of the session."""

    session: str
    number: int


class Verdict(enum.StrEnum):
    """See the module."""

    EQUAL = "equal"
    WAITED = "waited"
    SERIAL = "serial"
    REFUSED = "refused"
    UNLOCKED = "unlocked"
    FAILURE = "failure"


@dataclass(frozen=True)
class Outcome:
    """`answers`: an error is its SQLSTATE in a tuple of one; `events`: steps as they were sent (True) and answered (False)."""

    answers: Mapping[Step, Any]
    contents: Any
    events: Sequence[tuple[Step, bool]] = field(default=(), compare=False)

    @property
    def order(self) -> tuple[Step, ...]:
        """The steps as they were answered."""
        return tuple(step for step, is_sent in self.events if not is_sent)

    def without(self, steps: frozenset[Step]) -> Outcome:
        """The same where nobody asks for these steps."""
        return Outcome({step: answer for step, answer in self.answers.items() if step not in steps}, self.contents)

    def failed(self, *, any_error: bool = False) -> frozenset[Step]:
        """Steps that another transaction made fail, or any error."""
        errors = ((step, answer[0]) for step, answer in self.answers.items() if isinstance(answer, tuple))
        return frozenset(step for step, code in errors if any_error or code in SERIALIZATION)


@dataclass(frozen=True)
class Arrangement:
    """Steps in an order; those of `outside` are said by sessions of their own."""

    order: tuple[Step, ...]
    outside: frozenset[Step] = frozenset()


Transactions = Sequence[frozenset[Step]]


def judge(
    node: Outcome,
    postgres: Outcome,
    given: tuple[Step, ...],
    transactions: Transactions,
    rerun: Callable[[Arrangement], Outcome],
    reads: frozenset[Step] = frozenset(),
) -> Verdict:
    """What came of the permutation `given`; `reads`: the SELECTs of READ COMMITTED transactions."""
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
        for verdict, order in _orders(node, given, apart):
            arrangement = Arrangement(tuple(step for step in order if step not in dropped), outside - dropped)
            if (arrangement, bool(dropped)) not in tried and node.without(dropped) == rerun(arrangement).without(dropped):
                return Verdict.UNLOCKED if outside else Verdict.REFUSED if dropped else verdict
            tried.add((arrangement, bool(dropped)))
    return Verdict.FAILURE


def _orders(node: Outcome, given: tuple[Step, ...], transactions: Transactions) -> Iterator[tuple[Verdict, tuple[Step, ...]]]:
    """The orders in which PostgreSQL is asked again."""
    yield Verdict.WAITED, given
    yield Verdict.WAITED, node.order
    yield Verdict.WAITED, tuple(step for step, is_sent in node.events if is_sent)
    for order in _serial(node, transactions):
        yield Verdict.SERIAL, order


def _serial(node: Outcome, transactions: Transactions) -> Iterator[tuple[Step, ...]]:
    """The transactions one after the other: who was over before another began stays before it."""
    place = {event: at for at, event in enumerate(node.events)}
    sent = lambda step: place.get((step, True), len(place))  # noqa: E731
    begun = [min(map(sent, transaction)) for transaction in transactions]
    over = [max(place.get((step, False), len(place)) for step in transaction) for transaction in transactions]

    def behind(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        remaining = [each for each in range(len(transactions)) if each not in chosen]
        if not remaining:
            yield chosen
        for each in remaining:
            if all(over[rival] > begun[each] for rival in remaining if rival != each):
                yield from behind((*chosen, each))

    for order in behind(()):
        yield tuple(step for transaction in order for step in sorted(transactions[transaction], key=sent))
