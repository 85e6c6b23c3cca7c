"""Writes src/headgate/settings/encodings.json: where PostgreSQL 15's conversions differ from Python's codecs.

Run it against a PostgreSQL 15 with the encoding UTF8 (``python tools/dump_encodings.py "host=… user=postgres"``). Only encodings of several bytes
differ. What `headgate.settings.encoding_table` leaves out by itself (bytes that PostgreSQL takes for no character) is not written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

import psycopg

from headgate.settings.encoding import CODECS
from headgate.settings.encoding_table import CHARACTER

TARGET = Path(__file__).parent.parent / "src" / "headgate" / "settings" / "encodings.json"
FUNCTIONS = """
CREATE FUNCTION pg_temp.encoded(encoding name) RETURNS TABLE (code int, raw bytea) LANGUAGE plpgsql AS $$
BEGIN
  FOR code IN SELECT generate_series(128, 65535) LOOP
    CONTINUE WHEN code BETWEEN 55296 AND 57343;
    BEGIN raw := convert_to(chr(code), encoding); RETURN NEXT; EXCEPTION WHEN OTHERS THEN NULL; END;
  END LOOP;
END $$;
CREATE FUNCTION pg_temp.decoded(given bytea[], encoding name) RETURNS TABLE (raw bytea, shown text) LANGUAGE plpgsql AS $$
BEGIN
  FOREACH raw IN ARRAY given LOOP
    BEGIN shown := convert_from(raw, encoding); RETURN NEXT; EXCEPTION WHEN OTHERS THEN NULL; END;
  END LOOP;
END $$
"""


def codes(name: str) -> list[bytes]:
    """All that PostgreSQL takes for a character of up to three bytes."""
    whole = re.compile(CHARACTER[name], re.DOTALL)
    tried = [bytes(each) for size in (1, 2) for each in product(range(0x80, 0x100), *[range(1, 0x100)] * (size - 1))]
    tried += [bytes([0x8F, *each]) for each in product(range(0xA1, 0x100), repeat=2)]
    return [raw for raw in tried if whole.fullmatch(raw)]


def numbers(found: Iterable[int]) -> str:
    """Hexadecimal numbers and ranges of them."""
    runs: list[list[int]] = []
    for number in sorted(found):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in runs)


def pairs(found: Mapping[int, int]) -> str:
    """Hexadecimal pairs; of several that go on counting on both sides the first, and how many."""
    runs: list[list[int]] = []
    for key, value in sorted(found.items()):
        if runs and runs[-1][0] + runs[-1][2] == key and runs[-1][1] + runs[-1][2] == value:
            runs[-1][2] += 1
        else:
            runs.append([key, value, 1])
    return " ".join(f"{key:x}:{value:x}" + (f"+{count}" if count > 1 else "") for key, value, count in runs)


def python_encodes(name: str) -> dict[int, bytes]:
    """What `encoding_table` takes of Python's codec."""
    made = ((code, chr(code).encode(CODECS[name], "ignore")) for code in range(0x80, 0x10000))
    whole = re.compile(CHARACTER[name], re.DOTALL)
    return {code: raw for code, raw in made if not raw.isascii() and len(raw) < 4 and (len(raw) > 1 or whole.match(raw))}


def python_decodes(name: str) -> dict[bytes, str]:
    """What `encoding_table` takes of Python's codec."""
    found = ((raw, raw.decode(CODECS[name], "replace")) for raw in codes(name))
    return {raw: shown for raw, shown in found if len(shown) == 1 and shown != "\ufffd"}


def differences(session: psycopg.Connection, name: str) -> dict[str, str]:
    """Of one encoding."""
    encoded = dict(session.execute("SELECT * FROM pg_temp.encoded(%s)", [name]).fetchall())
    decoded = dict(session.execute("SELECT * FROM pg_temp.decoded(%s, %s)", [codes(name), name]).fetchall())
    ours, read = python_encodes(name), python_decodes(name)
    return {
        "encode": pairs({code: int.from_bytes(raw, "big") for code, raw in encoded.items() if ours.get(code) != raw}),
        "not encoded": numbers(set(ours) - set(encoded)),
        "decode": pairs({int.from_bytes(raw, "big"): ord(shown) for raw, shown in decoded.items() if read.get(raw) != shown}),
        "not decoded": numbers(int.from_bytes(raw, "big") for raw in set(read) - set(decoded)),
    }


def main() -> None:
    """Asks PostgreSQL for every code."""
    with psycopg.connect(sys.argv[1]) as session:
        session.execute(FUNCTIONS)  # type: ignore[arg-type]
        found = {name: differences(session, name) for name in CHARACTER if name != "GB18030"}
    TARGET.write_text(json.dumps({name: each for name, each in found.items() if any(each.values())}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
