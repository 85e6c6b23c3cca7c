"""Write src/headgate/settings/encodings.json: the differences between PostgreSQL 15's conversions and Python's codecs.

Run it against a PostgreSQL 15 with the encoding UTF8: ``python tools/dump_encodings.py "host=… user=postgres"``. Only multibyte encodings
differ. Bytes that are not a character in PostgreSQL are not written, because `headgate.settings.encoding` rejects them itself.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

import psycopg

from headgate.settings.encoding import CHARACTER, CODECS

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
    """Return all byte strings that PostgreSQL accepts as a character of up to three bytes."""
    whole = re.compile(CHARACTER[name], re.DOTALL)
    candidates = [bytes(values) for size in (1, 2) for values in product(range(0x80, 0x100), *[range(1, 0x100)] * (size - 1))]
    candidates += [bytes([0x8F, *values]) for values in product(range(0xA1, 0x100), repeat=2)]
    return [raw for raw in candidates if whole.fullmatch(raw)]


def numbers(values: Iterable[int]) -> str:
    """Return numbers in hexadecimal, and consecutive ones as ranges."""
    runs: list[list[int]] = []
    for number in sorted(values):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in runs)


def pairs(mapping: Mapping[int, int]) -> str:
    """Return a mapping as hexadecimal pairs. Consecutive pairs are written as the first one and their number."""
    runs: list[list[int]] = []
    for key, value in sorted(mapping.items()):
        if runs and runs[-1][0] + runs[-1][2] == key and runs[-1][1] + runs[-1][2] == value:
            runs[-1][2] += 1
        else:
            runs.append([key, value, 1])
    return " ".join(f"{key:x}:{value:x}" + (f"+{count}" if count > 1 else "") for key, value, count in runs)


def python_encodes(name: str) -> dict[int, bytes]:
    """Return the bytes of each code point that `encoding` uses of Python's codec."""
    encoded = ((code, chr(code).encode(CODECS[name], "ignore")) for code in range(0x80, 0x10000))
    whole = re.compile(CHARACTER[name], re.DOTALL)
    return {code: raw for code, raw in encoded if not raw.isascii() and len(raw) < 4 and (len(raw) > 1 or whole.match(raw))}


def python_decodes(name: str) -> dict[bytes, str]:
    """Return the character of each byte string that `encoding` uses of Python's codec."""
    decoded = ((raw, raw.decode(CODECS[name], "replace")) for raw in codes(name))
    return {raw: shown for raw, shown in decoded if len(shown) == 1 and shown != "\ufffd"}


def differences(session: psycopg.Connection, name: str) -> dict[str, str]:
    """Return the differences of one encoding, as encodings.json has them."""
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
    """Write the differences of each encoding. The first argument is the conninfo of the server."""
    with psycopg.connect(sys.argv[1]) as session:
        session.execute(FUNCTIONS)  # type: ignore[arg-type]
        encodings = {name: differences(session, name) for name in CHARACTER if name != "GB18030"}
    different = {name: texts for name, texts in encodings.items() if any(texts.values())}
    TARGET.write_text(json.dumps(different, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
