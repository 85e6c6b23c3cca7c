"""A process that writes in a loop until it is killed: ``python tests/storage/crash.py DIR SETTINGS``.

Transaction n appends row n to A and sets B's only row to n. Every third one also creates table 30000+n. Before each transaction, another one
is rolled back. The process prints n after the commit of transaction n.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.storage.tables import DATABASE, INT4, INT8, TEXT, change, contents, made, relation, rows

from headgate.catalog.catalog import Catalog
from headgate.storage.engine import Engine
from headgate.storage.spark.application import spark_session

A = relation(20000, "a", id=INT8, v=TEXT)
B = relation(20001, "b", id=INT4, w=INT8)


def main(directory: Path, settings: dict[str, str]) -> None:
    """Recover, create the tables if they do not exist, and write in an endless loop."""
    session = spark_session.start(settings, scratch=directory / "pgsql_tmp")
    engine = Engine(settings, Catalog.open(directory / "catalog.duckdb"), directory, session=session)
    for line in engine.recover():
        print("recovered:", line, flush=True)
    if (DATABASE, B.oid) not in engine.tables.visible:
        made(engine, A)
        made(engine, B, (1, 0))
    number = len(contents(engine, A))
    print("ready", number, flush=True)
    while True:
        number += 1
        undone = engine.begin(DATABASE)
        undone.append(A, rows(A, (-number, "rolled back")))
        undone.rollback()
        transaction = engine.begin(DATABASE)
        transaction.append(A, rows(A, (number, "x")))
        if number % 3 == 0:
            transaction.ddl.create(relation(30000 + number, f"t{number}", id=INT4))
        change(transaction, B, "id = 1", w=str(number))
        transaction.commit()
        print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
