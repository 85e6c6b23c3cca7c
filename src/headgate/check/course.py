"""The parts of a check in their order. Damage that prevents reading rows is found first, so that later parts can skip those tables.

A part that fails on the content of the catalog is a finding, and the others run nevertheless: a check must cope with damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headgate.check import catalogs, files, keys, log, owners, slots, subscriptions
from headgate.check.finding import RESTORE, Finding, error
from headgate.check.subject import Subject
from headgate.errors import PostgresError
from headgate.types import registry

PARTS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    catalogs.findings,
    log.findings,
    files.findings,
    keys.findings,
    slots.findings,
    subscriptions.findings,
    owners.findings,
)


def run(subject: Subject) -> Iterator[Finding]:
    """Run all parts. Yield the findings as they occur."""
    try:
        for part in PARTS:
            try:
                yield from part(subject)
            except (PostgresError, ArithmeticError, LookupError, TypeError, ValueError) as failure:
                name = part.__module__.rpartition(".")[2]
                yield error("catalog", f"the check of {name} ended in {type(failure).__name__}: {failure}", RESTORE)
    finally:
        registry.use(None)
