"""A process that writes in a loop until it is killed: ``python tests/storage/crash.py DIR SETTINGS``. After each commit it prints its number.

Transaction n appends row n to A, sets B's only row to n, makes table 30000+n in every third one, and rolls back a transaction between.
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
    """Recovers, makes the tables if need be, writes for ever."""
    session = spark_session.start(settings, scratch=directory / "pgsql_tmp")
    engine = Engine(settings, Catalog.open(directory / "catalog.duckdb"), directory, session=session)
    for line in engine.recover():
        print("recovered:", line, flush=True)
    if (DATABASE, B.oid) not in engine.visible:
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
