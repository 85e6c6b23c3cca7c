"""The parts of a check in their order: what keeps rows from being read first, so that later parts can pass those tables over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headgate.check import catalogs, files, keys, log, owners, slots, subscriptions
from headgate.check.finding import Finding
from headgate.check.subject import Subject
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
    """What is found, as it is found."""
    try:
        for part in PARTS:
            yield from part(subject)
    finally:
        registry.use(None)
