"""The protocol of the client programs: answer each line ``SCENE URL`` of the input with a line of JSON, until the input ends.

The programs in JavaScript, Go and Java do the same. An answer is ``{"said": …}``, or ``{"failed": …}`` with the error.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

VALUES = {
    "id": 1,
    "name": "Größe 'q' \\ 😀",
    "price": Decimal("12345678.90"),
    "big": -(2**63),
    "good": True,
    "real8": 0.1,
    "seen": datetime(2024, 2, 29, 10, 30, 15, 123456, UTC),
    "raw": b"\x00\xff\\'",
    "code": UUID("00112233-4455-6677-8899-aabbccddeeff"),
    "tags": ["x", None, 'y,z"'],
    "nums": [1, None, -3],
}
"""A row of the table `items`, which the tests create."""
NULLS = {"id": 2, **dict.fromkeys([name for name in VALUES if name != "id"])}


def plain(value: Any) -> Any:
    """Convert a value to its JSON form. The programs in other languages use the same forms."""
    match value:
        case list() | tuple():
            return [plain(element) for element in value]
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat()
        case Decimal() | UUID() | date():
            return str(value)
        case bytes() | memoryview():
            return bytes(value).hex()
        case int() if abs(value) >= 2**53:
            return str(value)
        case _:
            return value


def answer(scenes: dict[str, Callable[[str], Any]]) -> None:
    """Play a scene for each line of the input and print its answer."""
    for line in sys.stdin:
        name, url = line.split()
        try:
            reply = {"said": plain(scenes[name](url))}
        except Exception:  # noqa: BLE001 - the test shows it
            reply = {"failed": traceback.format_exc()}
        print(json.dumps(reply), flush=True)
