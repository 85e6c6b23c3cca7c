"""EXPLAIN: refused, because a node's plan is Spark's and would not mean what EXPLAIN's output means."""

from __future__ import annotations

from typing import Any

from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.errors import not_supported


def explain(node: Any, session: Session) -> CommandResult:
    """EXPLAIN."""
    del node, session
    raise not_supported("EXPLAIN is not supported")
