"""Writes src/headgate/expression/builtin.json from a real PostgreSQL 15: its operators, functions, casts and collations.

Run by hand when the PostgreSQL version changes: ``python tools/dump_operators.py "host=… dbname=…"``. Every row is a JSON
list, whose order `headgate.expression.builtin` knows. Only built-in objects (oid below 16384) are taken.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psycopg

TARGET = Path(__file__).parent.parent / "src" / "headgate" / "expression" / "builtin.json"

QUERIES = {
    # oid, name, kind, left, right, result, function, commutator, negator
    "operators": """SELECT oid::int8, oprname::text, oprkind::text, oprleft::int8, oprright::int8, oprresult::int8, oprcode::oid::int8,
        oprcom::int8, oprnegate::int8 FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprcode <> 0 AND oid < 16384 ORDER BY oid""",
    # oid, name, kind, arguments, result, volatility, strict, variadic, retset, defaults, key of the implementation, schema
    "functions": """SELECT oid::int8, proname::text, prokind::text, proargtypes::oid[]::int8[], prorettype::int8, provolatile::text, proisstrict,
        provariadic::int8, proretset, pronargdefaults::int4, CASE WHEN prolang = 12 THEN prosrc WHEN prokind = 'f' AND prolang = 14
        THEN proname || '/' || array_to_string(proargtypes::oid[], ',') ELSE prosrc END, pronamespace::regnamespace::text
        FROM pg_proc WHERE pronamespace IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) AND oid < 16384 ORDER BY oid""",
    # source, target, function (0 = none), context, method
    "casts": """SELECT castsource::int8, casttarget::int8, castfunc::int8, castcontext::text, castmethod::text FROM pg_cast WHERE oid < 16384 ORDER BY oid""",
    # default btree operators by type: type, family, strategy, operator (both sides of the opclass' input type)
    "ordering": """SELECT c.opcintype::int8, c.opcfamily::int8, o.amopstrategy::int4, o.amopopr::int8 FROM pg_opclass c JOIN pg_amop o ON
        o.amopfamily = c.opcfamily AND o.amoplefttype = c.opcintype AND o.amoprighttype = c.opcintype
        WHERE c.opcmethod = 403 AND c.opcdefault AND c.oid < 16384 ORDER BY 1, 3""",
    # the families an operator is in: operator, family, strategy
    "families": """SELECT amopopr::int8, amopfamily::int8, amopstrategy::int4 FROM pg_amop WHERE amopmethod = 403 AND oid < 16384 ORDER BY 1, 2""",
    # collations: oid, name
    "collations": """SELECT oid::int8, collname::text FROM pg_collation WHERE oid < 16384 AND (collencoding IN (-1, 6)) ORDER BY oid""",
}


def main(conninfo: str) -> None:
    """Reads the server's catalogs and writes the file."""
    with psycopg.connect(conninfo) as connection:
        data: dict[str, list[list[object]]] = {}
        for name, query in QUERIES.items():
            rows = connection.execute(query).fetchall()
            data[name] = [list(row) for row in rows]
    lines = ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows) + "\n]"
        for name, rows in data.items()
    )
    TARGET.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
